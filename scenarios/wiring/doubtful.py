"""What a scenario, or a run of it, is warned of (`scenarios.schema.cautions`): settings that are allowed and hardly meant."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np

from netsim.core.protocols import Availability, DelayLaw, Draws, FloatArray, IntArray
from netsim.simulation import BY_ABSENCE, BY_EVENTS, BY_ROUNDS, BY_TIME
from scenarios.registry.kinds import is_own, resolve
from scenarios.schema.cautions import Caution
from scenarios.schema.scenario import Scenario
from scenarios.wiring.changes import never_reached
from scenarios.wiring.population import Population

_CHANGES = 5000
"""How many changes of presence are looked at for the first round; fewer of many clients, so that it takes tenths of a second."""
_LONG_WAIT_S = 86400.0
"""A wait for clients that is warned of: a day."""
_ENOUGH = 10
"""Selections for each client, on average, from which on it says something that a group was never selected."""


class HasLaws(Protocol):
    """A timeline that knows all of its laws."""

    @property
    def laws(self) -> Sequence[DelayLaw]: ...


def before_run(
    scenario: Scenario,
    population: Population,
    delays: Mapping[str, HasLaws],
    worked: Sequence[HasLaws],
    besides_s: Mapping[str, FloatArray | float],
    *,
    stops: bool,
) -> list[Caution]:
    """The warnings that a scenario deserves before it runs.

    `delays`: the laws of an update's phases; `worked`: those of its work's time, where there is one; `besides_s`: what each phase
    takes at least besides, for bytes that are carried or on a sub-channel; `stops`: whether a trace of bandwidth does, and what
    is under way is then lost.
    """
    cautions = [Caution("never-reached", note) for note in never_reached(scenario)]
    cautions += _nothing_to_weigh(scenario)
    cautions += _without_effect(scenario)
    cautions += _unseen_latency(scenario)
    limited = scenario.time_limit_s is not None or scenario.server.limit_s is not None
    # What a script does to laws and to clients, only the run shows.
    if limited and scenario.script is None:
        everyone = np.arange(population.count)
        least = {phase: shortest_s(law, everyone) + besides_s[phase] for phase, law in delays.items()}
        upload_s = least["upload"]
        whole_s = least["download"] + least["compute"] + upload_s
        # A policy of the user's own may ask for fewer steps than are planned.
        if scenario.policy is None or not is_own("policy", scenario.policy.kind):
            whole_s += sum(shortest_s(law, everyone) for law in worked)
        # What a round of fixed length cuts off is sent again, and need not be prepared again.
        needed_s = upload_s if scenario.server.limits == "transmission" else whole_s
        cautions += _deadline(scenario, population, needed_s)
        cautions += _time_limit(scenario, whole_s, stops)
    return cautions


def shortest_s(timeline: HasLaws, entities: IntArray) -> FloatArray:
    """The least duration that any of a timeline's laws allows each of `entities` (n,), in seconds."""
    nothing = np.zeros(len(entities))
    # One after the other: there may be many laws, of many clients.
    return np.asarray(reduce(np.minimum, (law.quantile(nothing, entities) for law in timeline.laws)), np.float64)


def least_s(timeline: Any, entities: IntArray) -> float:
    """The least duration that any of a timeline's laws allows any of `entities`, in seconds."""
    return float(shortest_s(timeline, entities).min())


