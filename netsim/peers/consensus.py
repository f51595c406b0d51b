"""The consensus phase of a slot (Tong et al. 2024, Algorithm 2), on the clock: beliefs, indices, gossip, start of training.

The paper ignores the time that messages take (its footnote 4). Here belief propagation begins with the slot, and gossip when
belief propagation ends. The slot's training starts when all clients agree on the top m indices, or at a deadline, with the
clients that then believe to be in the top m. A client believes so if it has heard of fewer than m better clients: at a very early
deadline all take part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from netsim.core.clock import LAST, Process
from netsim.core.errors import ParameterError
from netsim.core.rows import BeliefRow
from netsim.network.transport.message_draws import EdgeDraws
from netsim.peers.belief.asynchronous import AsynchronousBelief
from netsim.peers.belief.synchronous import SynchronousBelief
from netsim.peers.gossip.flooding import Flooding
from netsim.peers.gossip.push import Push

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, FloatArray, IntArray, State
    from netsim.core.streams import Streams
    from netsim.network.transport.transport import Transport
    from netsim.peers.belief.exchange import BeliefMath, BeliefResult, BeliefRules
    from netsim.peers.gossip.exchange import GossipMath, GossipProtocol, GossipRules
    from netsim.peers.protocol import PeerProtocol

_NAN = math.nan
_EVER = math.inf
_SLOT_SHIFT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRule:
    """Rule for the start of training.

    `start` "agreement": as soon as all clients name the same top m, at the latest `deadline_s` after the slot's start (None: no
    limit), or when no message is left to send; "deadline": `deadline_s` after the slot's start in any case.
    """

    start: Literal["agreement", "deadline"] = "agreement"
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if self.start not in ("agreement", "deadline"):
            raise ParameterError("start", self.start, "must be 'agreement' or 'deadline'")
        if self.start == "deadline" and self.deadline_s is None:
            raise ParameterError("deadline_s", None, "start = 'deadline' needs one")
        if self.deadline_s is not None and not 0 < self.deadline_s < _EVER:
            raise ParameterError("deadline_s", self.deadline_s, "must be > 0 seconds and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusRules:
    """Rules of a consensus phase.

    `per_round`: m. `engine` "events" simulates every message; "wave" uses the closed forms of synchronous belief propagation and
    of flooding, and raises ValueError in a slot where they do not hold (loss, jamming, cuts, asynchronous updates, push, a
    payload of the best m only, work between hearing and forwarding, a deadline that cuts belief propagation, recorded messages);
    "auto" uses them where they hold. Either way the result is the same, to the last bit. `ties` between equal indices: "random"
    in each slot, or the lower client "first".
    """

    per_round: int
    belief: BeliefRules
    gossip: GossipRules
    start: StartRule
    engine: Literal["auto", "events", "wave"] = "auto"
    ties: Literal["random", "first"] = "random"

    def __post_init__(self) -> None:
        if self.engine not in ("auto", "events", "wave"):
            raise ParameterError("engine", self.engine, "must be 'auto', 'events' or 'wave'")
        if self.ties not in ("random", "first"):
            raise ParameterError("ties", self.ties, "must be 'random' or 'first'")


@dataclass(frozen=True, slots=True)
class ConsensusOutcome:
    """Outcome of one slot's phase. Durations are seconds from the slot's start; NaN: not reached when training started."""

    members: IntArray
    """Clients that take part, ascending."""
    beliefs: FloatArray
    """Belief b_n (K,), as each client computed it (eq. 4)."""
    index: FloatArray
    """Index (K,) of each client (eq. 17)."""
    converged_s: float
    """Time at which belief propagation had converged."""
    agreed_s: float
    """Time at which all clients named the same top m."""
    duration_s: float
    """Time at which training started."""
    exchanges: int
    """Number of exchanges of beliefs; if asynchronous, the largest number of messages on an edge."""
    residual: float
    """Largest change of a message in the last exchange, log-odds."""
    disagreement: float
    """Share of clients that did not name the true top m when training started."""

    def rows(self, slot: int, opinions: FloatArray) -> Iterator[BeliefRow]:
        """Yield a row for each client, with its belief now. `opinions` (K,): at the start of the phase."""
        is_member = np.zeros(opinions.size, bool)
        is_member[self.members] = True
        # The last columns of `BeliefRow`, in their order.
        columns = (opinions.tolist(), self.beliefs.tolist(), self.index.tolist(), is_member.tolist())
        for client, values in enumerate(zip(*columns, strict=True)):
            yield BeliefRow(slot, client, *values)


def _check_wave(links: Transport, belief: BeliefRules, gossip: GossipRules, maths: GossipMath) -> None:
    """Raise ValueError if the engine "wave" is chosen where closed forms can never hold.

    Slots in which messages are lost or late are refused when they occur.
    """
    reasons = {
        "belief propagation is asynchronous": belief.update == "asynchronous",
        "gossip is not by flooding": gossip.forwarding != "flooding",
        "clients keep the best indices alone": not maths.keeps_all,
        "forwarding takes time": gossip.work_s > 0,
        "links are jammed, their bandwidth changes, or each message is recorded": not links.undisturbed,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ParameterError("engine", "wave", f"there is no closed form where {reason}; use 'auto'")


class ConsensusPhase:
    """Runs the protocols of one slot after the other over the same links. `belief`, `gossip`: their mathematics.

    `reachable`: returns True (K,) for clients that are present; None: all are. A client that is away as training starts takes no
    part in the slot, unless all that believe to be in the top m are away.
    """

    def __init__(
        self,
        *,
        links: Transport,
        belief: BeliefMath,
        gossip: GossipMath,
        rules: ConsensusRules,
        streams: Streams,
        reachable: Callable[[], BoolArray] | None = None,
    ) -> None:
        size, clients = rules.per_round, links.graph.clients
        if not 1 <= size <= clients:
            raise ParameterError("per_round", size, f"must be between 1 and the number of clients, {clients}")
        if rules.engine == "wave":
            _check_wave(links, rules.belief, rules.gossip, gossip)
        self.links = links
        self.convergence_constant = belief.convergence_constant
        """Below 1: belief propagation has one fixed point, from any start."""
        self._belief, self._gossip = belief, gossip
        self._belief_rules, self._gossip_rules, self._start = rules.belief, rules.gossip, rules.start
        self._size = size
        """m, the number of clients to choose."""
        self._reachable = reachable
        self._engine = rules.engine
        self._belief_draws = EdgeDraws(links, "belief", streams)
        self._gossip_draws = EdgeDraws(links, "gossip", streams)
        self._answer_draws = EdgeDraws(links, "gossip-answer", streams)
        self._contact_draws = streams["gossip.contacts"]
        self._tie_draws = streams["gossip.ties"] if rules.ties == "random" else None
        """Random numbers that decide between equal indices; None: the lower client comes first."""

    def run(self, slot: int, opinions: FloatArray, index_of: Callable[[FloatArray], FloatArray]) -> Process[ConsensusOutcome]:
        """Run the phase of one slot, within a process.

        `opinions` (K,): of the present model. `index_of`: function from beliefs to indices.
        """
        links, clock = self.links, self.links.clock
        start_s = clock.now
        deadline_s = _EVER if self._start.deadline_s is None else start_s + self._start.deadline_s
        links.open_slot(slot, start_s)
        for draws in (self._belief_draws, self._gossip_draws, self._answer_draws):
            draws.open_slot(slot, start_s)

        # 1. Belief propagation: each client learns how its opinion compares with those of all clients.
        fields = self._belief.fields(opinions)
        result = yield from self._exchange_beliefs(fields, deadline_s)
        converged_s = clock.now - start_s if result.converged else _NAN
        beliefs = self._belief.beliefs(opinions, result.messages)
        # 2. Indices: each client computes its own, by which all are ranked. `priority` decides between equal ones.
        index = index_of(beliefs)
        priority = None if self._tie_draws is None else self._tie_draws.uniforms(slot, links.graph.clients)
        ranks = self._gossip.ranks(index, priority)

        # 3. Gossip: clients spread the indices until all know the top m, or the deadline comes. Without gossip, where belief
        # propagation has used up the time, each client knows its own index alone.
        gossip = self._new_gossip(slot, ranks)
        if self._start.start == "deadline":
            gossip.go_past_agreement()
        if clock.now < deadline_s:
            yield from self._run_protocol(gossip, "gossip", deadline_s)
        return ConsensusOutcome(
            members=self._present(self._gossip.believers(gossip.held, ranks)),
            beliefs=beliefs,
            index=index,
            converged_s=converged_s,
            agreed_s=gossip.agreed_s - start_s,
            duration_s=clock.now - start_s,
            exchanges=result.exchanges,
            residual=result.residual,
            disagreement=self._gossip.disagreement(gossip.held),
        )

    def _present(self, members: IntArray) -> IntArray:
        """Return the `members` (n,) that are present; all if none is."""
        if self._reachable is None:
            return members
        present = members[self._reachable()[members]]
        # A slot needs members: without one that is present, it waits for those chosen.
        return present if len(present) else members

    def renew(self) -> None:
        """Draw messages from now on under the new law: a script has replaced a law of the links."""
        for draws in (self._belief_draws, self._gossip_draws, self._answer_draws):
            draws.renew()

    def _exchange_beliefs(self, fields: FloatArray, deadline_s: float) -> Process[BeliefResult]:
        """Run belief propagation from `fields` (K,), at the latest to `deadline_s`; return its result."""
        kind = SynchronousBelief if self._belief_rules.update == "synchronous" else AsynchronousBelief
        protocol = kind(
            links=self.links, draws=self._belief_draws, maths=self._belief, rules=self._belief_rules, fields=fields
        )
        yield from self._run_protocol(protocol, "belief propagation", deadline_s)
        return protocol.result()

    def _new_gossip(self, slot: int, ranks: IntArray) -> GossipProtocol:
        """Return the gossip protocol of `slot`, by the rule of forwarding."""
        shared: dict[str, Any] = {
            "links": self.links,
            "draws": self._gossip_draws,
            "maths": self._gossip,
            "rules": self._gossip_rules,
            "ranks": ranks,
            "size": self._size,
        }
        if self._gossip_rules.forwarding == "flooding":
            return Flooding(**shared)
        clients = self.links.graph.clients

        def contacts(repetition: int) -> FloatArray:
            """Return the uniform numbers (K,) by which clients choose their neighbours in a repetition."""
            # Slot and repetition share one index; a repetition is below 2^24 (`GossipRules`).
            return self._contact_draws.uniforms(slot << _SLOT_SHIFT | repetition, clients)

        return Push(**shared, answers=self._answer_draws, contacts=contacts)

    def _run_protocol(self, protocol: PeerProtocol, name: str, deadline_s: float) -> Process[None]:
        """Run a protocol to its end, at the latest to `deadline_s`: by its closed form if there is one, else by events. `name`:
        for messages.
        """
        clock = self.links.clock
        closed_form = None if self._engine == "events" else protocol.closed_form(deadline_s)
        if closed_form is not None:
            # Priority LAST, because by events, too, a protocol ends after all messages of its instant.
            yield clock.event_at(closed_form.end_s, LAST)
            closed_form.take()
            return
        if self._engine == "wave":
            raise ParameterError("engine", "wave", f"{name} has no closed form in this slot; use 'auto'")
        if deadline_s < _EVER:
            protocol.stop_at(deadline_s)
        protocol.begin()
        yield protocol.over

    def state_dict(self) -> State:
        """Return the state of the links, as it is between the phases of two slots."""
        return {"links": self.links.state_dict()}

    def load_state_dict(self, state: State, slot: int) -> None:
        """Restore the state at the close of `slot`."""
        self.links.load_state_dict(state["links"], slot, self.links.clock.now)
