"""The metrics by name, with units and meanings; tables, figures, texts and commands use this registry.

Beside those listed here every column of `rounds.parquet` is a metric: its mean over the rounds in which it was measured, or its
last value where it counts up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.metrics import definitions
from analysis.metrics.facts import DEFAULT, Facts, Settings
from analysis.metrics.targets import Cost
from analysis.results.run import Run
from analysis.results.sources import ROUND_NUMBERS
from analysis.statistics.arrays import FloatArray
from analysis.suggestions import did_you_mean

Better = Literal["higher", "lower", "neither"]
Kind = Literal["learning", "time", "participation", "regret", "consensus", "column"]
"""Subject of a metric: tables show the kinds that fit the study."""


def _any_measured(values: FloatArray) -> bool:
    """Return True if any value is a number, not NaN."""
    return bool((~np.isnan(values)).any())


def _any_positive(values: FloatArray) -> bool:
    """Return True if any value is above 0."""
    return bool((values > 0.0).any())


def _any_below_one(values: FloatArray) -> bool:
    """Return True if any value is below 1."""
    return bool((values < 1.0).any())


def _any_positive_finite(values: FloatArray) -> bool:
    """Return True if any value is finite and above 0."""
    return bool((np.isfinite(values) & (values > 0.0)).any())


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of one run: its name, its unit, its meaning, and the function that computes it."""

    name: str
    title: str
    """Name in tables and on axes, without the unit."""
    unit: str
    """Unit in which it is shown; empty: a plain number."""
    better: Better
    meaning: str
    """Explanation for readers, in one or two sentences."""
    compute: Callable[[Facts], float]
    """Function from the facts of a run to the number; NaN: it does not exist."""
    kind: Kind
    scale: float = 1.0
    """Factor by which the value is multiplied for display, such as 100 for a share in %."""
    worth_showing: Callable[[FloatArray], bool] = _any_measured
    """Function from the values of all runs (n,) to True if they are worth a column of a table."""
    cost: Cost | None = None
    """Kind of cost, if the metric is the cost of the target accuracy; compared up to the cost that all runs reach."""
    axis_unit: str = ""
    """Unit on axes, for a metric that tables show without a unit."""

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest possible value, in the unit shown."""
        if self.unit == "%":
            return 0.0, 100.0
        return (-math.inf if self.kind in ("regret", "column") else 0.0), math.inf

    @property
    def heading(self) -> str:
        """Title and unit, as the head of a column."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def axis(self) -> str:
        """Title and unit, as the label of an axis."""
        unit = self.unit or self.axis_unit
        return f"{self.title} ({unit})" if unit else self.title


