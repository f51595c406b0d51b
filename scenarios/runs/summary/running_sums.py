"""Summary of a run: running sums over its records, and facts of its world."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.detections.measure import detection_totals
from models.theory.ages import expected_age
from netsim.clients.power.energy import COLUMNS
from netsim.clients.update import OUTCOMES
from netsim.core.protocols import Notes, State
from netsim.core.rows import FORMAT, BeliefRow, DetectionRow, EvaluationRow, JamRow, MessageRow, ProbeRow, RoundRow, ScriptRow
from netsim.network.access import AssignedAccess
from netsim.records.sinks import Recorder
from netsim.servers.rounds.facts import facts_of
from scenarios.registry.components import Component
from scenarios.runs.summary.books import SUMMED, OpenTables, audit
from scenarios.runs.summary.energy import energy_accounts, energy_notes
from scenarios.runs.summary.machine import Effort
from scenarios.schema.jamming import target_of
from scenarios.schema.protection import also_released, guarantee_in_words
from scenarios.schema.scenario import Scenario
from scenarios.wiring.cautions import after_run
from scenarios.wiring.cautions.outlook import Outcome
from scenarios.wiring.clients.population import Population
from scenarios.wiring.learning.accounting import accounts, accounts_in_words
from scenarios.wiring.theory.opinion_bounds import bound_notes
from scenarios.wiring.theory.pause_bound import pause_notes
from scenarios.wiring.world import World
from scenarios.workers.versions import versions

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner

_TOTALS = ("selected", *OUTCOMES, "in_flight", "bytes_down", "bytes_up")
_PROBE_TOTALS = ("probes", "probes_answered", "probe_bytes_down", "probe_bytes_up")
"""Further summed columns, for policies with probes."""


@dataclass
class Totals:
    """Sums over the records of a run, so that its summary needs no table in memory."""

    rounds: int = 0
    round_s: float = 0.0
    """Sum of the lengths of rounds, seconds."""
    accuracy: float = math.nan
    """Accuracy of the last evaluation, not a sum, as `loss`; NaN before the first."""
    loss: float = math.nan
    regret: float = math.nan
    """Sum of the genie's reward less the policy's over rounds with a reward; NaN: there was none."""
    sum_age: int = 0
    aoi_regret: float = 0.0
    """Sum of the ages less those under the oracle."""
    age_variance: float = 0.0
    starts_s: list[float] = field(default_factory=list)
    """Change points, in seconds, that no round has reached yet; ascending."""
    first_rounds: list[int] = field(default_factory=list)
    """First round of each condition that change points have started, in order."""
    detections: list[DetectionRow] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0))
    rounds_j: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0.0))
    """Energy of all rounds by column, joules, if it is counted."""
    ended_s: float = 0.0
    """Time at which the last round closed, seconds."""
    longest_wait_s: float = 0.0
    """The longest time between two rounds, or before the first."""
    waited_round: int = 0
    """Number of the round that began after the longest wait."""

    def add(self, row: RoundRow, names: Sequence[str], counts: Iterable[int]) -> None:
        """Add the record of a round. `names` (n,): its columns in `SUMMED` that the run has. `counts` (n,): their values.
        """
        # An unknown value of a row is None (a column that the run lacks) or NaN.
        self.rounds += 1
        if row.idle_j is not None:
            for name in self.rounds_j:
                self.rounds_j[name] += getattr(row, name)
        start_s, end_s = row.start_s, row.end_s
        self.round_s += end_s - start_s
        if start_s - self.ended_s > self.longest_wait_s:
            self.longest_wait_s, self.waited_round = start_s - self.ended_s, row.round
        self.ended_s = end_s
        if not math.isnan(row.accuracy):
            self.accuracy, self.loss = row.accuracy, row.loss
        if not math.isnan(row.reward):
            self.regret = (0.0 if math.isnan(self.regret) else self.regret) + row.genie_reward - row.reward
        if row.sum_age is not None:
            self.sum_age += row.sum_age
            self.aoi_regret += row.sum_age - (row.oracle_sum_age or 0.0)
            self.age_variance += row.age_variance or 0.0
        while self.starts_s and (start_s >= self.starts_s[0] or end_s > self.starts_s[0]):
            self.starts_s.pop(0)
            self.first_rounds.append(row.round)
        sums = self.counts
        for name, count in zip(names, counts, strict=True):
            if count:
                sums[name] += count

    def state_dict(self) -> State:
        """Return all sums, for a checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def load_state_dict(self, state: State) -> None:
        """Restore all sums from a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)
        self.detections = [DetectionRow(*row) for row in self.detections]


class Summing:
    """Recorder that adds records to `totals` and passes them on to `inner`."""

    def __init__(self, inner: Recorder, totals: Totals) -> None:
        self._inner = inner
        self.totals = totals
        self.last: RoundRow | None = None
        """Record of the last round; None before the first."""
        self._summed: Sequence[str] = ()
        """Columns of rounds that the run has and that add up."""
        # Records that add nothing to the sums go to the inner recorder without a call between.
        self.probes_with = inner.probes_with
        self.communication = inner.communication
        self.edge, self.edge_round = inner.edge, inner.edge_round
        self.attempts = inner.attempts
        self.jam: Callable[[JamRow], None] = inner.jam
        self.message: Callable[[MessageRow], None] = inner.message
        self.belief: Callable[[BeliefRow], None] = inner.belief
        self.probe: Callable[[ProbeRow], None] = inner.probe
        self.script: Callable[[ScriptRow], None] = inner.script
        self.transfer = inner.transfer
        self.link = inner.link
        self.evaluation: Callable[[EvaluationRow], None] = inner.evaluation

    def rounds_with(self, columns: Sequence[str]) -> None:
        """Set the columns of the table of rounds, and pass them on."""
        self._summed = [name for name in SUMMED if name in columns]
        self._summed_values = attrgetter(*self._summed)
        self._inner.rounds_with(columns)

    def round(self, row: RoundRow) -> None:
        """Add a round, and pass it on."""
        self.totals.add(row, self._summed, self._summed_values(row))
        self.last = row
        self._inner.round(row)

    def detection(self, row: DetectionRow) -> None:
        """Keep a detection, and pass it on."""
        self.totals.detections.append(row)
        self._inner.detection(row)

    def close(self) -> None:
        """Close the inner recorder."""
        self._inner.close()


def summary(built: World, scenario: Scenario, totals: Totals, ended: str, effort: Effort, tables: OpenTables) -> Notes:
    """Return the content of `summary.json` of a run.

    `totals`: sums over its rounds. `ended`: reason of its end. `effort`: wall time and machine. `tables`: the complete tables,
    which are checked against the counts.
    """
    server, max_leak = built.server, built.server.clients.accountant.max_leak()
    counts = server.counts()

    def number_or_none(value: float) -> float | None:
        """Return None for NaN, which JSON does not have."""
        return None if math.isnan(value) else value

    outcome = Outcome(
        scenario=scenario,
        run=totals,
        clients=built.server.clients,
        learner=built.trained,
        ended=ended,
        waited_for_lost_s=server.waited_for_lost_s,
        standstill=server.standstill,
    )
    later_cautions = after_run(outcome)
    energy = energy_accounts(built)
    slot_notes = server.notes() | bound_notes(server, scenario) if scenario.server.slotted else None
    mean_round_s = totals.round_s / totals.rounds if totals.rounds else None
    return {
        "format": FORMAT,
        "name": scenario.name,
        "policy": _method_name(scenario.method),
        "seed": scenario.seed,
        "rounds": totals.rounds,
        "ended": ended,
        "simulated_s": built.simulation.clock.now,
        "wall_time_s": effort.wall_s(),
        "final": {
            "accuracy": number_or_none(totals.accuracy),
            "loss": number_or_none(totals.loss),
            "max_leak": max_leak,
            "mean_round_s": mean_round_s,
            "fastest_round_s": number_or_none(_fastest_round_s(built, scenario)),
            "regret": number_or_none(totals.regret),
        },
        "drawn_changes": [{"law": law, "unit": unit, "start": start} for law, unit, start in built.context.drawn_changes],
        "jammed": {jammer.name: target_of(jammer, scenario) for jammer in scenario.jammers},
        "coordinator": facts_of(built.server.clients, slotted=scenario.server.slotted).plain(),
        "pause": pause_notes(built.truth, scenario, totals.rounds),
        "slots": slot_notes,
        "availability": built.server.clients.presence.notes(),
        "aoi": _aoi_notes(built, scenario, totals),
        "sub_channels": _sub_channel_notes(built, scenario, totals),
        "groups": _group_notes(built, scenario),
        "totals": {name: counts[name] for name in (*_TOTALS, *_PROBE_TOTALS) if name in counts},
        "after_last_round": {name: counts[name] - totals.counts[name] for name in _TOTALS if name in totals.counts},
        "books": audit(tables, counts, totals.counts, totals.rounds, max_leak, energy),
        "energy": None if energy is None else energy_notes(built, totals, energy),
        "privacy": _privacy_notes(built, scenario, max_leak),
        "learner": _learner_notes(built.trained),
        "warnings": [caution.plain() for caution in (*built.cautions, *later_cautions)],
        "machine": effort.notes(),
        "versions": versions(),
    }


def _privacy_notes(built: World, scenario: Scenario, max_leak: float) -> Notes:
    """Return what `summary.json` says of privacy. `max_leak`: the largest leak of a client."""
    most_releases = int(np.max(built.server.clients.accountant.participations, initial=0))
    privacy_loss = accounts(scenario, most_releases)
    loss_text = accounts_in_words(scenario, privacy_loss, built.unprotected)
    notes: Notes = {
        "guarantee": guarantee_in_words(scenario, max_leak, built.parameters, built.unprotected, loss_text),
        "parameters": built.parameters,
        "unprotected_parameters": built.unprotected,
        "also_released": also_released(scenario),
    }
    if privacy_loss is not None:
        notes["accounting"] = privacy_loss
    return notes


def _fastest_round_s(built: World, scenario: Scenario) -> float:
    """Return the expected latency of a round of the m clients that are fastest in expectation; NaN if not requested or unknown.
    """
    if not scenario.metrics.fastest_round:
        return math.nan
    fastest_first = np.argsort(built.truth.mean_latency_s(1, 0.0), kind="stable")
    selected = np.sort(fastest_first[: scenario.server.per_round])
    return built.truth.round_s(selected, 1, 0.0)


def _group_notes(built: World, scenario: Scenario) -> Notes | None:
    """Return the participation of each group, or None without groups. `totals` counts the attempts."""
    population = Population(scenario.clients)
    if not population.grouped:
        return None
    begun, delivered = np.array(built.server.clients.selections), np.array(built.server.clients.successes)
    return {
        name: {
            "clients": len(members),
            "selected": int(begun[members].sum()),
            "delivered": int(delivered[members].sum()),
            "clients_delivered": int(np.count_nonzero(delivered[members])),
        }
        for name, members in population.members.items()
    }


def _method_name(method: Component) -> str:
    """Return the name of a method, with that of the scheduler within it if there is one: "aoi-aware glr-cucb"."""
    inner = method.parameters().get("scheduler")
    return method.kind if inner is None else f"{method.kind} {inner.kind}"


def change_points_s(channels: AssignedAccess[Any] | None) -> list[float]:
    """Return the change points of the sub-channels in seconds, ascending; empty if they are in rounds or unknown."""
    law: Any = None if channels is None else channels.spectrum.law
    return list(law.starts) if law is not None and law.unit == "seconds" else []


def _aoi_notes(built: World, scenario: Scenario, totals: Totals) -> Notes | None:
    """Return the entry `aoi` of the summary: ages of information over the run, and `_sub_channel_notes`.

    None unless a scheduler assigns sub-channels with states.
    """
    channel_notes = _sub_channel_notes(built, scenario, totals)
    if channel_notes is None or scenario.server.decider != "scheduler":
        return None
    oracle = scenario.oracle
    # Sum of ages over clients and rounds -> mean.
    mean_age = totals.sum_age / (totals.rounds * scenario.clients.count) if totals.rounds else None
    return {
        "oracle": oracle,
        "regret": None if oracle == "none" else totals.aoi_regret,
        "mean_age_rounds": mean_age,
        "mean_age_at_random_rounds": _age_at_random(scenario.clients.count, totals.rounds, totals.counts["delivered"]),
        "cumulated_age_variance": totals.age_variance,
        **channel_notes,
    }


def _sub_channel_notes(built: World, scenario: Scenario, totals: Totals) -> Notes | None:
    """Return facts of sub-channels: successes, jamming, detected changes, and their true means; None without sub-channels."""
    channels = built.channels
    if channels is None:
        return None
    law: Any = channels.spectrum.law
    table: Notes | None = None
    if scenario.channels is not None and scenario.channels.states is not None and law.segment_means is not None:
        slots = scenario.slots
        table = {"unit": law.unit, "starts": list(law.starts)}
        if law.unit == "rounds":
            last_round = totals.rounds * (1 if slots is None else slots.rounds)
            table["first_rounds"] = [math.ceil(start) for start in law.starts if start <= last_round]
        elif slots is None:
            table["first_rounds"] = totals.first_rounds
        # Else unknown: slots do not record the times of their communication rounds.
        table["means"] = law.segment_means.tolist()
    return {
        "successes": built.server.clients.successes.tolist(),
        "jam_dwells": built.server.counts()["jam_dwells"],
        "restarts": [row.round for row in totals.detections],
        "detects": _detects(built),
        "detections": detection_totals(totals.detections, table),
        "channels": table,
    }


def _detects(built: World) -> bool:
    """Return True if a scheduler of sub-channels watches for changes."""
    detections = built.server.loop.detections
    return detections is not None and detections.detects()


def _age_at_random(clients: int, rounds: int, delivered: int) -> float | None:
    """Return the mean age, in rounds, if as many updates had come from random clients (Lemma 1); None if none arrived."""
    if not delivered:
        return None
    return expected_age(clients=clients, delivered=delivered / rounds)


def _learner_notes(learner: FederatedLearner | None) -> Notes | None:
    """Return the notes on training, or None if nothing was trained."""
    if learner is None:
        return None
    notes: Notes = {
        "training": learner.training_mode,
        "notes": learner.notes,
        "trained_updates": learner.trained_updates,
        "refused_updates": learner.refused_updates,
    }
    if learner.worker_facts is not None:
        notes["workers"] = learner.worker_facts
    if learner.store.disk_bytes:
        notes["disk_bytes"] = learner.store.disk_bytes
    if learner.unscored.samples:
        notes["unscored_samples"] = learner.unscored.samples
    return notes
