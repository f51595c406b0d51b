"""The `[flower]` table: a user's own Flower app on simulated time, and the server of such a run."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from netsim.core.protocols import FloatArray
from scenarios.registry.kinds import resolve
from scenarios.schema.errors import UserError
from scenarios.schema.payload import Payload
from scenarios.schema.section import Section, missing, problem
from scenarios.schema.servers.base import Server, check_channels, refuse_oracle, refuse_reward
from scenarios.schema.world import SPEEDS, Compute

if TYPE_CHECKING:
    from scenarios.registry.components import Component
    from scenarios.schema.scenario import Scenario

Seconds = Annotated[float, Field(ge=0)]
MOST_ROUNDS = 10**6
"""Number of rounds of a scenario with an app that sets none: the app itself decides when it ends."""
_NOT_BESIDE = {
    "learner": "the app trains; leave it out",
    "privacy": "the app protects its updates itself, such as with mods; leave it out",
    "work": "the app's replies say how many samples it trained on; leave it out",
    "probe": "no client is asked before a selection; leave it out",
    "channels": "sub-channels belong to policies and schedulers of netsim; leave it out",
    "scheduler": "sub-channels belong to policies and schedulers of netsim; leave it out",
}


class Polls(Section):
    """Waiting times of a real deployment, where nodes and server look for messages now and then."""

    node_s: Seconds = 0.0
    """Time between two questions of an idle node for a message."""
    reply_s: Seconds = 0.0
    """Time between two looks of a node if its app has finished."""
    server_s: Seconds = 0.0
    """Time between two looks of the server for replies, while it waits for them."""


class Flower(Section):
    """A Flower app, unmodified: it trains and aggregates, and each of its messages takes the time that the scenario gives it."""

    names = frozenset({"app"})

    app: str
    """Folder of the app, with its pyproject.toml."""
    run_config: dict[str, Any] = {}
    """Values for keys of the app's own run config ([tool.flwr.app.config]), as `flwr run --run-config` gives them."""
    samples_key: str = "num-examples"
    """Key of a MetricRecord in replies with the number of samples that the message took."""
    epochs_key: str | None = None
    """Key of the run config with the passes over these samples in training. Absent: one pass."""
    evaluate_share: Annotated[float, Field(ge=0)] = 1 / 3
    """Cost of evaluating the model on a sample, as a share of training on it."""
    lost: Literal["silent", "error"] = "silent"
    """silent: of a message that is lost the app hears nothing until its timeout, or until the message expires; error: the network
    replies at once with an Error."""
    polls: Polls = Field(default={})  # type: ignore[assignment]
    """Waiting times of polling; absent: none, everyone learns of everything at once."""
    accuracy_key: str | None = None
    """Metric of the app that is the accuracy of a round; evaluate_fn before replies. Absent: "accuracy", else the first that has
    "acc" in its name."""
    loss_key: str | None = None
    """Metric that is the loss of a round; absent: "loss", else the first that has "loss" in its name."""
    per_round: Annotated[int, Field(ge=1)] | None = None
    """With `[policy]`: number of nodes that the policy selects for a training, which are all that the app's Grid names. Absent,
    without `[policy]`: the Grid names all nodes that are present."""


