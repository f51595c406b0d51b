"""Checks between the tables of a scenario that hold for every server; the table of a server has its checks (`Server.check`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.errors import ParameterError
from models.fl.options.demands import check_exact
from models.fl.privacy.unprotected import BARE_STATISTICS, NO_SUCH_LAYERS
from scenarios.registry.kinds import resolve
from scenarios.schema.jamming import check_jammers
from scenarios.schema.probe import check_probes
from scenarios.schema.section import problem
from scenarios.schema.servers.edges import check_edges
from scenarios.schema.servers.flower import check_server
from scenarios.schema.servers.slotted import INDEX_POLICIES, OPINION_POLICIES

if TYPE_CHECKING:
    from scenarios.registry.components import Component
    from scenarios.schema.scenario import Scenario

LARGEST = 2**63 - 1
"""Largest whole number of a Parquet column, and of TOML."""
SLOT_TABLES = ("slots", "opinions", "belief", "gossip")
"""Tables of the servers with slots."""
DRAWN_OVERLAYS = {"matcha": "matcha", "matcha+": "matcha", "one-peer": "one-peer"}
"""Overlays whose links change from round to round, with the protocol of peers that chooses the links of each round."""


def check_fit(scenario: Scenario) -> None:
    """Check that the tables of a scenario go together; raise a pydantic refusal for the first key that does not fit."""
    check_server(scenario)
    check_edges(scenario)
    scenario.server.check(scenario)
    check_jammers(scenario)
    scenario.server.check_members(scenario, ("server",), of_edges=scenario.edges is not None)
    if not scenario.server.slotted:
        _check_no_slots(scenario)
        if scenario.policy is not None:
            scenario.server.check_policy(scenario.policy, scenario)
    for i, jammer in enumerate(scenario.jammers):
        if jammer.start == "script" and scenario.script is None:
            raise problem(("jammers", i, "start"), "script", "without a script nobody starts it; name a script, or give a time")
    if scenario.metrics.fastest_round and not scenario.server.waits_for_all:
        raise problem(("metrics", "fastest_round"), True, "is of rounds of the synchronous server; leave it out")
    _check_network(scenario)
    _check_overlay(scenario)
    check_probes(scenario)
    _check_protection(scenario)
    _check_amounts(scenario)
    _check_aggregation(scenario)
    sizes = scenario.clients.data_sizes
    if scenario.learner is not None and sizes is not None:
        raise problem(("clients", "data_sizes"), sizes, "leave it out; learner.partition says who holds what")


def _check_amounts(scenario: Scenario) -> None:
    """Refuse `[work]` whose amount of training depends on numbers of samples that no key gives."""
    work = scenario.work
    if work is None or scenario.learner is not None:
        return
    if scenario.clients.data_sizes is None:
        if work.steps is None:
            raise problem(("work", "epochs"), work.epochs, "give clients.data_sizes, how many samples a pass has, or work.steps")
        if work.batch_size is None:
            raise problem(("work", "batch_size"), None, "must be given with steps where clients.data_sizes is not")


def _check_network(scenario: Scenario) -> None:
    """Refuse bandwidths of links beside `[network]`, where cables have them, and without it a table of its transfers."""
    if scenario.network is None:
        if scenario.output.transfers_table:
            raise problem(("output", "transfers_table"), True, "there are no cables; add [network], or leave it out")
        return
    for name in ("downlink", "uplink", "opinions", "peers"):
        section = getattr(scenario, name)
        if section is None:
            continue
        reason = "bandwidth belongs to the cables of [network]; leave it out"
        for key in ("bandwidth_bytes_per_s", "bandwidth", "shared"):
            if getattr(section, key, None) is not None:
                raise problem((name, key), "..", reason)
        for i, change in enumerate(section.changes):
            if change.bandwidth_bytes_per_s is not None or change.bandwidth:
                raise problem((name, "changes", i, "bandwidth_bytes_per_s"), "..", reason)


def _check_overlay(scenario: Scenario) -> None:
    """Refuse an overlay whose links change from round to round without a protocol that chooses them."""
    topology = None if scenario.peers is None else scenario.peers.topology
    if topology is None or topology.kind != "overlay" or topology.overlay not in DRAWN_OVERLAYS:
        return
    chosen, protocol = topology.overlay, DRAWN_OVERLAYS[topology.overlay]
    if not scenario.server.trains_peers or scenario.server.protocol.kind != protocol:
        remedy = f"set server.kind = 'peers' and server.protocol = {{ kind = \"{protocol}\" }}, or name another overlay"
        reason = f"uses other links in each round, which a protocol of peers chooses; {remedy}"
        raise problem(("peers", "topology", "overlay"), chosen, reason)


def _check_protection(scenario: Scenario) -> None:
    """Refuse settings under which statistics of batch normalisation would be released without protection, unsaid."""
    privacy, learner = scenario.privacy, scenario.learner
    if privacy is None or privacy.mechanism == "none" or learner is None:
        return
    # None for a network of the user's own: its layers are checked when it is built.
    normalised = learner.network.batch_normalised
    if privacy.unprotected is not None and normalised is False:
        raise problem(("privacy", "unprotected"), privacy.unprotected, NO_SUCH_LAYERS)
    if normalised and learner.batch_statistics == "averaged" and privacy.unprotected is None:
        raise problem(("learner", "batch_statistics"), "averaged", BARE_STATISTICS)


def _check_aggregation(scenario: Scenario) -> None:
    """Check the demands of the aggregation on server, work, privacy and compression, and that reported losses are used."""
    learner = scenario.learner
    if learner is None:
        return
    demands = learner.aggregation.demands
    if demands.fresh and not scenario.server.fresh:
        reason = f"{demands.name} goes with updates of the present model only; set server.kind = 'synchronous'"
        raise problem(("learner", "aggregation", "kind"), learner.aggregation.kind, reason)
    if demands.fresh and learner.staleness.kind != "none":
        reason = f"with {demands.name} no update is of an old model; leave it out"
        raise problem(("learner", "staleness", "kind"), learner.staleness.kind, reason)
    reports_received = learner.reported_losses == "received"
    policy = scenario.policy
    policy_uses_losses = not scenario.server.slotted and policy is not None and resolve("policy", policy.kind).needs_losses
    if not learner.client_losses and not policy_uses_losses:
        reason = "nobody goes by losses; leave it out, set client_losses, or choose a policy by loss"
        if reports_received:
            raise problem(("learner", "reported_losses"), learner.reported_losses, reason)
        if learner.reported_rms != "all":
            raise problem(("learner", "reported_rms"), learner.reported_rms, reason)
    # Both need one more pass over all samples, the time of which is worked out for whole updates only.
    if (reports_received or demands.extra_pass is not None) and scenario.work is not None and scenario.work.partial_share:
        cause = "reported_losses" if demands.extra_pass is None else demands.name
        reason = f"{cause} has clients go through all their samples, which takes its time as of whole work; leave it out"
        raise problem(("work", "partial_share"), scenario.work.partial_share, reason)
    privacy = scenario.privacy
    protection = None if privacy is None or privacy.mode == "none" else privacy.mechanism
    up = _kind_or_none(scenario.payload.compression)
    down = _kind_or_none(scenario.payload.down_compression)
    try:
        check_exact(demands, protection=protection, up=up, down=down)
    except ParameterError as error:
        table = "privacy" if error.name == "mechanism" else "payload"
        raise problem((table, error.name), error.value, error.reason) from error


def _kind_or_none(compression: Component) -> str | None:
    """Return the kind of a compression; None for the kind "none"."""
    return None if compression.kind == "none" else compression.kind


def _check_no_slots(scenario: Scenario) -> None:
    """Refuse tables and policies that need a server with slots."""
    for name in SLOT_TABLES:
        if getattr(scenario, name) is not None:
            raise problem((name,), "..", "belongs to servers with slots; leave it out, or set server.kind to fl-fa or fl-da")
    if scenario.peers is not None and not scenario.server.sends_between_clients:
        reason = "no client sends another a message here; leave it out, or set server.kind to fl-da or peers"
        raise problem(("peers",), "..", reason)
    if scenario.policy is not None and scenario.policy.kind in (*OPINION_POLICIES, *INDEX_POLICIES):
        remedy = "fl-da" if scenario.policy.kind in INDEX_POLICIES else "fl-fa"
        raise problem(("policy", "kind"), scenario.policy.kind, f"learns from opinions; set server.kind = '{remedy}'")
    if scenario.output.messages_table and not scenario.server.sends_between_clients:
        raise problem(("output", "messages_table"), True, "there are such messages with fl-da, fl-fa and peers only")
    if scenario.output.beliefs_table:
        raise problem(("output", "beliefs_table"), True, "there are beliefs of clients with server.kind = 'fl-da' only")
