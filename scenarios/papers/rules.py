"""Rules by which a reproduction is judged. They are fixed before the scenario runs, and decided by intervals.

The rules of one figure hold together: of n rules each is decided by an interval of confidence 1 - 0.05 / n (Bonferroni).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from analysis.documents.numbers import format_interval, format_percent
from analysis.metrics.comparison import Comparison, compare, values_of
from analysis.metrics.registry import metric
from analysis.parameters.measure import check_key, settings_of
from analysis.results.sweep import Sweep
from analysis.statistics.inference import simultaneous
from analysis.statistics.intervals import Interval, mean_interval

Verdict = Literal["as in the paper", "not as in the paper", "open"]
CONFIDENCE = 0.95
"""Of all rules of one figure together."""
BY_INTERVAL = (
    f"A rule is decided by a Student-t interval over seeds (differences and ratios at equal seeds), all of them together with a "
    f"confidence of {format_percent(CONFIDENCE)} (Bonferroni); open: the interval decides neither way."
)
IN_EACH = (
    "A rule with a margin in each seed holds where it does in every one of so few that they give no interval, and says nothing "
    "of others; open: a difference within the margin. The two variants are compared where both of them end."
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of a rule."""

    verdict: Verdict
    found: str
    """The interval that decided."""


class Rule(Protocol):
    """Statement of the paper that can be decided."""

    @property
    def text(self) -> str:
        """The rule in words."""

    @property
    def basis(self) -> str:
        """Criterion of such rules, in words."""

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Judgement:
        """Decide the rule. `rules`: number of rules judged together, which widens the interval."""


@dataclass(frozen=True, slots=True)
class Lower:
    """One variant has less of a metric than another, at equal seeds."""

    first: str
    second: str
    metric: str
    by: float = 0.0
    """By more than this."""

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        by = f" by more than {_value_text(self.metric, self.by)}" if self.by else ""
        return f"{metric(self.metric).title}: {self.first} below {self.second}{by}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Judgement:
        values = values_of(comparison, [self.first, self.second], self.metric)
        interval = _interval(values[:, 0] - values[:, 1], rules)
        return Judgement(_side(interval, below=-self.by), format_interval(interval, scale=metric(self.metric).scale, signed=True))


@dataclass(frozen=True, slots=True)
class LowerInEach:
    """Rule: one variant has less of a metric than another by a margin, in each seed.

    For few seeds, where intervals decide nothing. The two are compared up to where both end, even if other variants end
    earlier.
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

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Judgement:
        two = compare(
            sweep.only([self.first, self.second]), metrics=[self.metric], smoothing_s=comparison.smoothing_s
        )
        values = values_of(two, [self.first, self.second], self.metric)
        differences = values[:, 0] - values[:, 1]
        verdict = _verdict(bool((differences < -self.by).all()), bool((differences > self.by).all()))
        shown = ", ".join(f"{difference * metric(self.metric).scale:+.3g}" for difference in differences)
        return Judgement(verdict, f"{shown} (by {two.until.time_s:.0f} s)")


@dataclass(frozen=True, slots=True)
class Near:
    """A variant's metric is the paper's number, give or take a margin."""

    variant: str
    metric: str
    value: float
    margin: float

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        one = metric(self.metric)
        return f"{one.title} of {self.variant}: {self.value * one.scale:g} ± {_value_text(self.metric, self.margin)}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Judgement:
        interval = _interval(values_of(comparison, [self.variant], self.metric)[:, 0], rules)
        low, high = self.value - self.margin, self.value + self.margin
        verdict = _range_verdict(interval.low, interval.high, low, high)
        return Judgement(verdict, format_interval(interval, scale=metric(self.metric).scale))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Rule: one variant's metric is a fraction of another's.

    The geometric mean of ratios at equal seeds lies between two numbers.
    """

    first: str
    second: str
    metric: str
    low: float
    high: float

    basis: ClassVar[str] = BY_INTERVAL

    @property
    def text(self) -> str:
        return f"{metric(self.metric).title}: {self.first} over {self.second} between {self.low:g} and {self.high:g}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Judgement:
        values = values_of(comparison, [self.first, self.second], self.metric)
        positive = values[(values > 0.0).all(axis=1)]
        interval = _interval(np.log(positive[:, 0] / positive[:, 1]), rules)
        low, high = math.exp(interval.low), math.exp(interval.high)
        verdict = _range_verdict(low, high, self.low, self.high)
        bounds = f" ({low:.2f} to {high:.2f})" if math.isfinite(low) else ""
        return Judgement(verdict, f"{math.exp(interval.mean):.2f}{bounds}")


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
        of = f" of {self.among}" if self.among else ""
        return f"{metric(self.metric).title}{of} {'rises' if self.rises else 'falls'} with {self.key}"

    def judge(self, sweep: Sweep, comparison: Comparison, rules: int) -> Judgement:
        settings = {name: keys for name, keys in settings_of(sweep).items() if name.startswith(self.among)}
        key = check_key(settings, self.key)
        variants = sorted(settings, key=lambda name: float(settings[name][key]))
        at = np.array([float(settings[name][key]) for name in variants])
        values = values_of(comparison, variants, self.metric)
        centred = at - at.mean()
        slopes = (values * centred).sum(axis=1) / float((centred**2).sum())
        interval = _interval(slopes if self.rises else -slopes, rules)
        shown = Interval(interval.mean if self.rises else -interval.mean, interval.half_width, interval.count)
        scaled = format_interval(shown, scale=metric(self.metric).scale, signed=True)
        return Judgement(_side(Interval(-interval.mean, interval.half_width, interval.count)), f"{scaled} for each {self.key}")


def _interval(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], rules: int) -> Interval:
    finite = np.where(np.isfinite(values), values, math.nan)
    return mean_interval(finite, simultaneous(CONFIDENCE, rules))


def _side(interval: Interval, below: float = 0.0) -> Verdict:
    """Return the verdict on a mean: shown to be below a number, shown not to be, or neither."""
    return _verdict(interval.high < below, interval.low > below)


def _range_verdict(low: float, high: float, least: float, most: float) -> Verdict:
    """Return the verdict on an interval: shown to lie within two numbers, shown to lie outside, or neither."""
    return _verdict(least < low and high < most, high < least or low > most)


def _verdict(holds: bool, fails: bool) -> Verdict:
    if holds:
        return "as in the paper"
    return "not as in the paper" if fails else "open"


def _value_text(name: str, value: float) -> str:
    """Return a value of that metric with its unit."""
    definition = metric(name)
    return f"{value * definition.scale:g}{f' {definition.unit}' if definition.unit else ''}"
