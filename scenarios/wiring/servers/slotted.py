"""The servers with slots of a scenario, FL&FA and FL&DA: peers, beliefs, gossip and opinions, wired to the clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from models.peers.mathematics import PeerBelief, PeerGossip
from models.peers.synthetic_opinions import SyntheticOpinions
from netsim.peers.belief.exchange import BeliefRules, warn_of_storms
from netsim.peers.consensus import ConsensusPhase, ConsensusRules, StartRule
from netsim.peers.gossip.exchange import GossipRules
from netsim.servers.kinds.opinions import OpinionUplink, Tests
from netsim.servers.kinds.slotted import FlDaServer, FlFaServer, IndexPolicy, OpinionLearner, OpinionPolicy, SlotParts
from netsim.servers.rounds.close import WaitRule, WhenEnded
from netsim.servers.rounds.dispatch import MembersDispatch
from netsim.servers.rounds.loop import RoundLoop
from scenarios.registry.components import Keywords, name_refusals
from scenarios.schema.errors import UserError
from scenarios.schema.servers.slotted import FlDa, FlFa
from scenarios.schema.work import Work
from scenarios.schema.world import Compute
from scenarios.wiring.clients.population import Context, FloatArray
from scenarios.wiring.laws import delay_timeline
from scenarios.wiring.network.peers import build_links, build_opinion_links, build_peer_graph, construct_at, message_presence
from scenarios.wiring.servers.server import Server
from scenarios.wiring.world import World

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.network.outages import ClientOutages
    from netsim.network.transport.link_outages import Presence


def fl_fa(world: World, section: FlFa) -> Server:
    """Return the server of kind "fl-fa": all clients send it their opinions, and it selects by them. Raises UserError."""
    parts, context = _build_parts(world, section), _slot_context(world)
    policy: OpinionPolicy = world.decider(OpinionPolicy, section.per_round)
    pool = parts.training.pool.pool
    uplink = _opinion_uplink(world, context, pool.medium.outages, presence=message_presence(world, pool))
    return FlFaServer(parts, policy=policy, uplink=uplink, streams=world.streams)


def fl_da(world: World, section: FlDa) -> Server:
    """Return the server of kind "fl-da": clients select among themselves, in a consensus phase. Raises UserError."""
    parts = _build_parts(world, section)
    policy: IndexPolicy = world.decider(IndexPolicy, section.per_round)
    context, pool = _slot_context(world), parts.training.pool.pool
    # FL&DA uploads no opinions. Build their uplink all the same, to refuse wrong keys of `[opinions]`.
    _opinion_uplink(world, replace(context, targets=None), None)
    consensus = _consensus(world, context, pool)
    beliefs = world.scenario.output.beliefs_table
    return FlDaServer(parts, policy=policy, consensus=consensus, beliefs=beliefs)


def _slot_context(world: World) -> Context:
    """Return the context for the phase between slots, whose change points count slots and not communication rounds."""
    return replace(world.context.without_run_changes(), rounds=world.scenario.rounds)


def _build_parts(world: World, section: FlFa | FlDa) -> SlotParts:
    """Return the parts that FL&FA and FL&DA share; raises UserError."""
    slots, opinions = world.scenario.slots, world.scenario.opinions
    assert slots is not None
    assert opinions is not None
    learner = _opinion_learner(world)
    channels, pool = world.channels_and_pool(section.per_round)
    members = MembersDispatch(
        pool=pool, learner=learner, whole=section.when_short == "wait", reselect_busy=section.reselect_busy
    )
    training = RoundLoop(
        pool=pool,
        dispatch=members,
        close=WhenEnded(pool=pool, rule=WaitRule(deadline_s=section.deadline_s)),
        learner=learner,
        instruments=channels.instruments,
        assignment=channels.assignment,
        straggle=section.stragglers == "finish",
    )
    test_time = delay_timeline(Compute(delay=opinions.test), "opinions.test", _slot_context(world), key="opinions.test")
    return SlotParts(
        training=training,
        members=members,
        learner=learner,
        tests=Tests(
            clients=world.population.count,
            law=test_time,
            streams=world.streams,
            evaluated=_test_work(world),
            sample=world.training.sample,
            rounds_per_slot=slots.rounds,
        ),
        rounds_per_slot=slots.rounds,
        reset_each_slot=slots.reset_each_slot,
        recording=channels.recording,
    )


def _test_work(world: World) -> FloatArray | None:
    """Return the work (K,) of each client's test, in samples of training that take as long; None if it takes no time.

    Raises UserError for samples without a speed of clients, for "local" without a learner, and for a number < 0.
    """
    section, key = world.scenario.opinions, "opinions.test_samples"
    assert section is not None
    if section.test_samples is None:
        return None
    if world.training.sample is None:
        raise UserError(f"{key} = {section.test_samples!r}: takes time by a speed; give one in [compute], or leave it out")
    count = world.population.count
    if section.test_samples == "local":
        if world.scenario.learner is None:
            raise UserError(f"{key} = 'local': is of [learner]; without one give numbers of samples")
        # A scenario that is only checked has no test set.
        samples = 0 if world.trained is None else world.trained.tests.local_tests(section.local).shape[1]
    else:
        samples = world.population.values(section.test_samples, key)
        if not np.min(samples) >= 0:
            raise UserError(f"{key} = {float(np.min(samples))!r}: must be >= 0 samples")
    # A test makes a forward pass only.
    share = Work().forward_share if world.scenario.work is None else world.scenario.work.forward_share
    return np.array(np.broadcast_to(share * np.asarray(samples, np.float64), (count,)))


def _opinion_learner(world: World) -> OpinionLearner:
    """Return the learner that forms opinions: synthetic, or from tests of the trained model; raises UserError."""
    scenario, population = world.scenario, world.population
    supplied: Keywords = {
        "clients": population.count,
        "per_round": scenario.server.per_round,
        "draws": world.streams["opinions"],
    }
    assert scenario.opinions is not None
    law = scenario.opinions.synthetic
    if law is not None:
        keywords = {name: getattr(law, name) for name in ("own", "noise", "memory", "start")}
        worth = population.values(law.worth, "opinions.synthetic.worth")
        return construct_at(SyntheticOpinions, "opinions.synthetic", {"worth": worth, **keywords}, supplied)
    if world.trained is None:
        # A scenario that is only checked has no learner: any opinions will do.
        return SyntheticOpinions(worth=0.5, **supplied)
    from models.fl.learners.slot_learner import SlotLearner

    with name_refusals("opinions", ("local",)):
        return SlotLearner(learner=world.trained, local=scenario.opinions.local)


def _opinion_uplink(
    world: World,
    context: Context,
    outages: ClientOutages | None,
    *,
    presence: Presence | None = None,
) -> OpinionUplink:
    """Return the uplink of opinions. `presence`: result of `message_presence`; None: all clients are present."""
    section = world.scenario.opinions
    assert section is not None
    transport = build_opinion_links(world, context, outages, presence=presence)
    return OpinionUplink(
        transport=transport, streams=world.streams, size_bytes=section.size_bytes, wait_s=section.wait_s
    )


def _consensus(world: World, context: Context, pool: ClientPool) -> ConsensusPhase:
    """Return the consensus phase of FL&DA: messages of belief propagation, and gossip; raises UserError."""
    scenario, streams = world.scenario, world.streams
    section, slots, belief, gossip = scenario.peers, scenario.slots, scenario.belief, scenario.gossip
    assert section is not None
    assert slots is not None
    assert belief is not None
    assert gossip is not None
    graph = build_peer_graph(section, context.population.count, streams)
    instant = slots.start == "zero"
    outages, presence = pool.medium.outages, message_presence(world, pool)
    if instant:
        outages, presence = None, None  # messages take no time, and none is lost
    links = build_links(world, section, graph, context, outages, presence=presence)
    belief_keys = ("model", "coupling", "attenuation", "exponent", "strict")
    rule_keys = ("update", "exchanges", "max_exchanges", "tolerance", "damping", "work_s", "message_bytes")
    gossip_keys = ("forwarding", "interval_s", "max_repetitions", "work_s", "header_bytes", "pair_bytes")
    maths_keywords = {name: getattr(belief, name) for name in belief_keys}
    rule_keywords = {name: getattr(belief, name) for name in rule_keys}
    gossip_keywords = {name: getattr(gossip, name) for name in gossip_keys}
    if instant:
        rule_keywords["work_s"] = gossip_keywords["work_s"] = gossip_keywords["interval_s"] = 0.0
    belief_rules = construct_at(BeliefRules, "belief", rule_keywords, {})
    belief_maths = construct_at(PeerBelief, "belief", maths_keywords, {"graph": graph})
    gossip_rules = construct_at(GossipRules, "gossip", gossip_keywords, {})
    construct_at(warn_of_storms, "belief", {}, {"rules": belief_rules, "maths": belief_maths}, names={"work_s"})
    start_rule = StartRule(start="deadline" if slots.start == "deadline" else "agreement", deadline_s=slots.deadline_s)
    reachable = None if presence is None else presence.reachable
    with name_refusals("slots", ("engine",)):
        return ConsensusPhase(
            links=links,
            belief=belief_maths,
            gossip=PeerGossip(graph=graph, size=scenario.server.per_round, payload=gossip.payload),
            rules=ConsensusRules(
                belief=belief_rules,
                gossip=gossip_rules,
                start=start_rule,
                per_round=scenario.server.per_round,
                engine=slots.engine,
                ties=gossip.ties,
            ),
            streams=streams,
            reachable=reachable,
        )
