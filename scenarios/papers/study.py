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
    """Size of a reproduction, by the time that it may take on one core."""

    SMOKE = "smoke"
    """Under a minute: shows that the scenario works. Its numbers mean nothing."""
    LAPTOP = "laptop"
    """Under an hour."""
    FULL = "full"
    """The published number of seeds and rounds, without a limit of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Seeds and changed settings of a reproduction at one size."""

    seeds: tuple[int, ...]
    settings: tuple[str, ...] = ()
    """Changes of the scenario, each KEY=VALUE."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of a reproduction that needs no sweep."""

    sections: Sequence[Section]
    """Tables and figures of the result."""
    agrees: bool | None
    """True if all values agree with the published ones; None if none are published."""


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
    """Groups of variants, each shown in its own table up to the earliest end in the group; empty: all variants in one table."""
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
    """True if it measures the time of searches, and simulates nothing."""
    cells: bool = False
    """True for SAFA's table of round lengths: each seed draws a world, in which each cell of the table is simulated."""
    judge: Callable[[Path | None], Judgement] | None = None
    """Function that computes and judges the result without a sweep, or None.

    It takes the file of `--cases`; None stands for the included file.
    """
    takes_cases: bool = False
    """True if `judge` reads the file of `--cases`."""
    sections: Callable[[Sweep], Sequence[Section]] | None = None
    """Function that returns further sections from the finished sweep, or None."""
    sizes: Mapping[Size, Setup]
