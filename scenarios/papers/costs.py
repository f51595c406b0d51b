"""Processor time of every figure and table by size, for `netsim reproduce --list` and the time left of `--all`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scenarios.papers.study import Size

MOST_S = {Size.SMOKE: 60.0, Size.LAPTOP: 3600.0}
"""Most processor seconds of a figure or table, by size."""
_LONG_S = 36_000.0
"""Processor seconds from which on a remedy is named."""
_UNITS = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h"), (1_209_600.0, 86_400.0, "days"))


def duration_words(seconds: float) -> str:
    """Return a duration in words, to two digits.

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
    """Processor seconds of all runs, on one core of the machine of docs/results.md; `estimated`: scaled up from shorter runs."""

    core_s: float
    estimated: bool = False

    @property
    def words(self) -> str:
        """Effort in words."""
        remedy = "; fewer seeds (--seeds) or a GPU (learner.device=cuda) shorten it" if self.core_s > _LONG_S else ""
        return f"{duration_words(self.core_s)} of one core{' (estimated)' if self.estimated else ''}{remedy}"


def _about(core_s: float) -> Cost:
    return Cost(core_s, estimated=True)


def _costs(smoke: float | Cost, laptop: float | Cost, full: float | Cost) -> Mapping[Size, Cost]:
    """Return the costs by size; a number was measured over all runs of the size."""
    costs = (smoke, laptop, full)
    return {size: cost if isinstance(cost, Cost) else Cost(cost) for size, cost in zip(Size, costs, strict=True)}


COSTS: Mapping[str, Mapping[Size, Cost]] = {
    "pause_table1": _costs(2, 5, 120),
    "pause_test1": _costs(1, 420, 420),
    "pause_fig2_3": _costs(34, _about(720), _about(108_000)),
    "pause_fig4_5": _costs(23, _about(720), _about(400_000)),
    "pause_fig6_7": _costs(2, 1_200, 1_200),
    "pause_fig8_9": _costs(_about(43), _about(720), _about(800_000)),
    "pause_authors_mnist": _costs(2, 1_200, 1_200),
    "pause_authors_cifar10": _costs(7, 600, 4_800),
    "channels_fig2a": _costs(3, 120, 360),
    "channels_fig2b": _costs(3, 120, 360),
    "channels_fig2c_drawn": _costs(3, 120, 360),
    "channels_fig3_4_cifar10_piecewise": _costs(31, _about(3_000), _about(400_000)),
    "channels_fig3_4_cifar10_extreme": _costs(_about(31), _about(3_000), _about(400_000)),
    "channels_fig3_4_cifar100_piecewise": _costs(_about(40), _about(3_000), _about(400_000)),
    "channels_fig3_4_cifar100_extreme": _costs(_about(40), _about(3_000), _about(400_000)),
    "analytics_fig5": _costs(_about(2), _about(1_200), _about(1_000_000)),
    "analytics_fig6": _costs(_about(2), _about(600), _about(1_000_000)),
    "analytics_fig7": _costs(1, _about(520), _about(1_000_000)),
    "analytics_fig8": _costs(_about(2), _about(120), _about(100_000)),
    "analytics_fig9": _costs(_about(2), _about(720), _about(1_000_000)),
    "analytics_fig10": _costs(_about(20), _about(1_300), _about(1_000_000)),
    "analytics_fig11": _costs(_about(20), _about(2_000), _about(1_000_000)),
    "analytics_fig12": _costs(_about(30), _about(1_800), _about(1_000_000)),
    "analytics_table1": _costs(_about(2), _about(960), _about(1_000_000)),
    "bp_ucb_timing": _costs(1, 48, 600),
    "bp_ucb_timing_loss": _costs(_about(1), 65, 600),
    "bp_ucb_timing_topology": _costs(_about(1), 40, 480),
    "safa_table": _costs(3, _about(45), 360),
    "safa_accuracy": _costs(_about(60), _about(3_400), _about(14_000)),
    "flow_cases": _costs(1, 1, 1),
    "overlays_table": _costs(8, 8, 8),
    "overlays_shared_core": _costs(28, 28, 28),
    "ring_or_clique": _costs(_about(10), _about(110), _about(360)),
}
