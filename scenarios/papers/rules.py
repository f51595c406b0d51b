"""Rules by which a reproduction is judged. They are fixed before the scenario runs, and decided by intervals.

The rules of one figure hold together: of n rules each is decided by an interval of confidence 1 - 0.05 / n (Bonferroni).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from analysis.documents.numbers import format_interval, format_percent
from analysis.metrics.comparison import Comparison, compare, metric_by_seed
from analysis.metrics.registry import metric
from analysis.parameters.measure import check_key, settings_of
from analysis.results.sweep import Sweep
from analysis.statistics.inference import simultaneous_confidence
from analysis.statistics.intervals import Interval, mean_interval

Verdict = Literal["as in the paper", "not as in the paper", "open"]
CONFIDENCE = 0.95
"""Confidence of all rules of one figure together."""
BY_INTERVAL = (
    f"A rule is decided by a Student-t interval over seeds (differences and ratios at equal seeds), all of them together with a "
    f"confidence of {format_percent(CONFIDENCE)} (Bonferroni); open: the interval decides neither way."
)
IN_EACH = (
    "A rule 'in each seed' is for seeds so few that they give no interval. It holds if it holds at every seed, and says nothing "
    "about other seeds; open: a difference within the margin. The two variants are compared up to where both have ended."
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a rule."""

    verdict: Verdict
    evidence: str
    """The interval or the differences that decided, as text."""


class Rule(Protocol):
    """Statement of a paper that the runs of a sweep can decide."""

    @property
    def text(self) -> str:
        """The rule in words."""

    @property
    def basis(self) -> str:
        """Criterion by which rules of this class are decided, in words."""

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Decision:
        """Decide the rule. `rules`: number of rules judged together, which widens the interval."""


@dataclass(frozen=True, slots=True)
class Lower:
    """Rule: one variant has less of a metric than another, at equal seeds."""

    first: str
    second: str
    metric: str
    by: float = 0.0
    """Margin: the first must be lower by more than this, in the metric's unit."""

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        by = f" by more than {_value_text(self.metric, self.by)}" if self.by else ""
        return f"{metric(self.metric).title}: {self.first} below {self.second}{by}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Decision:
        values = metric_by_seed(comparison, [self.first, self.second], self.metric)
        interval = _joint_interval(values[:, 0] - values[:, 1], rules)
        evidence = format_interval(interval, scale=metric(self.metric).scale, signed=True)
        return Decision(_verdict_below(interval, -self.by), evidence)


@dataclass(frozen=True, slots=True)
class LowerInEach:
    """Rule: one variant has less of a metric than another by a margin, in each seed.

    It is for few seeds, where intervals decide nothing. The two are compared up to where both have ended, even if other
    variants end earlier.
    """

    first: str
    second: str
    metric: str
    by: float

    basis: ClassVar[str] = IN_EACH

    @property
    def text(self) -> str:
        title, by = metric(self.metric).title, _value_text(self.metric, self.by)
        return f"{title}: {self.first} below {self.second} by more than {by}, in each seed"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Decision:
        """Decide the rule seed by seed: open unless all differences are beyond the margin on the same side."""
        pair = [self.first, self.second]
        # Compared again: `comparison` ends where the first of all variants ends.
        compared = compare(sweep.only(pair), metrics=[self.metric], smoothing_s=comparison.smoothing_s)
        values = metric_by_seed(compared, pair, self.metric)
        differences = values[:, 0] - values[:, 1]
        verdict = _verdict(holds=bool((differences < -self.by).all()), fails=bool((differences > self.by).all()))
        shown = ", ".join(f"{difference * metric(self.metric).scale:+.3g}" for difference in differences)
        return Decision(verdict, f"{shown} (by {compared.until.time_s:.0f} s)")


