"""Definitions of the metrics: functions from the facts of a run to a number, NaN if the run has none.

Functions with a parameter, such as `mean_of`, return such a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from analysis.metrics.facts import Facts
from analysis.metrics.targets import COST_COLUMNS, Cost, cost_to_accuracy, final_accuracy
from analysis.statistics.arrays import FloatArray

ENDED = ("delivered", "late", "lost", "aborted")
"""Ways in which an update can have ended."""


def cost_to_target(cost: Cost) -> Callable[[Facts], float]:
    """Return a metric: the cost at which the accuracy first was at least the target; inf if never, NaN without a target."""

    def value(facts: Facts) -> float:
        target = facts.settings.target_accuracy
        if target is None:
            return math.nan
        return cost_to_accuracy(facts.rounds, target, cost, smoothing_s=facts.settings.smoothing_s)

    return value


def last_accuracy(facts: Facts) -> float:
    """Return the final accuracy: the mean of the last evaluations within the extent that all compared runs reach."""
    return final_accuracy(facts.rounds, last=facts.settings.last, until=facts.settings.until)


def simulated_s(facts: Facts) -> float:
    """Return the simulated seconds to the close of the last round."""
    return facts.end_s if facts.count else math.nan


def mean_round_s(facts: Facts) -> float:
    """Return the mean length of a round in seconds, from start to close."""
    return float((facts.rounds["end_s"] - facts.rounds["start_s"]).mean()) if facts.count else math.nan


def max_leak(facts: Facts) -> float:
    """Return the largest privacy loss of any client, all its releases composed; inf if updates arrived without protection.

    Column `max_leak` of the rounds table holds the largest loss over clients so far.
    """
    if not facts.count:
        return math.nan
    leak = float(np.nanmax(facts.rounds["max_leak"]))
    # Any protected release leaks more than 0, so a loss of 0 with deliveries means that there is no privacy mechanism.
    return math.inf if leak == 0.0 and facts.total("delivered") > 0.0 else leak


def updates_per_s(facts: Facts) -> float:
    """Return the updates delivered per simulated second, up to the close of the last round; NaN where no time passes."""
    return facts.total("delivered") / facts.end_s if facts.end_s > 0.0 else math.nan


def outcome_share(outcome: str) -> Callable[[Facts], float]:
    """Return a metric: the share of updates with one outcome among all that ended by the close of the last round."""

    def value(facts: Facts) -> float:
        ended = facts.total(*ENDED)
        return facts.total(outcome) / ended if ended > 0.0 else math.nan

    return value


def delivered_bytes(facts: Facts) -> float:
    """Return the bytes sent, both ways, per update delivered by the close of the last round; NaN where no bytes are sent."""
    delivered, sent = facts.total("delivered"), facts.total(*COST_COLUMNS["bytes"])
    return sent / delivered if delivered > 0.0 and sent > 0.0 else math.nan


def delivered_j(facts: Facts) -> float:
    """Return the joules drawn in the whole run per update delivered, as the summary states them."""
    joules = facts.summary_entry("energy", "per_delivered_j")
    return math.nan if joules is None else float(joules)


def jain_index(amounts: ArrayLike) -> float:
    """Return Jain's index of fairness of amounts (n,): (sum x)^2 / (n sum x^2), 1 if all are equal and 1 / n if one has all.

    Source: Jain, Chiu and Hawe 1984, eq. 2. NaN without amounts, or where all are 0.
    """
    x = np.asarray(amounts, np.float64)
    squares = float((x * x).sum())
    return float(x.sum()) ** 2 / (x.size * squares) if squares > 0.0 else math.nan


def gini_coefficient(amounts: ArrayLike) -> float:
    """Return Gini's coefficient of amounts (n,) >= 0: half their mean absolute difference over their mean; 0 if all are equal.

    (n - 1) / n if a single amount is above 0. Source: Gini 1912, over all n^2 pairs. NaN without amounts, or where all are 0.
    """
    x = np.sort(np.asarray(amounts, np.float64))
    total = float(x.sum())
    if not total > 0.0:
        return math.nan
    # Of sorted values, the sum of |x_i - x_j| over all n^2 pairs is 2 sum_i (2 i - n - 1) x_i.
    ranks = np.arange(1, x.size + 1)
    return float(((2.0 * ranks - x.size - 1.0) * x).sum()) / (x.size * total)


def iid_share(facts: Facts) -> float:
    """Return how far clients with i.i.d. data are preferred: 0.5 if they are selected as often as the others, 1 if alone.

    With a the mean selections of a client with i.i.d. data and b of another client, this is a / (a + b). NaN unless there are
    clients of both kinds. The clients with i.i.d. data are the first `iid_clients` of the partition.
    """
    partition = (facts.run.scenario.get("learner") or {}).get("partition") or {}
    first = int(partition.get("iid_clients", 0)) if isinstance(partition, dict) else 0
    if not 0 < first < facts.clients or not facts.attempts_begun.size:
        return math.nan
    preferred, others = float(facts.attempts_begun[:first].mean()), float(facts.attempts_begun[first:].mean())
    return preferred / (preferred + others) if preferred + others > 0.0 else math.nan


def sum_of(*columns: str) -> Callable[[Facts], float]:
    """Return a metric: the sum of a column of the rounds table, minus that of a second column if given.

    Only rounds that all compared runs have are summed. The metric is NaN if none of them has a value.
    """

    def value(facts: Facts) -> float:
        first, *rest = (facts.rounds[name] for name in columns)
        terms = first - rest[0] if rest else first
        measured = terms[~np.isnan(terms) & (facts.rounds["round"] <= facts.settings.until.rounds)]
        # The last running sum, not `sum`: it equals the end of the curve in figures to the last bit.
        return float(np.cumsum(measured)[-1]) if measured.size else math.nan

    return value


def mean_of(column: str) -> Callable[[Facts], float]:
    """Return a metric: the mean of a column over the rounds in which it was measured."""

    def value(facts: Facts) -> float:
        values = _measured_values(facts, column)
        return float(values.mean()) if values.size else math.nan

    return value


def last_of(column: str) -> Callable[[Facts], float]:
    """Return a metric: the last measured value of a column of rounds; NaN where none was measured."""

    def value(facts: Facts) -> float:
        values = _measured_values(facts, column)
        return float(values[-1]) if values.size else math.nan

    return value


def _measured_values(facts: Facts, column: str) -> FloatArray:
    """Return the values of a column (n,), without the rounds in which it was not measured."""
    values = facts.rounds[column]
    return values[~np.isnan(values)]


def share_agreed(facts: Facts) -> float:
    """Return the share of slots in which all clients agreed, where clients decide among themselves."""
    if not facts.count or np.isnan(facts.rounds["consensus_s"]).all():
        return math.nan
    return float(1.0 - np.isnan(facts.rounds["agreed_s"]).mean())


def consensus_share(facts: Facts) -> float:
    """Return the share of the simulated time that clients spent in consensus phases; NaN where no time passes."""
    length_s = float((facts.rounds["end_s"] - facts.rounds["start_s"]).sum())
    return facts.total("consensus_s") / length_s if length_s > 0.0 else math.nan
