"""The `[probe]` table: questions to clients, for their loss or other facts, before a policy selects."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from scenarios.registry.components import Component
from scenarios.registry.kinds import is_own, resolve
from scenarios.schema.section import Section, problem

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario
    from scenarios.schema.servers.base import Server

Positive = Annotated[float, Field(gt=0)]
_TIMED_KEYS = ("deadline_s", "forward_share", "answer_bytes", "reuse_model")
"""Keys that have no meaning for probes that take no time."""


class Probe(Section):
    """Probes: clients are asked for their loss, for a policy that asks before it selects (`probes = True`).

    A probe takes the download of the model, its evaluation on samples of the client, and the upload of a small answer, over the
    same links as updates; it may be lost. An answer is the mean loss on the client's samples, which is NaN without a learner.
    Other policies send a request in place of the model, and get an answer of the same size (`question = "request"`); or have
    clients make an update that is thrown away (`question = "profile"`), to which `deadline_s` alone applies.
    Adaptive TiFL has clients test the model on `learner.local_test_samples` of their own (`tests_where`).
    """

    timed: bool = True
    """false: the answers are known at once and nothing is sent, the free oracle of some papers. Edges (`[edges]`) ask in this
    way only."""
    deadline_s: Positive | None = None
    """An answer that comes later than this after the models were sent is late, and its client stops; absent: the server waits
    until every probe has ended."""
    samples: Annotated[int, Field(ge=1)] | None = None
    """A client evaluates the model on so many of its samples, drawn again for every probe; absent: on all of them."""
    forward_share: Annotated[float, Field(ge=0, le=1)] = 1 / 3
    """Time of evaluating a sample, as a share of the time of training on it."""
    answer_bytes: Annotated[int, Field(ge=1)] = 8
    """Size of an answer; `payload.header_bytes` comes on top."""
    reuse_model: bool = True
    """A client that answered and is then selected has the model, and is not sent it again; false: it is."""

    @model_validator(mode="after")
    def _check_untimed(self) -> Self:
        """Refuse keys about the course of a probe where probes take no time."""
        if self.timed:
            return self
        for name in _TIMED_KEYS:
            # A key with its default is accepted, because a saved scenario has all defaults filled in.
            if getattr(self, name) != type(self).model_fields[name].default:
                raise problem((name,), getattr(self, name), "leave it out: with timed = false nothing is sent")
        return self


def policy_probes(scenario: "Scenario") -> bool:
    """Return True if the policy probes clients (asks them for their loss) before it selects, under the keys it is given."""
    # A policy that learns from opinions chooses no clients to probe: all clients test the model after every slot.
    return scenario.policy is not None and not scenario.server.slotted and asks_clients(scenario.policy)


def asks_clients(section: Component) -> bool:
    """Return True if the policy of `section` asks clients before it selects, under the keys it is given."""
    policy, parameters = resolve("policy", section.kind), section.parameters()
    return bool(policy.probes) and all(parameters.get(name) in values for name, values in policy.probes_where.items())


def policy_tests(section: Component) -> bool:
    """Return True if the policy may have clients test the model on their own data, under the keys it is given."""
    policy, parameters = resolve("policy", section.kind), section.parameters()
    return bool(policy.tests_where) and all(parameters.get(name) in values for name, values in policy.tests_where.items())


def question_of(section: Component) -> str:
    """Return the question of the policy's probes: "loss", "request" or "profile"."""
    return str(resolve("policy", section.kind).question)


def check_probes(scenario: "Scenario") -> None:
    """Raise a pydantic refusal where a policy that asks clients, its server and `[probe]` do not go together."""
    policy, server = scenario.policy, scenario.server
    if policy is not None and server.slotted and is_own("policy", policy.kind) and resolve("policy", policy.kind).probes:
        reason = "asks clients for their loss before it selects; with slots all clients test the model anyway; set probes = False"
        raise problem(("policy", "kind"), policy.kind, reason)
    # Policies that ask: the path of the tables of a coordinator, its policy and its server.
    asking: list[tuple[tuple[str | int, ...], Component, Server]] = []
    if scenario.edges is not None:
        asking = [(("edges", "tiers", i), tier.policy, tier.server) for i, tier in scenario.edges.asking_tiers()]
        why_none = "no policy of an edge of clients asks before it selects"
    elif policy is not None:
        asking = [((), policy, server)] if policy_probes(scenario) else []
        why_none = f"policy.kind = {policy.kind!r} does not ask for losses"
    else:
        why_none = "there is no policy"
    if not asking and scenario.probe is not None:
        raise problem(("probe",), "..", f"{why_none} (probes = True of its class); leave it out")
    for place, section, coordinator in asking:
        _check_asking(scenario, place, section, coordinator)


def _check_asking(scenario: "Scenario", place: tuple[str | int, ...], policy: Component, server: "Server") -> None:
    """Raise a pydantic refusal where `policy`, which asks clients, does not go with `server`, both at `place`, or `[probe]`."""
    probe = scenario.probe or Probe()
    if not server.probes:
        reason = f"asks clients for their loss before it selects: {server.why_no_probes}"
        raise problem((*place, "policy", "kind"), policy.kind, reason)
    if probe.timed and scenario.channels is not None:
        reason = "a probe has no sub-channel, as these are assigned to those selected; set it to false, or leave [channels] out"
        raise problem(("probe", "timed"), True, reason)
    if probe.timed and scenario.edges is not None:
        reason = "a run may be saved while an edge waits for answers, which a checkpoint does not hold; set it to false"
        raise problem(("probe", "timed"), True, reason)
    if policy_tests(policy) and scenario.edges is not None:
        reason = "has clients test the model on test data of their own, which an edge does not ask for; choose another policy"
        raise problem((*place, "policy", "kind"), policy.kind, reason)
    if probe.timed is False and question_of(policy) == "profile":
        raise problem(("probe", "timed"), False, f"policy.kind = {policy.kind!r} learns how long updates take from its probes")
    # A policy that selects nobody for want of answers leaves a round that only a limit of time ends.
    longest_s = server.longest_probe_s
    if longest_s is None and server.limit_s is None and resolve("policy", policy.kind).may_select_nobody:
        reason = f"policy.kind = {policy.kind!r} may find nobody, and the round would never end; set it"
        raise problem((*place, "server", server.limit_key), None, reason)
    if probe.timed and longest_s is not None and (probe.deadline_s is None or probe.deadline_s >= longest_s):
        reason = f"must be given, and be less than server.round_s = {longest_s}: rounds of fixed length do not wait for answers"
        raise problem(("probe", "deadline_s"), probe.deadline_s, reason)
