"""Says which runs of a sweep are missing, wherever its runs are compared."""

from __future__ import annotations

from analysis.sweeps import Sweep

MOST_NAMED = 12
"""Missing runs that are named one by one; of more, as many are named and the others counted."""


def missing_words(sweep: Sweep) -> str:
    """One or two sentences on the runs of `sweep` that are not complete; empty where all are."""
    if not sweep.missing:
        return ""
    seeds: dict[str, list[int]] = {}
    for label, seed in sweep.missing[:MOST_NAMED]:
        seeds.setdefault(label, []).append(seed)
    named = "; ".join(f"{label}, seed{'s' * (len(of) > 1)} {', '.join(map(str, of))}" for label, of in seeds.items())
    further = len(sweep.missing) - MOST_NAMED
    named += f"; and {further} more" if further > 0 else ""
    total = len(sweep) + len(sweep.missing)
    return f"{len(sweep.missing)} of {total} planned runs are not complete: {named}. To complete them: netsim sweep .. --resume"