def lacking_clients(scenario: Scenario, presence: Availability, draws: Draws) -> list[Caution]:
    """Clients that are never there, and a first round that never finds enough at once; `presence` is left as it was.

    How long later rounds will wait depends on how the run goes: it is warned of once it is over.
    """
    if is_own("availability", scenario.availability.kind) or scenario.script is not None:
        return []  # what they do, only the run shows
    before = presence.state_dict()
    presence.advance(0.0, draws)
    never = np.flatnonzero(~presence.on & (presence.next_change_s == np.inf))
    need = min(scenario.server.needed_clients, len(presence.on))
    limit_s = np.inf if scenario.time_limit_s is None else scenario.time_limit_s
    first_s, looked_s = _first_together(presence, draws, need, limit_s)
    presence.load_state_dict(before)
    key = f"availability.kind = {scenario.availability.kind!r}"
    cautions = []
    if never.size:
        text = f"{key}: {never.size} of {len(presence.on)} clients are never present, client {never[0]} first among them"
        cautions.append(Caution("never-there", f"{text}; give them times of presence, or fewer clients"))
    if first_s is None or (first_s and first_s >= limit_s):
        when = "never" if looked_s == np.inf else f"not before {looked_s:.10g} s"
        when = when if first_s is None else f"at {first_s:.10g} s at the earliest"
        after = "" if limit_s == np.inf else f", and time_limit_s = {limit_s!r} ends the run before"
        text = f"{key}: {need} clients, which a round waits for, are present {when}{after}"
        cautions.append(Caution("nobody-comes", f"{text}; no round can begin: give other times of presence, or more time"))
    return cautions


