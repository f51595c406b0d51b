"""The `[server]` table of a run without a server: peers that train and send each other models."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from netsim.core.protocols import FloatArray
from scenarios.registry.components import component_of
from scenarios.schema.section import missing, problem
from scenarios.schema.servers.base import Server, refuse_aggregation, refuse_oracle, refuse_policy, refuse_reward

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario

_NO_SERVER = "there is no server: peers send each other models over the links of [peers]; leave it out"

_KEPT = "a peer keeps its model, and nothing beside it yet; leave it out"
_REFUSED_OPTIONS = {
    "keep": "there is no server's model; leave it out",
    "contribution_samples": "no aggregation of peers goes by contributions; leave it out",
    "client_losses": "losses of a training are reported to a server; leave it out",
    "reported_losses": "losses of a training are reported to a server; leave it out",
    "reported_rms": "losses of a training are reported to a server; leave it out",
    "local_test_samples": "no peer has a test set of its own; leave it out",
    "optimizer_state": _KEPT,
    "batch_statistics": _KEPT,
}
"""Keys of `[learner]` that peers refuse, each with the reason."""


class PeerTraining(Server):
    """No server: peers train, send models to their neighbours over the links of `[peers]`, and combine them.

    A round closes once every peer present has finished its own (or, for protocols without a barrier, once peers have finished as
    many on average). Peers that are ahead go on.
    """

    kind: Literal["peers"] = "peers"
    """peers: training without a server, by a protocol between neighbours."""
    protocol: component_of("protocol")  # type: ignore[valid-type]
    """Protocol of the peers: times of training, receivers of models, waits, and combination."""
    mixing: component_of("mixing") | None = None  # type: ignore[valid-type]
    """Weights by which a peer combines its model with those of its neighbours. Absent: metropolis, if the protocol uses any."""
    tested_peers: int | None = Field(default=None, ge=1)
    """Peers whose own models are tested, drawn once: their mean, worst and best accuracy is recorded beside that of the mean
    model. Absent: all. With `[learner]`."""
    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "server"
    sends_between_clients: ClassVar[bool] = True
    sends_updates: ClassVar[bool] = False
    trains_peers: ClassVar[bool] = True
    why_no_tier: ClassVar[str] = "trains without a server"
    why_no_probes: ClassVar[str] = "peers select nobody; leave it out"

    def check(self, scenario: "Scenario") -> None:
        """Refuse tables about a server or its links, a scenario without `[peers]`, and budgets of privacy that end."""
        if scenario.peers is None:
            raise missing("peers", scenario)
        refuse_oracle(scenario)
        refuse_policy(scenario)
        refuse_reward(scenario, "measures a selection, and here every peer takes part; leave it out")
        no_energy = "the power of messages between peers is not counted yet; leave it out"
        for name, reason in {"scheduler": _NO_SERVER, "channels": _NO_SERVER, "energy": no_energy}.items():
            if getattr(scenario, name) is not None:
                raise problem((name,), "..", reason)
        for name in ("downlink", "uplink"):
            section = getattr(scenario, name)
            if section != type(section)():
                raise problem((name,), "..", _NO_SERVER)
        if scenario.payload.down_bytes is not None:
            raise problem(("payload", "down_bytes"), "..", "peers send models as payload.up_bytes says; leave it out")
        kind = scenario.payload.down_compression.kind
        if kind != "none":
            raise problem(("payload", "down_compression", "kind"), kind, "peers send as payload.compression says; leave it out")
        if scenario.privacy is not None and scenario.privacy.schedule.kind == "explicit":
            reason = "a peer whose budget is spent could not train on, and others would wait for it"
            remedy = "use a schedule that never ends, such as geometric"
            raise problem(("privacy", "schedule", "kind"), "explicit", f"{reason}; {remedy}")
        self._check_learner(scenario)

    def _check_learner(self, scenario: "Scenario") -> None:
        """Refuse options of `[learner]` that have no meaning without a server."""
        learner, tested = scenario.learner, self.tested_peers
        if learner is None:
            if tested is not None:
                raise problem(("server", "tested_peers"), tested, "nothing is trained; add a [learner], or leave it out")
            return
        if tested is not None and tested > scenario.clients.count:
            allowed = f"must be at most the {scenario.clients.count} clients of clients.count"
            raise problem(("server", "tested_peers"), tested, allowed)
        refuse_aggregation(scenario, "there is no server, and server.mixing says how models are combined")
        optimizer = learner.server_optimizer
        if optimizer.kind != "sgd" or optimizer != type(optimizer)():
            raise problem(("learner", "server_optimizer", "kind"), optimizer.kind, "there is no server; leave it out")
        for name, reason in _REFUSED_OPTIONS.items():
            value = getattr(learner, name)
            if value != type(learner).model_fields[name].default:
                raise problem(("learner", name), value, reason)

    def describe(self, scenario: "Scenario") -> str:
        """Name the protocol."""
        return f"every peer, by {self.protocol.kind}"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return 0, the only sure lower bound: absent peers are not awaited, and work that peers did ahead counts."""
        return 0.0