@dataclass(frozen=True, slots=True)
class Near:
    """Rule: a variant's metric is within a margin of the paper's number."""

    variant: str
    metric: str
    value: float
    margin: float

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        definition, margin = metric(self.metric), _value_text(self.metric, self.margin)
        return f"{definition.title} of {self.variant}: {self.value * definition.scale:g} ± {margin}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Decision:
        interval = _joint_interval(metric_by_seed(comparison, [self.variant], self.metric)[:, 0], rules)
        verdict = _verdict_within(interval.low, interval.high, self.value - self.margin, self.value + self.margin)
        return Decision(verdict, format_interval(interval, scale=metric(self.metric).scale))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Rule: the ratio of two variants' metric, as the geometric mean over equal seeds, lies between `low` and `high`."""

    first: str
    second: str
    metric: str
    low: float
    high: float

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        return f"{metric(self.metric).title}: {self.first} over {self.second} between {self.low:g} and {self.high:g}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Decision:
        """Decide the rule by the interval of the mean logarithm of the ratio; seeds with a value of 0 or below are left out."""
        values = metric_by_seed(comparison, [self.first, self.second], self.metric)
        positive = values[(values > 0.0).all(axis=1)]  # a ratio with 0 has no logarithm
        interval = _joint_interval(np.log(positive[:, 0] / positive[:, 1]), rules)
        low, high = math.exp(interval.low), math.exp(interval.high)
        verdict = _verdict_within(low, high, self.low, self.high)
        bounds = f" ({low:.2f} to {high:.2f})" if math.isfinite(low) else ""
        return Decision(verdict, f"{math.exp(interval.mean):.2f}{bounds}")


@dataclass(frozen=True, slots=True)
class Trend:
    """Rule: a metric rises, or falls, with a parameter, by the sign of the least-squares slopes, one for each seed."""

    key: str
    metric: str
    rises: bool = True
    among: str = ""
    """Prefix of the names of the variants; empty: all variants."""

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        variants = f" of {self.among}" if self.among else ""
        return f"{metric(self.metric).title}{variants} {'rises' if self.rises else 'falls'} with {self.key}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Decision:
        """Decide the rule by the interval of the mean slope: of the metric on the parameter, over the variants, at each seed."""
        settings = {name: keys for name, keys in settings_of(sweep).items() if name.startswith(self.among)}
        key = check_key(settings, self.key)
        variants = sorted(settings, key=lambda name: float(settings[name][key]))
        parameter = np.array([float(settings[name][key]) for name in variants])
        values = metric_by_seed(comparison, variants, self.metric)
        centred = parameter - parameter.mean()
        slopes = (values * centred).sum(axis=1) / float((centred**2).sum())
        interval = _joint_interval(slopes, rules)
        # "Rises" is decided as: the negative slope is below 0.
        falling = Interval(-interval.mean, interval.half_width, interval.count) if self.rises else interval
        verdict = _verdict_below(falling, 0.0)
        slope_text = format_interval(interval, scale=metric(self.metric).scale, signed=True)
        return Decision(verdict, f"{slope_text} for each {self.key}")


def _joint_interval(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], rules: int) -> Interval:
    """Return the interval of the mean over seeds at which `rules` rules hold together (Bonferroni).

    Values that are not finite are left out.
    """
    finite = np.where(np.isfinite(values), values, math.nan)
    return mean_interval(finite, simultaneous_confidence(CONFIDENCE, rules))


def _verdict_below(interval: Interval, limit: float) -> Verdict:
    """Return the verdict on the rule that a mean is below `limit`."""
    return _verdict(holds=interval.high < limit, fails=interval.low > limit)


def _verdict_within(low: float, high: float, least: float, most: float) -> Verdict:
    """Return the verdict on the rule that a mean, of interval `low` to `high`, is between `least` and `most`."""
    return _verdict(holds=least < low and high < most, fails=high < least or low > most)


def _verdict(*, holds: bool, fails: bool) -> Verdict:
    """Return the verdict on a rule that is shown to hold, shown to fail, or neither ("open")."""
    if holds:
        return "as in the paper"
    return "not as in the paper" if fails else "open"


def _value_text(name: str, value: float) -> str:
    """Return a `value` of the metric `name` as text with its unit."""
    definition = metric(name)
    number = f"{value * definition.scale:g}"
    return f"{number} {definition.unit}" if definition.unit else number