class FlowerServer(Server):
    """Rounds of a Flower app (`[flower]`): its strategy opens them, and chooses who takes part, where `[policy]` does not."""

    kind: Literal["flower"] = "flower"
    """flower: the ServerApp of `[flower]` sends messages and waits for replies."""

    driven_by_app: ClassVar[bool] = True
    why_no_tier: ClassVar[str] = "leaves its rounds to an app, which knows no edges"
    why_no_probes: ClassVar[str] = "beside [flower] the app alone sends messages; choose another policy"

    def check(self, scenario: "Scenario") -> None:
        """Refuse a scenario without `[flower]`, and the tables that an app leaves nothing to do for."""
        if scenario.flower is None:
            raise missing("flower", scenario)
        for name, reason in _NOT_BESIDE.items():
            if getattr(scenario, name) is not None:
                raise problem((name,), "..", f"beside [flower]: {reason}")
        for name in type(scenario.payload).model_fields:
            if name != "header_bytes" and getattr(scenario.payload, name) != getattr(Payload(), name):
                raise problem(("payload", name), "..", "beside [flower]: the app's messages have their own sizes; leave it out")
        _check_per_round(scenario, scenario.flower)
        _refuse_rounds(scenario)
        check_channels(scenario, False, "clients.count", 1)
        refuse_oracle(scenario)
        refuse_reward(scenario, "beside [flower]: measures rounds that wait for m clients; leave it out")

    def check_policy(self, policy: "Component", scenario: "Scenario") -> None:
        """Refuse a policy that needs the content of updates, or expected latencies that only the app could tell."""
        super().check_policy(policy, scenario)
        policy_class = resolve("policy", policy.kind)
        if policy_class.needs_updates:
            reason = "chooses by the content of updates, which stays within the app; choose another policy"
            raise problem(("policy", "kind"), policy.kind, f"beside [flower]: {reason}")
        # A policy with the argument `truth` is given the expected latencies of the clients.
        if "truth" in inspect.signature(policy_class).parameters and _depends_on_content(scenario):
            reason = "goes by expected latencies, which depend on bytes and samples that only the app knows"
            remedy = "choose another policy, or give delays alone"
            raise problem(("policy", "kind"), policy.kind, f"beside [flower]: {reason}; {remedy}")

    def describe(self, scenario: "Scenario") -> str:
        """Return the clients of a round in a few words."""
        if scenario.policy is None or scenario.flower is None:
            return "as the app's strategy decides"
        return f"{scenario.flower.per_round} at a time for the app's strategy"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return 0: the app may end a round at any time."""
        return 0.0


def _check_per_round(scenario: "Scenario", section: Flower) -> None:
    """Refuse a policy without the number of its clients, and this number without a policy."""
    per_round, clients = section.per_round, scenario.clients.count
    if scenario.policy is None:
        if per_round is not None:
            raise problem(("flower", "per_round"), per_round, "is of a policy of netsim; give [policy], or leave it out")
        return
    if per_round is None:
        raise problem(("flower", "per_round"), None, "must be given beside [policy]: the number of nodes that it selects")
    if per_round > clients:
        raise problem(("flower", "per_round"), per_round, f"must be at most the {clients} clients of clients.count")


def _depends_on_content(scenario: "Scenario") -> bool:
    """Return True if bytes or samples of messages take time."""
    if scenario.network is not None or any(getattr(scenario.compute, name) is not None for name in SPEEDS):
        return True
    return any(
        link.bandwidth_bytes_per_s is not None or link.bandwidth is not None or link.shared is not None
        for link in (scenario.downlink, scenario.uplink)
    )


def _refuse_rounds(scenario: "Scenario") -> None:
    """Refuse change points and outages that are given in rounds: an app begins rounds as it likes, or has none."""
    reason = "beside [flower]: rounds begin as the app goes on; give seconds"
    timed: dict[tuple[str | int, ...], Any] = {(name,): getattr(scenario, name) for name in ("downlink", "compute", "uplink")}
    if scenario.network is not None:
        timed |= {("network", "links", i): link for i, link in enumerate(scenario.network.links)}
    for place, section in timed.items():
        for i, change in enumerate(section.changes):
            if change.at_round is not None:
                raise problem((*place, "changes", i, "at_round"), change.at_round, f"{reason}, with at_s")
        if section.random_changes is not None and section.random_changes.unit == "rounds":
            raise problem((*place, "random_changes", "unit"), "rounds", f'{reason}, with unit = "seconds"')
    for i, outage in enumerate(scenario.outages):
        for key in ("from_round", "to_round", "mean_up_rounds", "mean_down_rounds"):
            value = getattr(outage, key)
            if value is not None:
                raise problem(("outages", i, key), value, reason)


def check_work(compute: Compute) -> bool:
    """Return True if `[compute]` gives a speed, so that samples take time. Raise UserError if it has no delay either."""
    by_samples = any(getattr(compute, name) is not None for name in SPEEDS)
    # An explicit delay of zero states that work takes no time.
    if not (by_samples or "delay" in compute.model_fields_set or compute.changes or compute.random_changes is not None):
        message = "compute: nothing says how long the work of the app takes"
        raise UserError(f"{message}; give compute.samples_per_s, or compute.delay (of 0 s, if it is to take no time)")
    return by_samples


_IMPLIED: dict[str, Any] = {"server": {"kind": "flower"}, "rounds": MOST_ROUNDS}
"""Keys of a scenario with `[flower]` that may be left out, and their values then."""


def fill_implied(value: object) -> Any:
    """Return the tables of a scenario with the server and the number of rounds that `[flower]` implies, where they are absent."""
    if not (isinstance(value, dict) and value.get("flower") is not None):
        return value
    return {**_IMPLIED, **value}


def known_rounds(scenario: "Scenario") -> int | None:
    """Return the largest number of rounds of a scenario; None if only its app knows it."""
    if scenario.flower is not None and scenario.rounds == MOST_ROUNDS:
        return None
    return scenario.rounds


def relax_required(schema: dict[str, Any]) -> None:
    """Change a scenario's JSON `schema` to require the server and the rounds only without `[flower]`."""
    schema["required"] = [name for name in schema["required"] if name not in _IMPLIED]
    schema["anyOf"] = [{"required": ["flower"]}, {"required": [*_IMPLIED]}]


def check_server(scenario: "Scenario") -> None:
    """Refuse `[flower]` beside another server."""
    if scenario.flower is not None and not scenario.server.driven_by_app:
        raise problem(("server", "kind"), scenario.server.kind, "beside [flower]: the app is the server; leave [server] out")
