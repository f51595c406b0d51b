"""Parts of a reproduction: a scenario in three sizes, figures and tables to show, published numbers, and rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis import Sweep
    from analysis.documents.blocks import Section
    from scenarios.papers.rules import Rule


class Size(StrEnum):
    """Number of seeds and rounds, by what a panel may need of one core."""

    SMOKE = "smoke"
    """Under a minute; tests that the scenario works. Its numbers mean nothing."""
    LAPTOP = "laptop"
    """Under an hour."""
    FULL = "full"
    """As published, whatever it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A size of a reproduction."""

    seeds: tuple[int, ...]
    settings: tuple[str, ...] = ()
    """Changes of the scenario, each KEY=VALUE."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Sections of a result that needs no sweep.

    `agrees`: True if all agrees with the published values, None if none are published.
    """

    sections: Sequence[Section]
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Figures and tables of a paper that one sweep reproduces. It has the name of its scenario."""

    name: str
    paper: str
    shows: str
    """Names and subjects of the figures or tables."""
    aliases: tuple[str, ...] = ()
    """Names of single figures in it."""
    metrics: tuple[str, ...]
    figures: tuple[str, ...] = ()
    """Names of figures, as in `analysis.draw`; figures without data at a size are left out."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Groups of variants shown together, each group up to its earliest end; empty: all variants in one group."""
    against: tuple[str, ...] = ()
    """Keys against which the metrics are shown."""
    targets: tuple[float, ...] = ()
    """Accuracies for which the slots to reach them are shown."""
    slots_to_target: bool = False
    """True if `published` holds the slots to each of `targets`, one number after the other."""
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Published values by variant and metric; "curve only" if the paper gives no number."""
    rules: tuple[Rule, ...] = ()
    notes: str = ""
    """Readings of the paper, and differences from it."""
    consensus: bool = False
    """True if tables of message times belong to it."""
    beliefs: bool = False
    """True if it shows beliefs slot by slot; its scenario sets `output.beliefs_table`."""
    accuracies: bool = False
    """True for SAFA's table of accuracies, whose cells have tolerances instead of rules."""
    solvers: bool = False
    """True if it measures the cost of searches, and simulates nothing."""
    cells: bool = False
    """True if it is SAFA's table of round lengths, with a world for each seed that is simulated cell by cell."""
    judge: Callable[[Path | None], Judgement] | None = None
    """Computes and judges the result without a sweep, from a file of the user's or None for the one that comes along."""
    takes_cases: bool = False
    """True if `judge` reads a file of cases, `--cases`."""
    sections: Callable[[Sweep], Sequence[Section]] | None = None
    """Further sections, from the finished sweep."""
    sizes: Mapping[Size, Setup]