_DEFINED = (
    Metric(
        "target_s", "time to the target accuracy", "s", "lower",
        "Simulated seconds until the accuracy on the test set first was at least the target.",
        definitions.cost_to_target("seconds"), "learning", cost="seconds",
    ),
    Metric(
        "target_bytes", "sent to the target accuracy", "MB", "lower",
        "Bytes sent to clients and by them, headers, messages between clients and lost messages included, up to the close of the "
        "round that first reached the target accuracy.",
        definitions.cost_to_target("bytes"), "learning", 1e-6, cost="bytes",
    ),
    Metric(
        "target_j", "energy to the target accuracy", "kJ", "lower",
        "Joules that all clients drew up to then, idle ones included.",
        definitions.cost_to_target("joules"), "learning", 1e-3, cost="joules",
    ),
    Metric(
        "final_accuracy", "final accuracy", "%", "higher",
        "Mean of the last evaluations on the test set, of all where there are fewer.",
        definitions.last_accuracy, "learning", 100.0,
    ),
    Metric(
        "updates_per_s", "updates a second", "1/s", "higher",
        "Updates delivered per simulated second, up to the close of the last round.",
        definitions.updates_per_s, "time", worth_showing=_any_positive,
    ),
    Metric(
        "mean_round_s", "mean round latency", "s", "lower",
        "Simulated seconds from the start of a round to its close. Of servers of different kinds rounds are different things: "
        "their latencies do not say which is faster.",
        definitions.mean_round_s, "time", worth_showing=_any_positive,
    ),
    Metric(
        "simulated_s", "simulated end", "s", "neither",
        "When the last round closed.",
        definitions.simulated_s, "time", worth_showing=_any_positive,
    ),
    Metric(
        "delivered_share", "delivered", "%", "higher",
        "Updates delivered, of all that ended by the close of the last round.",
        definitions.outcome_share("delivered"), "time", 100.0, _any_below_one,
    ),
    Metric(
        "late_share", "late", "%", "lower",
        "Updates that arrived after their round had closed or were cancelled then, of all that ended.",
        definitions.outcome_share("late"), "time", 100.0, _any_positive,
    ),
    Metric(
        "lost_share", "lost", "%", "lower",
        "Updates of which a transmission failed, down or up, of all that ended.",
        definitions.outcome_share("lost"), "time", 100.0, _any_positive,
    ),
    Metric(
        "aborted_share", "aborted", "%", "lower",
        "Updates whose client went away or was selected again, of all that ended.",
        definitions.outcome_share("aborted"), "time", 100.0, _any_positive,
    ),
    Metric(
        "delivered_bytes", "sent for each update delivered", "kB", "lower",
        "Bytes sent to clients and by them, headers, messages between clients and lost messages included, over the updates "
        "delivered.",
        definitions.delivered_bytes, "time", 1e-3,
    ),
    Metric(
        "delivered_j", "energy for each update delivered", "J", "lower",
        "What all clients drew in the whole run, idle ones included, over the updates delivered.",
        definitions.delivered_j, "time",
    ),
    Metric(
        "participation_jain", "fairness of participation, Jain", "", "higher",
        "Jain's index of the updates that each client had delivered: 1 where all clients had as many, 1/K where one had all.",
        lambda facts: definitions.jain_index(facts.deliveries), "participation",
    ),
    Metric(
        "participation_gini", "inequality of participation, Gini", "", "lower",
        "Gini's coefficient of the updates that each client had delivered: 0 where all clients had as many, near 1 where one had "
        "all.",
        lambda facts: definitions.gini_coefficient(facts.deliveries), "participation",
    ),
    Metric(
        "iid_share", "selections of clients with i.i.d. data", "%", "neither",
        "Mean number of selections of a client with i.i.d. data (`learner.partition.iid_clients`, the first ones), over "
        "the sum of it "
        "and that of any other client: 50 % is chance.",
        definitions.iid_share, "participation", 100.0,
    ),
    Metric(
        "max_leak", "largest leak", "ε", "lower",
        "What all updates of one client together give away up to the close of the last round, in units of ε, for the client "
        "that gave away most; the guarantee says what this protects. Unprotected: updates were sent as they are.",
        definitions.max_leak, "learning", worth_showing=_any_positive_finite,
    ),
    Metric(
        "regret", "regret", "", "lower",
        "Reward of the genie, which knows the true expected latencies (with slots: the clients' worth), minus reward of the "
        "policy, summed over rounds.",
        definitions.sum_of("genie_reward", "reward"), "regret",
    ),
    Metric(
        "aoi_regret", "AoI regret", "", "lower",
        "Age of information minus that of the oracle on the same channel states, summed over clients and rounds.",
        definitions.sum_of("sum_age", "oracle_sum_age"), "regret", axis_unit="rounds of age",
    ),
    Metric(
        "cumulated_age_variance", "cumulated AoI variance", "", "lower",
        "Sum over clients of (age - mean age)² after a round, summed over rounds.",
        definitions.sum_of("age_variance"), "regret", axis_unit="rounds²",
    ),
    Metric(
        "agreed_s", "time to agreement", "s", "lower",
        "Seconds from the start of a consensus phase until all clients named the same best clients, mean over the slots in which "
        "they did before training started.",
        definitions.mean_of("agreed_s"), "consensus",
    ),
    Metric(
        "agreed_share", "slots with agreement", "%", "higher",
        "Slots in which all clients named the same best clients before training started.",
        definitions.share_agreed, "consensus", 100.0,
    ),
    Metric(
        "consensus_share", "time in consensus phases", "%", "lower",
        "Share of the simulated time in which clients decide who takes part.",
        definitions.consensus_share, "consensus", 100.0,
    ),
    Metric(
        "disagreement", "disagreement", "%", "lower",
        "Share of clients that did not name the true best clients as training started, mean over slots.",
        definitions.mean_of("disagreement"), "consensus", 100.0,
    ),
    Metric(
        "messages", "messages a round", "", "lower",
        "Messages sent between clients, every sending counted, mean over rounds, which are slots where there are any.",
        definitions.mean_of("messages"), "consensus",
    ),
    Metric(
        "message_bytes", "bytes of messages a round", "kB", "lower",
        "Bytes of the messages sent between clients, mean over rounds, which are slots where there are any.",
        definitions.mean_of("message_bytes"), "consensus", 1e-3,
    ),
)  # fmt: skip
METRICS: dict[str, Metric] = {metric.name: metric for metric in _DEFINED}
"""The metrics that have a definition of their own, in the order of tables."""

_CUMULATIVE = ("round", "start_s", "end_s", "version", "max_leak")
_UNITS = {"_s": "s", "_bytes": "bytes", "_j": "J"}


def metric(name: str) -> Metric:
    """Return the metric called `name`: one of `METRICS`, or a column of `rounds.parquet`. ValueError: neither has the name."""
    if name in METRICS:
        return METRICS[name]
    if name not in ROUND_NUMBERS:
        raise ValueError(f"metric {name!r}: there is none of this name; {did_you_mean(name, metric_names())}")
    unit = "bytes" if name.startswith("bytes_") else ""
    for ending, unit_of_ending in _UNITS.items():
        if name.endswith(ending):
            unit = unit_of_ending
    if name in _CUMULATIVE:
        statistic, words, compute = "last", "its last value", definitions.last_of(name)
    else:
        statistic, words = "mean of rounds", "mean over the rounds in which it was measured"
        compute = definitions.mean_of(name)
    return Metric(
        name=name,
        title=f"{name}, {statistic}",
        unit=unit,
        better="neither",
        meaning=f"Column `{name}` of `rounds.parquet`: {words}.",
        compute=compute,
        kind="column",
    )


def metric_names() -> tuple[str, ...]:
    """Return all names of metrics: those with a definition of their own, then the other columns of `rounds.parquet`."""
    return (*METRICS, *(name for name in ROUND_NUMBERS if name not in METRICS))


def metric_values(run: Run, names: Iterable[str], settings: Settings = DEFAULT) -> dict[str, float]:
    """Return metrics of one run by name; NaN where it has none. ValueError: unknown name, or an unreadable table."""
    facts = Facts(run, settings)
    return {name: metric(name).compute(facts) for name in names}


def names_of(kinds: Sequence[Kind]) -> tuple[str, ...]:
    """Return the names of the metrics of some kinds, in the order of tables."""
    return tuple(name for name, definition in METRICS.items() if definition.kind in kinds)
