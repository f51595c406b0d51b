"""Wiring of the key `script` to a runner, its targets, and the events that wake it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from netsim.clients.update import Drawn
from netsim.core.jamming import JammerLaw
from netsim.core.protocols import Availability
from netsim.network.jamming import Jammers
from netsim.servers.rounds.instruments import Restarts
from scenarios.registry.kinds import is_own, resolve
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import Clients
from scenarios.wiring.clients.population import Population
from scenarios.wiring.laws import Law
from scenarios.wiring.script.observed import Scene
from scenarios.wiring.script.runner import ScriptRunner
from scenarios.wiring.script.targets import ScriptedObject, Targets
from scenarios.wiring.script.waits import Declared
from scenarios.wiring.script.world import World as ScriptWorld
from scenarios.wiring.servers.server import Server

if TYPE_CHECKING:
    from scenarios.wiring.world import World

_UPDATE_LAWS: dict[str, Drawn] = {
    "downlink.delay": "download",
    "downlink.channel": "downlink",
    "compute.delay": "compute",
    "compute.speed": "sample",
    "uplink.delay": "upload",
    "uplink.channel": "uplink",
}
_CHANNEL_LAWS = ("channels.delay", "channels.channel", "channels.bandwidth", "channels.states")
_PEER_LAWS = ("peers.delay", "peers.channel")


def build_script(world: World, server: Server) -> ScriptRunner | None:
    """Return the script of a run, or None; raises UserError if its function does not exist."""
    section, targets = world.scenario.script, world.context.targets
    if section is None or targets is None:
        return None
    function = resolve("script", section.kind)
    runner = ScriptRunner(name=section.kind, clock=world.clock)
    pool, channels = server.clients, server.clients.medium.access.assigned
    spectrum = None if channels is None else channels.spectrum
    links = None if targets.cuts is None else server.transport
    graph = None if links is None else links.graph
    jammers = _all_jammers(world, server)
    scene = Scene(
        population=world.population,
        pool=pool,
        spectrum=spectrum,
        jammers=jammers,
        graph=graph,
        slots=world.scenario.server.slotted,
        declares={group: _may_declare(group, world.scenario) for group in ("policy", "scheduler")},
    )
    script_world = ScriptWorld(runner=runner, targets=targets, scene=scene, rng=world.streams.generator("script"))
    server_section = world.scenario.server
    round_s = None if server_section.own else server_section.parameters().get("round_s")
    runner.set_function(partial(function, script_world, **section.parameters()), round_s=round_s)
    def due_s() -> float:
        """Return the time of the script's next act, which may end an absence, a cut or jamming."""
        return runner.due_s

    # A server without clients waits for the script's next act, which may bring clients back.
    targets.absent.ask_return(due_s)
    if targets.absent_edges is not None:
        targets.absent_edges.ask_return(due_s)
    if targets.cuts is not None and links is not None:
        targets.cuts.listen(links.report_return)
        targets.cut_offs.listen(links.report_reconnection)
        targets.cuts.expect(due_s)
    targets.cut_offs.expect(due_s)
    for group in jammers:
        group.expect(due_s)
    _add_objects(world, targets, jammers)
    _register_renewals(world, server)
    _follow_ends_and_rounds(runner, server)
    _follow_declarations(runner, server)
    return runner


def _may_declare(group: str, scenario: Scenario) -> bool:
    """Return True if the policy or scheduler may declare changes: it has a detector, or is a user's class."""
    section = {"policy": scenario.policy, "scheduler": scenario.scheduler}[group]
    while section is not None:
        if is_own(group, section.kind):
            return True
        parameters = section.parameters()
        detector = parameters.get("detector")
        # A scheduler with an argument for a detector has a default detector; a policy has none.
        if detector is not None or (group == "scheduler" and "detector" in parameters):
            return detector is None or detector.kind != "no-detection"
        section = parameters.get(group)
    return False


def _all_jammers(world: World, server: Server) -> list[Jammers]:
    """Return the jammers of cables, of messages or opinions, and of sub-channels and clients' own links, each kind by itself."""
    cables = None if world.network is None else world.network.network.jammers
    messages = None if server.transport is None else server.transport.jammers
    return [group for group in (cables, messages, *server.clients.medium.jamming.groups) if group]


def _add_objects(world: World, targets: Targets, jammers: Sequence[Jammers]) -> None:
    """Add the targets with a state that are replaced as a whole: presence, and the jammers' laws."""
    scenario, absent = world.scenario, targets.absent
    # A law that a script puts in has no changes of its own, and its values are no targets of the script.
    context = replace(world.context.without_run_changes(), targets=None)
    presence = Law[Availability].from_scenario(scenario.availability, "availability", "availability", context)
    targets.all["availability"] = ScriptedObject(
        key="availability", entity="clients", law=presence, present=absent.inner, use=absent.follow
    )
    by_name = {jammer.name: jammer for group in jammers for jammer in group.all}
    for i, section in enumerate(scenario.jammers):
        jammer, key = by_name[section.name], f"jammers.{section.name}"
        channel_context = replace(context, population=Population(Clients(count=jammer.target.count)))
        law = Law[JammerLaw].from_scenario(section.law, "jammer", f"jammers.{i}.law", channel_context)
        targets.all[key] = ScriptedObject(key=key, entity=None, law=law, present=jammer.law, use=jammer.follow)


def _register_renewals(world: World, server: Server) -> None:
    """After a change of a law, make the objects that store its values evaluate it again."""
    targets = world.context.targets
    assert targets is not None
    channels = server.clients.medium.access.assigned
    renewals: dict[str, Callable[[], None]] = {key: partial(server.clients.renew, name) for key, name in _UPDATE_LAWS.items()}
    if channels is not None:
        spectrum = channels.spectrum
        renewals |= dict.fromkeys(_CHANNEL_LAWS, lambda: spectrum.renew(world.clock.now))
    renewals |= dict.fromkeys(_PEER_LAWS, server.renew_messages)
    if targets.edges is not None:
        renewals |= {f"edges.{key}": partial(targets.edges.renew, name) for key, name in _UPDATE_LAWS.items()}
    # Only laws of this run are targets.
    for key in targets.all.keys() & renewals.keys():
        targets.after_change(key, renewals[key])


def _follow_ends_and_rounds(runner: ScriptRunner, server: Server) -> None:
    """Let the server call the runner at every end of an attempt, and before every round and slot."""
    server.clients.followers.append(runner.on_end)
    server.loop.follow_openings(runner.on_round)
    server.listen_to_slots(runner.on_slot)


def _follow_declarations(runner: ScriptRunner, server: Server) -> None:
    """Let the scheduler and the policy tell the runner each change that they declare.

    A policy has no listeners: an instrument of the loop sees after each round which clients it has restarted.
    """

    def report(round: int, *, channels: Sequence[int] = (), clients: Sequence[int] = ()) -> None:
        """Tell the runner of changes declared at the close of `round`: of sub-channels, or of clients."""
        declared = Declared(time_s=runner.clock.now, round=round, channels=tuple(channels), clients=tuple(clients))
        runner.on_declared(declared)

    def report_scheduler(round: int, channels: list[int]) -> None:
        report(round, channels=channels)

    def report_policy(round: int, clients: list[int]) -> None:
        report(round, clients=clients)

    loop = server.loop
    if loop.detections is not None:
        loop.detections.listen(report_scheduler)
    loop.add_instrument(Restarts(dispatch=loop.dispatch, on_declared=report_policy))
