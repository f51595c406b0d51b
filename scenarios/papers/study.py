"""Parts of a reproduction: a scenario in three sizes, what to show of it, the paper's numbers, and the rules."""

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
    """Number of seeds and rounds, by size of the reproduction."""

    SMOKE = "smoke"
    """Seconds: does it work at all? Its numbers say nothing."""
    LAPTOP = "laptop"
    """Minutes: what a laptop can tell."""
    PAPER = "paper"
    """As published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A size of a reproduction."""

    seeds: tuple[int, ...]
    settings: tuple[str, ...] = ()
    """Changes of the scenario, each KEY=VALUE."""
    cost: str
    """Effort of the reproduction, in words."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Sections of a result that needs no sweep; `agrees`: True if all of it is as published, None if nothing is published."""

    sections: Sequence[Section]
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A figure or a table, or several that one sweep makes. Its name is that of its scenario."""

    name: str
    paper: str
    shows: str
    """Which figures or tables, and of what."""
    aliases: tuple[str, ...] = ()
    """Names of single figures in it."""
    metrics: tuple[str, ...]
    figures: tuple[str, ...] = ()
    """Names as of `analysis.draw`; those that a size has no data for are left out."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Variants that are shown side by side, each group up to where all of it ends; empty: all variants together."""
    against: tuple[str, ...] = ()
    """Keys against which the metrics are shown."""
    targets: tuple[float, ...] = ()
    """Accuracies of which the slots to reach them are shown."""
    slots_to_target: bool = False
    """True if `published` holds the slots to each of `targets`, one number after the other."""
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variant to metric to what the paper has there; "curve only" where it gives no number."""
    rules: tuple[Rule, ...] = ()
    notes: str = ""
    """Readings of the paper, and differences from it."""
    consensus: bool = False
    """True if tables of message times belong to it."""
    beliefs: bool = False
    """True if it shows beliefs slot by slot; its scenario sets `output.beliefs_table`."""
    accuracies: bool = False
    """True if it is SAFA's table of accuracies, whose cells have tolerances in the place of rules."""
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
