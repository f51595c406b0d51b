"""A run of a server with slots, put together by hand."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from models.laws.availability.presence import Always
from models.laws.changes import Unchanging
from models.laws.channels import Perfect
from models.laws.delays import Constant
from models.peers.graph import PeerGraph
from models.peers.mathematics import PeerBelief, PeerGossip
from models.peers.synthetic_opinions import SyntheticOpinions
from models.peers.topologies import random_geometric
from models.policies.slotted.bp_index import BpIndex
from models.policies.slotted.fixed_set import FixedSet
from models.policies.slotted.quick_init_ucb import QuickInitUcb
from models.privacy import NoPrivacy
from netsim.clients.pool import ClientPool
from netsim.clients.power.energy import FollowedPresence
from netsim.core.clock import Clock
from netsim.core.protocols import FloatArray
from netsim.core.streams import Streams
from netsim.network.medium import Medium, MediumLaws
from netsim.network.sizes import Sizes
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.consensus import ConsensusOutcome, ConsensusPhase, ConsensusRules, StartRule
from netsim.peers.gossip.exchange import GossipRules
from netsim.servers.kinds.opinions import Tests
from netsim.servers.kinds.slotted import FlDaServer, FlFaServer, SlotParts
from netsim.servers.rounds.close import WaitRule, WhenEnded
from netsim.servers.rounds.dispatch import MembersDispatch
from netsim.servers.rounds.loop import RoundLoop
from netsim.simulation import Simulation
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.peer_world import links_between, opinion_uplink

K, M = 12, 3


WORTH = np.linspace(0.2, 0.95, K)


def still(value_s: float = 0.0) -> Unchanging[Any]:
    return Unchanging(Constant(value_s=value_s))


class Listening(ConsensusPhase):
    """A consensus phase that keeps what came of each slot."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.outcomes: list[ConsensusOutcome] = []

    def run(
        self, slot: int, opinions: FloatArray, index_of: Callable[[FloatArray], FloatArray]
    ) -> Generator[Any, Any, ConsensusOutcome]:
        outcome = yield from super().run(slot, opinions, index_of)
        self.outcomes.append(outcome)
        return outcome


class Run:
    """A simulation of one of the two servers, and its parts."""

    def __init__(
        self,
        *,
        kind: str = "fl-da",
        seed: int = 1,
        slots: int = 10,
        rounds_per_slot: int = 2,
        compute: Any = None,
        upload: Any = None,
        theta: Any = None,
        test: Any = None,
        availability: Any = None,
        wait: WaitRule | None = None,
        learner: dict[str, Any] | None = None,
        policy: Any = None,
        uplink: dict[str, Any] | None = None,
        graph: PeerGraph | None = None,
        delay: Any = None,
        channel: Any = None,
        belief: BeliefRules | None = None,
        gossip: GossipRules | None = None,
        start: StartRule | None = None,
        engine: Any = "auto",
        payload: Any = "all",
        model: Any = "ising",
        ties: Any = "random",
        links: dict[str, Any] | None = None,
        reset: bool = False,
        whole: bool = True,
    ) -> None:
        self.clock, self.streams, self.recorder = Clock(), Streams(seed), MemoryRecorder()
        medium = Medium(
            clients=K,
            laws=MediumLaws(
                download=still(),
                compute=compute or still(),
                upload=upload or still(),
                downlink=Unchanging(Perfect()),
                uplink=Unchanging(theta or Perfect()),
            ),
            streams=self.streams,
            sizes=Sizes(down=100, up=100),
        )
        self.clients = ClientPool(
            clock=self.clock,
            medium=medium,
            presence=FollowedPresence(availability or Always(clients=K), self.streams["availability"]),
            accountant=NoPrivacy(clients=K),
        )
        self.learner = SyntheticOpinions(
            clients=K, per_round=M, draws=self.streams["opinions"], **({"worth": WORTH} | (learner or {}))
        )
        members = MembersDispatch(pool=self.clients, learner=self.learner, whole=whole)
        training = RoundLoop(
            pool=self.clients,
            dispatch=members,
            close=WhenEnded(pool=self.clients, rule=wait or WaitRule()),
            learner=self.learner,
        )
        shared: dict[str, Any] = {
            "training": training,
            "members": members,
            "learner": self.learner,
            "tests": Tests(clients=K, law=test or still(), streams=self.streams),
            "rounds_per_slot": rounds_per_slot,
            "reset_each_slot": reset,
        }
        self.outcomes: list[Any] = []
        self.server: Any
        if kind == "fl-fa":
            self.policy = policy or QuickInitUcb(clients=K, per_round=M)
            opinions = opinion_uplink(clients=K, streams=self.streams, clock=self.clock, **(uplink or {}))
            self.server = FlFaServer(SlotParts(**shared), policy=self.policy, uplink=opinions, streams=self.streams)
        else:
            rng = np.random.default_rng(7)
            self.graph = graph or random_geometric(clients=K, generator=rng, radius_km=0.6)
            self.policy = policy or BpIndex(clients=K, per_round=M, mu=0.1)
            peer_links = links_between(self.clock, self.graph, self.streams, delay=delay, channel=channel, **(links or {}))
            consensus = Listening(
                links=peer_links,
                belief=PeerBelief(graph=self.graph, model=model),
                gossip=PeerGossip(graph=self.graph, size=M, payload=payload),
                rules=ConsensusRules(
                    belief=belief or BeliefRules(),
                    gossip=gossip or GossipRules(),
                    start=start or StartRule(),
                    per_round=M,
                    engine=engine,
                    ties=ties,
                ),
                streams=self.streams,
            )
            self.outcomes = consensus.outcomes
            self.server = FlDaServer(SlotParts(**shared), policy=self.policy, consensus=consensus, beliefs=True)
        self.server.record_to(self.recorder)
        self.simulation = Simulation(clock=self.clock, server=self.server, recorder=self.recorder, rounds=slots)

    def play(self) -> Run:
        self.simulation.run()
        self.simulation.close()
        return self


class Spy(FixedSet):
    def __init__(self) -> None:
        super().__init__(clients=K, per_round=M, members=[0, 1, 2])
        self.heard: list[Any] = []

    def observe_opinions(self, round: int, clients: Any, opinions: Any) -> None:
        self.heard.append(opinions)
