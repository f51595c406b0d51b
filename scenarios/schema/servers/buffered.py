"""The `[server]` table of the buffered server."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netsim.core.protocols import FloatArray
from scenarios.registry.kinds import resolve
from scenarios.schema.section import problem
from scenarios.schema.servers.base import Server, check_channels, refuse_oracle, refuse_reward, require_policy

if TYPE_CHECKING:
    from scenarios.registry.components import Component
    from scenarios.schema.scenario import Scenario

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class Buffered(Server):
    """Keeps `concurrency` clients at work; every `buffer` deliveries make a new model: a round (or see `pacing`).

    When an update ends, the policy chooses one more client. A client is not chosen in the round in which its last update
    ended. No update is late; it may have started from an old version (`learner.staleness`). To PAUSE, m is `buffer` in eq. 8,
    so that clients are chosen in proportion to their data, and 1 in eq. 13 and 14.
    """

    kind: Literal["buffered"] = "buffered"
    """buffered: asynchronous, a new model after so many deliveries (FedBuff), or after each (FedAsync)."""
    concurrency: Count
    """Clients at work at once, as long as there are so many to choose from."""
    buffer: Count = 1
    """Deliveries that make a new model."""
    pacing: Literal["deliveries", "latency"] = "deliveries"
    """Event that makes a new model. deliveries: every `buffer` of them. latency (Pisces): the time since the last model is the
    greatest last latency of the clients at work now, divided by `concurrency`; all that has arrived enters, and `buffer` has no
    part in it."""
    unknown_latency_s: Positive | None = None
    """With pacing = "latency": what counts as the latency of a client that has delivered nothing yet. Absent: 180 s, as in the
    code of Pisces' authors."""
    check_every_s: Positive | None = None
    """With pacing = "latency": the server looks at multiples of it only whether a new model is due (in that code every 5 s).
    Absent: at any time."""
    staleness_bound: Count | None = None
    """b (Port): no model is made while an update is at work that the next one would find more than so many rounds old; then it is
    made of all that has arrived. Absent: there is no bound."""
    urgent_notices: bool = False
    """In place of waiting: as a model is made, a client with an update that has grown too old is told so, and sends the update at
    the end of its present epoch. Needs staleness_bound, and samples that clients hold."""
    notice_s: NonNegative = 0.0
    """Seconds that such a notice takes to arrive; none is lost."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    why_no_tier: ClassVar[str] = ""
    why_no_probes: ClassVar[str] = (
        "the buffered server selects one client at a time while others are at work; set server.kind = 'synchronous' or "
        "'semi-synchronous'"
    )

    @property
    def notifies(self) -> bool:
        return self.urgent_notices

    def check(self, scenario: "Scenario") -> None:
        """Refuse tables and keys that do not go with this server, which needs a policy and enough clients and sub-channels."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.concurrency", self.concurrency)
        require_policy(scenario, "concurrency", self.concurrency)
        refuse_reward(scenario, "measures a selection of m clients; leave it out")
        if scenario.learner is not None and scenario.learner.buffer > 1:
            buffer = scenario.learner.buffer
            raise problem(("learner", "buffer"), buffer, "leave it out: server.buffer says what makes a new model")

    def check_members(self, scenario: "Scenario", place: tuple[str | int, ...], *, of_edges: bool) -> None:
        """Refuse urgent notices that shorten no training, and keys of the other way of pacing."""
        if self.urgent_notices and of_edges:
            reason = "shortens the training of clients, and the members are edges; leave it out"
            raise problem((*place, "urgent_notices"), True, reason)
        self._check_notices(scenario, place)
        self._check_pacing(place)

    def _check_notices(self, scenario: "Scenario", place: tuple[str | int, ...]) -> None:
        """Refuse urgent notices without a bound on staleness or without epochs to end at, and a delay of notices without them."""
        if not self.urgent_notices:
            if self.notice_s:
                raise problem((*place, "notice_s"), self.notice_s, "is of urgent notices; set urgent_notices = true")
            return
        if self.staleness_bound is None:
            raise problem((*place, "urgent_notices"), True, "needs staleness_bound, which says what is too old")
        has_epochs = scenario.learner is not None or (scenario.work is not None and scenario.clients.data_sizes is not None)
        if not has_epochs:
            reason = "nothing says what an epoch is; give [learner], or [work] and clients.data_sizes"
            raise problem((*place, "urgent_notices"), True, reason)

    def _check_pacing(self, place: tuple[str | int, ...]) -> None:
        """Refuse keys of the other way of pacing."""
        if self.pacing == "deliveries":
            for key in ("unknown_latency_s", "check_every_s"):
                value = getattr(self, key)
                if value is not None:
                    raise problem((*place, key), value, 'is of pacing by latency; set pacing = "latency", or leave it out')
            return
        if self.buffer > 1:
            reason = 'leave it out: with pacing = "latency" a model is made when it is time, of all that has arrived'
            raise problem((*place, "buffer"), self.buffer, reason)

    def check_policy(self, policy: "Component", scenario: "Scenario") -> None:
        """Refuse a policy that selects all clients if fewer may be at work; with pacing by latency, one that needs `buffer`."""
        super().check_policy(policy, scenario)
        policy_class, clients = resolve("policy", policy.kind), scenario.clients.count
        if policy_class.selects_everyone and self.concurrency < clients:
            reason = f"selects everyone at once; set server.concurrency = {clients}, or another policy"
            raise problem(("policy", "kind"), policy.kind, reason)
        if self.pacing == "latency" and policy_class.counts_updates:
            reason = (
                f"policy.kind = {policy.kind!r} goes by how many updates make a model; set server.buffer, and leave pacing out"
            )
            raise problem(("server", "pacing"), self.pacing, reason)

    def describe(self, scenario: "Scenario") -> str:
        """Return the number of clients at work and the event that makes a new model, in words."""
        event = "paced by latency" if self.pacing == "latency" else f"of every {self.buffer} deliveries"
        return f"{self.concurrency} at work, a new model {event}"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return the earliest time at which `buffer` clients can have delivered, seconds."""
        # A client delivers at most once in a round, so a round needs `buffer` different clients.
        return float(whole_s[min(self.buffer, len(whole_s)) - 1])
