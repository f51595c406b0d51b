"""What the state machine drives: a script that does what it is told, and a policy that selects whom it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import netsim
from netsim.core.protocols import IntArray, RoundView, State

POLL_S = 0.25
"""How often the script looks whether there is something to do."""


@dataclass
class Orders:
    """What the script and the policy are told; both may be asked again, by a simulation that goes on from a checkpoint."""

    acts: list[tuple[float, str, Any]] = field(default_factory=list)
    """(when it was ordered, act, argument), in order."""
    chosen: dict[int, list[int]] = field(default_factory=dict)
    """Of each round, places among those who can be selected."""


ORDERS = Orders()


def driven(world: netsim.World) -> netsim.Script:
    """Does what is ordered, a poll after it was."""
    done = 0
    taken: dict[str, Any] = {}
    while True:
        while done < len(ORDERS.acts) and ORDERS.acts[done][0] < world.time_s:
            _, act, argument = ORDERS.acts[done]
            done += 1
            _do(world, act, argument, taken)
        yield world.after(POLL_S)


def _do(world: netsim.World, act: str, argument: Any, taken: dict[str, Any]) -> None:
    """One act; those that end another one name it by its act."""
    if act in ("depart", "cut", "jam"):
        if act in taken:
            return
        begin = {"depart": world.take_away, "cut": world.cut_off, "jam": world.start_jammer}[act]
        taken[act] = begin(argument)
    elif act == "return" and "depart" in taken:
        taken.pop("depart").bring_back()
    elif act == "reconnect" and "cut" in taken:
        taken.pop("cut").reconnect()
    elif act == "stop" and "jam" in taken:
        taken.pop("jam").stop()
    elif act == "slow":
        world.change("compute.delay", value_s=argument)
    elif act == "loss":
        world.change("uplink.channel", success=argument)


class Told:
    """Selects those of the selectable whom it is told to."""

    needs_updates = False

    def __init__(self, *, per_round: int) -> None:
        self._per_round = per_round

    def select(self, view: RoundView) -> IntArray:
        able = np.flatnonzero(view.selectable)
        places = ORDERS.chosen.get(view.round, [])
        chosen = sorted({int(able[place % len(able)]) for place in places}) or [int(able[0])]
        return np.array(chosen[: self._per_round], np.int64)

    def observe(self, outcome: Any) -> None:
        return None

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


def scenario(**server: Any) -> dict[str, Any]:
    """A world in which everything may happen to a client, on a clock of quarters of a second."""
    return {
        "name": "machine",
        "rounds": 10_000,
        "time_limit_s": 200.0,  # who waits for clients that are never brought back waits for ever
        "clients": {"count": 6},
        "server": {"per_round": 3, "when_short": "proceed", **server},
        "policy": {"kind": "tests.reliability.machine:Told"},
        "script": "tests.reliability.machine:driven",
        "payload": {"down_bytes": 10, "up_bytes": 10},
        "downlink": {"delay": {"kind": "constant", "value_s": 0.25}},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.5}, "channel": {"kind": "bernoulli", "success": 0.8}},
        "channels": {"count": 4, "channel": {"kind": "bernoulli", "success": 0.9}},
        "scheduler": {"kind": "round-robin"},
        "jammers": [{"name": "jammer", "law": {"kind": "random", "width": 2}, "at_once": 2, "dwell_s": 0.75, "start": "script"}],
        "outages": [{"name": "mast", "clients": [0, 1], "mean_up_s": 6.0, "mean_down_s": 1.0}],
        "availability": {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 2.0},
    }
