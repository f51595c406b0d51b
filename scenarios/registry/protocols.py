"""Checks, before a run, that an object of the user's own class has the members that the engine calls, and answers in form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from models.detection.protocols import Detector
from models.fl.protocols import Aggregation, Compression, Optimizer, ServerOptimizer, Staleness, Trainer
from models.laws.work import Noise
from models.peers.graph import PeerGraph
from models.privacy import Schedule
from models.schedulers.protocols import Matcher, Scheduler
from netsim.core.errors import AnswerError
from netsim.core.jamming import JammerLaw
from netsim.core.protocols import (
    OPTIONAL,
    Availability,
    BandwidthLaw,
    ChannelLaw,
    ChannelStates,
    DelayLaw,
    RewardMeter,
    SelectionPolicy,
)
from netsim.core.scheduling import ChannelScheduler
from netsim.peers.training.protocol import TrainingProtocol
from netsim.servers.kinds.slotted import IndexPolicy, OpinionPolicy
from scenarios.registry.answers import check_answers
from scenarios.registry.server_mode import ServerMode
from scenarios.schema.errors import UserError

PROTOCOLS: dict[str, tuple[type, ...]] = {
    "policy": (SelectionPolicy, OpinionPolicy, IndexPolicy),
    "delay": (DelayLaw,),
    "noise": (Noise,),
    "bandwidth": (BandwidthLaw,),
    "channel": (ChannelLaw,),
    "availability": (Availability,),
    "schedule": (Schedule,),
    "reward": (RewardMeter,),
    "scheduler": (ChannelScheduler,),
    "jammer": (JammerLaw,),
    "states": (ChannelStates,),
    "matcher": (Matcher,),
    "detector": (Detector,),
    "optimizer": (Optimizer,),
    "aggregation": (Aggregation,),
    "staleness": (Staleness,),
    "server_optimizer": (ServerOptimizer,),
    "compression": (Compression,),
    "trainer": (Trainer,),
    "server": (ServerMode,),
    "protocol": (TrainingProtocol,),
}
"""Protocols of the components of a group. The first is required unless a server requires another."""

WITHIN: dict[str, type] = {"scheduler": Scheduler}
"""Protocols of nested components. The outer component may require more than the engine does."""


def member_names(protocol: type) -> list[str]:
    """Return the names of a Protocol's attributes and methods."""
    names: dict[str, None] = {}  # each name once, in order
    for base in _bases(protocol):
        # An attribute without a value stands among the annotations only.
        names |= dict.fromkeys([*vars(base), *vars(base).get("__annotations__", ())])
    return [name for name in names if not name.startswith("_")]


def _bases(protocol: type) -> list[type]:
    """Return the Protocol and its bases, without those of Python."""
    return [base for base in protocol.__mro__ if base.__module__ not in ("typing", "builtins")]


def add_defaults(group: str, target: type) -> None:
    """Complete a user's class: add the defaults of the optional members that it leaves out, and checks of its answers.

    The defaults are those of the group's Protocols. The engine calls every member without a check. Raises UserError for a class
    that cannot be extended, such as a built-in one of Python.
    """
    for protocol in PROTOCOLS.get(group, ()):
        for name, default in optional_members(protocol).items():
            if not hasattr(target, name):
                try:
                    setattr(target, name, default)
                except TypeError as error:
                    reason = f"lacks {name}, and nothing can be added to it"
                    raise UserError(f"{target.__module__}:{target.__qualname__} {reason}; name a class of your own") from error
    check_answers(group, target)


def optional_members(protocol: type) -> dict[str, Any]:
    """Return the optional members of a Protocol with their defaults: marked methods, and attributes with a value."""
    result: dict[str, Any] = {}
    for base in _bases(protocol):
        for name, value in vars(base).items():
            is_attribute = not callable(value) and not isinstance(value, property)
            if not name.startswith("_") and (is_attribute or hasattr(value, OPTIONAL)):
                result.setdefault(name, value)
    return result


def check_component(group: str, component: Any, kind: str, path: str, clients: int, protocol: type | None = None) -> None:
    """Raise UserError if a user's component lacks a member of its Protocol, or answers a sample call in a wrong form.

    `kind`, `path`: its class and its place in the scenario, for the message. `clients`: number of clients. `protocol`: Protocol
    to check; None: the first of the group. A group without a Protocol is not checked, but for a topology: it is a graph.
    """
    if group == "topology" and not isinstance(component, PeerGraph):
        raise UserError(f"{path}: {kind!r} returns {type(component).__name__}; must return a PeerGraph (see models.peers.graph)")
    if group == "topology" and component.clients != clients:
        raise UserError(f"{path}: {kind!r} returns a graph of {component.clients} clients; must have {clients}")
    if group not in PROTOCOLS:
        return
    _check_members(protocol or PROTOCOLS[group][0], component, kind, path)
    if group == "availability" and np.shape(component.on) != (clients,):
        raise UserError(f"{path}: {kind!r}: on is {component.on!r}; must be {clients} truth values")
    all_clients = np.arange(clients)
    for name, call in _SAMPLE_CALLS.get(group, {}).items():
        try:
            call(component, all_clients)
        except AnswerError as error:
            raise UserError(f"{path}: {kind!r}: {name} returns {error.returned!r}; {error.reason}") from error


def check_component_within(group: str, component: object, kind: str, path: str) -> None:
    """Raise UserError if a user's nested component lacks a member that the outer component calls."""
    if group in WITHIN:
        _check_members(WITHIN[group], component, kind, path)


def _check_members(protocol: type, component: object, kind: str, path: str) -> None:
    """Raise UserError if `component` lacks a member of `protocol`."""
    missing = [name for name in member_names(protocol) if not hasattr(component, name)]
    if missing:
        needed = f"see {protocol.__name__} in {protocol.__module__} for all that is called"
        raise UserError(f"{path}: {kind!r} lacks {', '.join(missing)}; {needed}")


# Calls of a law (law, clients) that show usual mistakes. Quantiles are at the ends and the middle of [0, 1).
_SAMPLE_CALLS: dict[str, dict[str, Callable[[Any, Any], Any]]] = {
    "delay": {
        "quantile(0)": lambda law, k: law.quantile(np.zeros(len(k)), k),
        "quantile(0.5)": lambda law, k: law.quantile(np.full(len(k), 0.5), k),
        "quantile(1 - 2^-53)": lambda law, k: law.quantile(np.full(len(k), 1.0 - 2.0**-53), k),
        "mean_s": lambda law, k: law.mean_s(k),
    },
    "noise": {
        "quantile(0)": lambda law, k: law.quantile(np.zeros(len(k)), k),
        "quantile(1 - 2^-53)": lambda law, k: law.quantile(np.full(len(k), 1.0 - 2.0**-53), k),
    },
    "bandwidth": {
        "rate": lambda law, k: law.rate(0.0, k),
        "mean_rate": lambda law, k: law.mean_rate(k),
        "served_bytes": lambda law, k: law.served_bytes(np.zeros(len(k)), np.ones(len(k)), k),
    },
    "channel": {"success_probability": lambda law, k: law.success_probability(k)},
}
