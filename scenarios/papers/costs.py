"""Processor time of every figure and table by size, for `netsim reproduce --list` and the time left of `--all`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scenarios.papers.study import Size

MOST_S = {Size.SMOKE: 60.0, Size.LAPTOP: 3600.0}
"""Most processor seconds of a figure or table, by size."""
_LONG_S = 36_000.0
"""Processor seconds above which the text of a cost names a remedy."""
_UNITS = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h"), (1_209_600.0, 86_400.0, "days"))
"""Units of durations: used below so many seconds, length of the unit in seconds, name."""


def duration_words(seconds: float) -> str:
    """Return a duration of `seconds` as text in a fitting unit, to two significant digits.

    Examples:
        >>> duration_words(754.0), duration_words(3 * 3600.0)
        ('13 min', '3 h')
    """
    rounded = float(f"{seconds:.2g}")
    for most_s, unit_s, name in _UNITS:
        if rounded < most_s:
            return f"{float(f'{seconds / unit_s:.2g}'):g} {name}"
    return f"{float(f'{seconds / 604_800.0:.2g}'):g} weeks"


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of a reproduction at one size."""

    core_s: float
    """Processor seconds of all runs, on one core of the machine of docs/results.md."""
    estimated: bool = False
    """True if the number is scaled up from shorter runs, False if it was measured."""

    @property
    def words(self) -> str:
        """The cost as text, with a remedy if it is long."""
        remedy = "; fewer seeds (--seeds) or a GPU (learner.device=cuda) shorten it" if self.core_s > _LONG_S else ""
        return f"{duration_words(self.core_s)} of one core{' (estimated)' if self.estimated else ''}{remedy}"


def _estimate(core_s: float) -> Cost:
    """Return a cost of `core_s` processor seconds that was estimated, not measured."""
    return Cost(core_s, estimated=True)


def _size_costs(smoke: float | Cost, laptop: float | Cost, full: float | Cost) -> Mapping[Size, Cost]:
    """Return the cost of each size. A plain number stands for processor seconds that were measured."""
    costs = (smoke, laptop, full)
    return {size: cost if isinstance(cost, Cost) else Cost(cost) for size, cost in zip(Size, costs, strict=True)}


COSTS: Mapping[str, Mapping[Size, Cost]] = {
    "pause_table1": _size_costs(2, 5, 120),
    "pause_test1": _size_costs(1, 120, 420),
    "pause_fig2_3": _size_costs(34, 1_200, _estimate(108_000)),
    "pause_fig4_5": _size_costs(23, 1_050, _estimate(400_000)),
    "pause_fig6_7": _size_costs(2, 240, 1_310),
    "pause_fig8_9": _size_costs(34, 1_320, _estimate(800_000)),
    "pause_authors_mnist": _size_costs(2, 300, 1_200),
    "pause_authors_cifar10": _size_costs(7, 600, 5_900),
    "channels_fig2a": _size_costs(11, 350, 1_060),
    "channels_fig2b": _size_costs(11, 330, 990),
    "channels_fig2c_drawn": _size_costs(11, 290, 880),
    "channels_fig3_4_cifar10_piecewise": _size_costs(31, _estimate(3_300), _estimate(400_000)),
    "channels_fig3_4_cifar10_extreme": _size_costs(7, 2_140, _estimate(400_000)),
    "channels_fig3_4_cifar100_piecewise": _size_costs(_estimate(40), _estimate(3_300), _estimate(400_000)),
    "channels_fig3_4_cifar100_extreme": _size_costs(_estimate(40), _estimate(3_300), _estimate(400_000)),
    "analytics_fig5": _size_costs(1, 300, _estimate(1_000_000)),
    "analytics_fig6": _size_costs(1, 150, _estimate(1_000_000)),
    "analytics_fig7": _size_costs(1, 129, _estimate(1_000_000)),
    "analytics_fig8": _size_costs(1, 60, _estimate(100_000)),
    "analytics_fig9": _size_costs(2, 180, _estimate(1_000_000)),
    "analytics_fig10": _size_costs(1, 320, _estimate(1_000_000)),
    "analytics_fig11": _size_costs(2, 810, _estimate(1_000_000)),
    "analytics_fig12": _size_costs(4, 770, _estimate(1_000_000)),
    "analytics_table1": _size_costs(1, 240, _estimate(1_000_000)),
    "bp_ucb_timing": _size_costs(1, 48, 1_670),
    "bp_ucb_timing_loss": _size_costs(2, 65, 990),
    "bp_ucb_timing_topology": _size_costs(1, 40, 480),
    "safa_table": _size_costs(3, _estimate(45), 440),
    "safa_accuracy": _size_costs(25, _estimate(3_400), _estimate(14_000)),
    "flow_cases": _size_costs(1, 1, 1),
    "overlays_table": _size_costs(8, 8, 8),
    "overlays_shared_core": _size_costs(28, 28, 28),
    "ring_or_clique": _size_costs(2, _estimate(110), 180),
}
