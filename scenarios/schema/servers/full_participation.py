"""The `[server]` tables of servers that select no clients: all take part, each at its own pace (SAFA and FedCompass)."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netsim.core.protocols import FloatArray
from scenarios.schema.section import problem
from scenarios.schema.servers.base import Server, check_channels, refuse_aggregation, refuse_oracle, refuse_policy, refuse_reward
from scenarios.schema.world import SPEEDS

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]

_REPLACE_MODEL = ("size", "equal", "contribution", "median", "trimmed-mean", "krum", "port", "refl")
"""Aggregations that replace the model by an update that arrives alone."""


class Safa(Server):
    """All clients train all the time; of the updates that arrive in a round so many are picked for its model (SAFA).

    A round begins with a distribution by version. A client that has delivered is sent the new model. A client at work on a model
    more than `lag_tolerance` rounds old is forced to take it, and its update ends as aborted. The others go on. The model is the
    mean of a cache that holds the last update of every client, weighted by their samples. An update that arrived and was not
    picked enters it for the next round. Updates of clients that were not picked in the last round have priority.
    """

    closes_by_deadline: ClassVar[bool] = True
    kind: Literal["safa"] = "safa"
    """safa: semi-asynchronous, every client at work, a share of what arrives picked, a cache of all."""
    per_round: Count
    """Updates picked a round: the share C of K clients."""
    lag_tolerance: Whole = 5
    """Rounds that a model may be behind for its client to go on with it."""
    deadline_s: Positive | None = None
    """Close a round this long after its start; what arrives later counts for a later round. Absent: no deadline."""
    selection: Literal["first-come", "after-all"] = "first-come"
    """first-come: a round closes once so many updates are there that the picks are settled, and the others go on. after-all: it
    waits for everyone, or the deadline, and picks then, as the authors' simulator does; its length up to the last of the picked
    is the column picked_s; an update that began in an earlier round is not picked."""
    order: Literal["arrival", "speed"] = "arrival"
    """With after-all, the order of picking: by arrival, or by the speed in `[compute]`, the fastest first."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "server"
    why_no_probes: ClassVar[str] = "the server of SAFA selects nobody; leave it out"
    why_no_tier: ClassVar[str] = ""

    @property
    def caches(self) -> bool:
        return True

    @property
    def limit_s(self) -> float | None:
        """None: updates that miss a close count for a later round."""
        return None

    def check(self, scenario: "Scenario") -> None:
        """Refuse an oracle, a policy and a reward, which have no meaning where everyone takes part, and wrong sub-channels.

        Refuse also more picked clients (`per_round`) than there are.
        """
        refuse_oracle(scenario)
        refuse_policy(scenario)
        refuse_reward(scenario, "measures a selection, and here everyone takes part; leave it out")
        count = scenario.clients.count
        check_channels(scenario, self.contention, "clients.count", count)
        if self.per_round > count:
            raise problem(("server", "per_round"), self.per_round, f"must be at most the {count} clients of clients.count")

    def check_members(self, scenario: "Scenario", place: tuple[str | int, ...], *, of_edges: bool) -> None:
        """Refuse an order by speed that is not known, and an aggregation of clients' updates beside the cache."""
        if self.order == "speed":
            key = (*place, "order")
            if self.selection != "after-all":
                raise problem(key, "speed", "goes with selection = 'after-all'; otherwise who comes first is picked")
            if of_edges:
                raise problem(key, "speed", "edges have no speed of their own; leave it out")
            if not any(getattr(scenario.compute, name) is not None for name in SPEEDS):
                reason = f"nothing says how fast clients train; give one of {', '.join(SPEEDS)} in [compute]"
                raise problem(key, "speed", reason)
        if not of_edges:
            refuse_aggregation(scenario, "the cache is averaged by the clients' samples, whatever their age")

    def describe(self, scenario: "Scenario") -> str:
        """Describe the participation: all clients, and the number picked."""
        return f"all at work, {self.per_round} picked a round"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return 0: updates begun earlier may arrive at once."""
        return 0.0


class Compass(Server):
    """Every client is at work with as many steps as make it arrive together with others (FedCompass, Li et al. 2024).

    The server measures each client's seconds per step, transfers included. Clients whose steps can be chosen so that they come
    together form a group; once all of it have arrived, or at its latest time, their updates make a model: a round. A client's
    first update has `max_steps` and is applied alone. An update later than its group enters the next model.
    """

    kind: Literal["compass"] = "compass"
    """compass: steps by speed, so that clients arrive in groups (FedCompass)."""
    min_steps: Count = 20
    """Q_min, the fewest local steps of an update."""
    max_steps: Count = 100
    """Q_max, the most."""
    slack: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    """lambda: a group waits for so many times the time that its first member is expected to take."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    gives_steps: ClassVar[bool] = True
    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "server"
    why_no_probes: ClassVar[str] = "the server of FedCompass selects nobody; leave it out"
    why_no_tier: ClassVar[str] = ""
    why_not_of_edges: ClassVar[str] = "assigns local steps to its members, and edges make rounds"

    def check(self, scenario: "Scenario") -> None:
        """Refuse a policy."""
        refuse_oracle(scenario)
        refuse_policy(scenario)
        refuse_reward(scenario, "measures a selection, and here everyone takes part; leave it out")
        check_channels(scenario, self.contention, "clients.count", scenario.clients.count)

    def check_members(self, scenario: "Scenario", place: tuple[str | int, ...], *, of_edges: bool) -> None:
        """Refuse `[compute]` without a speed, and an aggregation that replaces the model by one client's update."""
        if not any(getattr(scenario.compute, name) is not None for name in SPEEDS):
            reason = f"gives clients steps by their speed; give one of {', '.join(SPEEDS)} in [compute]"
            raise problem((*place, "kind"), "compass", reason)
        learner = scenario.learner
        if learner is None:
            return
        if learner.aggregation.kind in _REPLACE_MODEL:
            reason = "would replace the model by a client's first update, which is applied alone; set kind = 'fixed-share'"
            raise problem(("learner", "aggregation", "kind"), learner.aggregation.kind, reason)
        if learner.aggregation.kind == "mixing" and learner.aggregation.parameters()["alpha"] == 1.0:
            reason = "would replace the model by a client's first update, which is applied alone; must be below 1"
            raise problem(("learner", "aggregation", "alpha"), 1.0, reason)
        if learner.buffer > 1:
            raise problem(("learner", "buffer"), learner.buffer, "leave it out: every close makes a new model")

    def describe(self, scenario: "Scenario") -> str:
        """Describe the participation: all clients, and their numbers of steps."""
        return f"all at work, {self.min_steps} to {self.max_steps} steps"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return 0: updates begun earlier may arrive at once."""
        return 0.0