def _first_together(presence: Availability, draws: Draws, need: int, limit_s: float) -> tuple[float | None, float]:
    """When `need` clients are first present at once; None: not before the second, to where it was looked (inf: for ever)."""
    now_s = 0.0
    for _ in range(min(max(10**7 // len(presence.on), 100), _CHANGES)):
        if np.count_nonzero(presence.on) >= need:
            return now_s, now_s
        next_s = float(presence.next_change_s.min())
        if next_s == np.inf:
            return None, np.inf
        now_s = next_s
        if now_s >= limit_s:
            break
        presence.advance(now_s, draws)
    else:
        return None, now_s
    # The run is over by then; who comes next says what time it would take at least.
    come_s = np.sort(np.where(presence.on, 0.0, presence.next_change_s))
    first_s = float(come_s[need - 1])
    return (None, np.inf) if first_s == np.inf else (first_s, first_s)


def _deadline(scenario: Scenario, population: Population, needed_s: FloatArray) -> list[Caution]:
    """A limit that all clients, or all those of a group, must miss."""
    server = scenario.server
    limit_s = server.limit_s
    if limit_s is None:
        return []

    def told(whose: str, of_it: str, least: float) -> Caution:
        shortest = f"the shortest possible {server.limits} of {whose}, {least:.4g} s"
        text = f"server.{server.limit_key} = {limit_s!r}: is below {shortest}"
        return Caution("deadline-too-short", f"{text}; nothing {of_it}can ever be delivered; give more time than that")

    if needed_s.min() > limit_s:
        return [told("any client", "", float(needed_s.min()))]
    slow = {name: float(needed_s[members].min()) for name, members in population.members.items()}
    return [told(f"group {name!r}", "of it ", least) for name, least in slow.items() if least > limit_s]


def _time_limit(scenario: Scenario, whole_s: FloatArray, stops: bool) -> list[Caution]:
    """A run that is over before its first round can be."""
    limit_s = scenario.time_limit_s
    if limit_s is None:
        return []
    round_s = _shortest_round_s(scenario, np.sort(whole_s), stops)
    if limit_s >= round_s:
        return []
    text = f"time_limit_s = {limit_s!r}: is below the shortest possible round, {round_s:.4g} s"
    return [Caution("time-limit-too-short", f"{text}; no round can be completed, and the tables stay empty; give more time")]


def _shortest_round_s(scenario: Scenario, whole_s: FloatArray, stops: bool) -> float:
    """A time before which no round can end, from the least durations of updates, ascending; 0 where none is known."""
    downlink = scenario.downlink
    lossy = downlink.channel.kind != "perfect" or any(change.channel for change in downlink.changes)
    # A round also ends where all of its updates break off.
    batteries = scenario.energy is not None and scenario.energy.battery is not None
    sure = not (lossy or stops or batteries or scenario.outages or scenario.availability.kind != "always")
    selects = scenario.policy is not None and not scenario.server.slotted
    fewest = 1 if selects and _may_select_fewer(scenario.method.kind) else None
    rounds = scenario.slots.rounds if scenario.slots is not None else 1
    shortest_s: float = scenario.server.shortest_round_s(whole_s, sure=sure, fewest=fewest, rounds=rounds)
    return shortest_s


def _may_select_fewer(kind: str) -> bool:
    """Whether a policy may select fewer clients than it is asked for: one of the user's own, or by the answers of clients."""
    return is_own("policy", kind) or bool(resolve("policy", kind).probes)


def _nothing_to_weigh(scenario: Scenario) -> list[Caution]:
    """A policy that weighs privacy where none is ever lost: the term is the same for all clients at all times."""
    privacy, policy = scenario.privacy, scenario.policy
    if policy is None or (privacy is not None and privacy.mechanism != "none"):
        return []
    gamma = policy.parameters().get("gamma")
    if not gamma or "schedule" not in inspect.signature(resolve("policy", policy.kind)).parameters:
        return []
    why = "there is no [privacy]" if privacy is None else 'privacy.mechanism is "none"'
    text = f"policy.gamma = {gamma!r}: weighs privacy, and {why}, so that none is ever lost"
    return [Caution("gamma-without-privacy", f"{text}; describe the mechanism in [privacy], or set gamma = 0")]


def _without_effect(scenario: Scenario) -> list[Caution]:
    """Keys that say what becomes of late clients, where nobody is late, what a round waits for, where it does not wait, or how
    much an update is, where the server does."""
    if scenario.server.own:
        return []
    given, work, learner = scenario.server.parameters(), scenario.work, scenario.learner
    counts = f"has no effect, as server.kind = {scenario.server.kind!r} says how many steps an update has; leave it out"
    closes = " or ".join(name for name in ("deadline_s", "first") if name in given)
    cautions = []
    if given.get("deadline_s") is None and given.get("first") is None:
        for name, value in (("stragglers", "cancel"), ("reselect_busy", True)):
            if given.get(name) == value:
                why = f"has no effect, as a round waits for all its updates; give {closes}, or leave it out"
                cautions.append(Caution("without-effect", f"server.{name} = {value!r}: {why}"))
    if given.get("wait_for_compute") and given["round_s"] is not None:
        why = f"has no effect, as server.round_s = {given['round_s']!r} is the length of a round; leave one of them out"
        cautions.append(Caution("without-effect", f"server.wait_for_compute = True: {why}"))
    if work is not None and scenario.server.gives_steps:
        # Where nobody knows what clients hold, it is by the planned steps that an update is of some size.
        held = learner is not None or scenario.clients.data_sizes is not None
        planned = {"epochs": work.epochs, "steps": work.steps if held else None, "partial_share": work.partial_share or None}
        names = [name for name, amount in planned.items() if amount is not None]
        cautions += [Caution("without-effect", f"work.{name}: {counts}") for name in names]
    if learner is not None and scenario.server.gives_steps:
        sized = {name: getattr(learner, name) for name in ("epochs", "max_steps")}
        set_so = {name: amount for name, amount in sized.items() if amount != type(learner).model_fields[name].default}
        cautions += [Caution("without-effect", f"learner.{name} = {amount!r}: {counts}") for name, amount in set_so.items()]
    return cautions


def _unseen_latency(scenario: Scenario) -> list[Caution]:
    """Warn of detectors on sub-channels of which nothing changes but how long a transmission takes.

    A scheduler observes if an update arrives within the round, and not how long that took.
    """
    channels, scheduler = scenario.channels, scenario.scheduler
    # A script may change anything; where a close cuts transmissions off, a longer one is seen.
    if channels is None or scheduler is None or scenario.script is not None or scenario.server.limit_s is not None:
        return []
    inner = scheduler.parameters().get("scheduler") or scheduler
    if "detector" not in inner.parameters() or scenario.jammers or scenario.outages or channels.states is not None:
        return []
    detector = inner.parameters()["detector"]
    drawn = channels.random_changes
    changes = [f"channels.changes.{i}" for i, change in enumerate(channels.changes) if not change.channel]
    changes += ["channels.random_changes"] if drawn is not None and "channel." not in str(drawn.parameter) else []
    present = len(channels.changes) + (drawn is not None)
    if not changes or len(changes) < present or (detector is not None and detector.kind == "no-detection"):
        return []
    what = "changes only how long a transmission takes, which no detector of scheduler.kind"
    why = "observes: it is told if an update arrived; change channel.success, or close rounds at a time"
    return [Caution("unseen-change", f"{changes[0]}: {what} = {scheduler.kind!r} {why}")]


class Ended(Protocol):
    """What is known of a run that is over."""

    rounds: int
    counts: dict[str, int]
    longest_wait_s: float
    """The longest time between two rounds, or before the first."""
    waited_round: int
    """The round that began after it."""


class Tried(Protocol):
    """The clients of a run that is over: how many attempts each (K,) began, and how many of its updates were delivered."""

    selections: IntArray
    successes: IntArray


class Trained(Protocol):
    """What a learner says of a run that is over."""

    trained_updates: int
    refused_updates: int

    @property
    def unscored(self) -> Unscored: ...


class Unscored(Protocol):
    """Test samples without finite scores at the last evaluation."""

    @property
    def of(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def since_round(self) -> int | None: ...


def not_finite(learner: Trained | None) -> list[Caution]:
    """Return warnings of a model, or of updates, that are not finite."""
    if learner is None:
        return []
    cautions, unscored = [], learner.unscored
    remedy = "lower learner.optimizer.learning_rate, or see what components of your own return"
    if unscored.samples:
        text = (
            f"learner: from round {unscored.since_round} on the model has no finite scores for {unscored.samples} of "
            f"{unscored.of} test samples. Such samples count as wrong in the accuracy; {remedy}"
        )
        cautions.append(Caution("model-not-finite", text))
    if learner.refused_updates:
        text = f"learner: {learner.refused_updates} of {learner.trained_updates} updates were not finite and entered no model"
        cautions.append(Caution("updates-not-finite", f"{text}; {remedy}"))
    return cautions


def after_run(scenario: Scenario, run: Ended, clients: Tried, ended: str) -> list[Caution]:
    """The warnings that a run deserves once it is over, for the reason `ended`."""
    if ended not in (BY_ROUNDS, BY_TIME, BY_ABSENCE, BY_EVENTS):
        return []  # it may go on
    if not run.rounds:
        why = f"time_limit_s = {scenario.time_limit_s!r} came first" if ended == BY_TIME else f"it ended by: {ended}"
        return [Caution("no-round", f"rounds: none was completed, {why}; the tables are empty")]
    return [*_waited(scenario, run), *_undelivered(scenario, run, clients)]


def _waited(scenario: Scenario, run: Ended) -> list[Caution]:
    """Days without a round, where clients come and go."""
    comes_and_goes = scenario.availability.kind != "always" or scenario.energy is not None
    if not comes_and_goes or run.longest_wait_s < _LONG_WAIT_S:
        return []
    days = f"{run.longest_wait_s / 86400.0:.3g} days ({run.longest_wait_s:.10g} s)"
    key = f"availability.kind = {scenario.availability.kind!r}"
    text = f"{key}: round {run.waited_round} waited {days} until enough clients were there"
    return [Caution("long-wait", f"{text}; give other times of presence, or let rounds do with fewer clients")]


def _undelivered(scenario: Scenario, run: Ended, clients: Tried) -> list[Caution]:
    """Clients, or groups of them, of whom nothing was delivered."""
    successes = np.array(clients.successes)
    if not successes.any():
        return [Caution("never-delivered", "clients: no update of any client was ever delivered")]
    cautions = []
    for i, (name, members) in enumerate(Population(scenario.clients).members.items()):
        if successes[members].any():
            continue
        tried = bool(np.array(clients.selections)[members].any())
        # A short run, such as a trial, leaves somebody out whatever the policy.
        if tried or run.counts["selected"] >= _ENOUGH * scenario.clients.count:
            why = "each was lost, late, aborted or still under way at the end" if tried else "it was never selected"
            text = f'clients.groups.{i}.name = "{name}": no update of this group was ever delivered; {why}'
            cautions.append(Caution("never-delivered", text))
    return cautions
