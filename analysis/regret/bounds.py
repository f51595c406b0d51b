"""The bound of PAUSE's Theorem 3 (Peleg et al., eq. 17) as summaries state it, as a curve to draw beside regrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.figures.settings import Bound
from analysis.results.run import Run
from analysis.statistics.arrays import FloatArray

EXACT = ("pause", "pause-brute")
"""Policies that the theorem covers."""


def regret_bounds(runs: Sequence[Run]) -> list[Bound]:
    """Return one curve, the mean of the bounds that the summaries of `runs` state; empty if no summary states a bound."""
    stated: list[dict[str, Any]] = []
    for run in runs:
        bound = (run.summary.get("pause") or {}).get("bound")
        if bound:
            stated.append(bound)
    if not stated:
        return []
    constant = float(np.mean([bound["constant"] for bound in stated]))
    per_log_round = float(np.mean([bound["per_log_round"] for bound in stated]))
    deltas = sorted({f"{bound['delta']:.2g}" for bound in stated}, key=float)
    least = deltas[0] if len(deltas) == 1 else f"{deltas[0]} to {deltas[-1]}"
    words = f"c = {stated[0]['c']:g}, with which the proof ends (the theorem prints 2); least gap of two expectations {least}"

    def values(rounds: FloatArray) -> FloatArray:
        """Return the bound after `rounds` (n,)."""
        return np.asarray(constant + per_log_round * np.log(rounds))

    return [Bound("bound of eq. 17", words, values)]


def regret_bound_notes(runs: Sequence[Run]) -> list[str]:
    """Return a sentence for each reason why the bound is not drawn, among runs of PAUSE that measured a regret."""
    reasons: dict[str, dict[str, None]] = {}
    for run in runs:
        reason = (run.summary.get("pause") or {}).get("no_bound")
        if run.policy in EXACT and reason:
            reasons.setdefault(str(reason), {})[run.label] = None
    return [f"The bound of eq. 17 is not drawn for {', '.join(labels)}: {reason}" for reason, labels in reasons.items()]
