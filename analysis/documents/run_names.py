"""Names of runs in sentences, such as the runs of a sweep that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.results.sweep import Sweep

MOST_NAMED = 12
"""Most variants, and most stretches of seeds of a variant, that are named; the runs of further ones are counted."""


def missing_words(sweep: Sweep) -> str:
    """Return a sentence that names the planned runs of `sweep` that are not complete; "" if all are."""
    if not sweep.missing:
        return ""
    total = len(sweep) + len(sweep.missing)
    named = runs_in_words(sweep.missing)
    return f"{len(sweep.missing)} of {total} planned runs are not complete: {named}. To complete them: netsim sweep .. --resume"


def runs_in_words(runs: Iterable[tuple[str, int]]) -> str:
    """Return a phrase that names runs (label, seed) by variant, such as "PAUSE, seeds 1..10; random, seed 3"."""
    seeds: dict[str, list[int]] = {}
    for label, seed in runs:
        seeds.setdefault(label, []).append(seed)
    named = []
    for label, numbers in list(seeds.items())[:MOST_NAMED]:
        stretches = _stretches(numbers)
        further = sum(map(len, stretches[MOST_NAMED:]))
        listed = ", ".join(_stretch_text(stretch) for stretch in stretches[:MOST_NAMED])
        named.append(f"{label}, seed{'s' * (len(numbers) > 1)} {listed}" + (f" and {further} more" if further else ""))
    others = sum(len(numbers) for numbers in list(seeds.values())[MOST_NAMED:])
    return "; ".join([*named, *([f"and {others} more"] if others else [])])


def _stretches(seeds: Sequence[int]) -> list[list[int]]:
    """Sort the seeds and split them into stretches of consecutive numbers."""
    stretches: list[list[int]] = []
    for seed in sorted(seeds):
        if stretches and seed == stretches[-1][-1] + 1:
            stretches[-1].append(seed)
        else:
            stretches.append([seed])
    return stretches


def _stretch_text(stretch: Sequence[int]) -> str:
    """Return a stretch as text: "3..7", or its numbers if there are fewer than three."""
    is_short = len(stretch) < 3
    return ", ".join(map(str, stretch)) if is_short else f"{stretch[0]}..{stretch[-1]}"
