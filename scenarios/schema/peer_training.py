"""The `[server]` table of a run without a server: peers that train and send each other models."""

from typing import TYPE_CHECKING, ClassVar, Literal

from netsim.core.protocols import FloatArray
from scenarios.registry.components import component_of
from scenarios.schema.section import missing, problem
from scenarios.schema.server import Server, refuse_oracle, refuse_policy, refuse_reward

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario

_NO_SERVER = "there is no server: peers send each other models over the links of [peers]; leave it out"


class PeerTraining(Server):
    """No server: peers train, send models to their neighbours over the links of `[peers]`, and combine them.

    A round closes once every peer present has finished its own (or, for protocols without a barrier, once peers have finished as
    many on average). Peers that are ahead go on.
    """

    kind: Literal["peers"] = "peers"
    """peers: training without a server, by a protocol between neighbours."""
    protocol: component_of("protocol")  # type: ignore[valid-type]
    """When a peer trains, to which neighbours it sends, what it waits for, and how it combines."""
    mixing: component_of("mixing") = {"kind": "metropolis"}  # type: ignore[valid-type]
    """Weights by which a peer combines its model with those of its neighbours."""
    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "server"
    sends_between_clients: ClassVar[bool] = True
    sends_updates: ClassVar[bool] = False
    why_no_probes: ClassVar[str] = "peers select nobody; leave it out"

    def check(self, scenario: "Scenario") -> None:
        """It has links between clients, and none to a server."""
        if scenario.peers is None:
            raise missing("peers", scenario)
        refuse_oracle(scenario)
        refuse_policy(scenario)
        refuse_reward(scenario, "measures a selection, and here every peer takes part; leave it out")
        for name in ("scheduler", "channels", "energy"):
            if getattr(scenario, name) is not None:
                why = "the power of messages between peers is not counted yet; leave it out" if name == "energy" else _NO_SERVER
                raise problem((name,), "..", why)
        for name in ("downlink", "uplink"):
            section = getattr(scenario, name)
            if section != type(section)():
                raise problem((name,), "..", _NO_SERVER)
        if scenario.payload.down_bytes is not None:
            raise problem(("payload", "down_bytes"), "..", "peers send models as payload.up_bytes says; leave it out")
        for name in ("compression", "down_compression"):
            kind = getattr(scenario.payload, name).kind
            if kind != "none":
                raise problem(("payload", name, "kind"), kind, "peers send whole models; leave it out")
        if scenario.privacy is not None and scenario.privacy.mechanism != "none":
            why = "a release is an update to a server, and peers send whole models; leave [privacy] out"
            raise problem(("privacy", "mechanism"), scenario.privacy.mechanism, why)
        if scenario.learner is not None:
            raise problem(("learner",), "..", "peers train no models yet: this is a study of times and messages; leave it out")

    def describe(self, scenario: "Scenario") -> str:
        """Name the protocol."""
        return f"every peer, by {self.protocol.kind}"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Not known: peers may be away, and those that are ahead count."""
        return 0.0

