"""Bounds of Theorems 2 to 5 of the channel study for finished runs, as curves beside their AoI regrets.

All four bound the regret against the oracle `means`, for clients that always take part and whose transmissions arrive exactly if
their sub-channel is Good (`inapplicable_reason`). For states that are fixed beforehand: Theorem 2 (any scheduler, lower bound, on
its worst instance) and Theorem 3 (M-Exp3, upper bound). For means that are constant between breakpoints: Theorem 4 (any
scheduler, lower bound) and Theorem 5 (GLR-CUCB, upper bound). Theorem 3 has further conditions (`unmet_condition_of_theorem3`),
and holds at the end of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.figures.settings import Bound
from analysis.metrics.run_metrics import oracle_name
from analysis.results.run import Run
from models.schedulers.m_exp3 import tune_gamma
from models.theory.aoi import lemma3_constant, theorem2_lower, theorem3_holds_from, theorem3_upper, theorem4_lower, theorem5_upper

FloatArray = NDArray[np.float64]
FIXED, PIECEWISE = ("adversarial", "file"), ("stationary", "piecewise-stationary")


def aoi_bounds(runs: Sequence[Run]) -> list[Bound]:
    """Return the bounds that apply to some of `runs`, each once, sorted by label.

    In a sweep over numbers of clients or channels, each of these sizes has bounds of its own, and labels name it.
    """
    by_size: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        if oracle_name(run) == "means" and inapplicable_reason(run) is None:
            by_size.setdefault(_sizes(run), []).append(run)
    bounds: dict[str, Bound] = {}
    for (clients, channels), runs_of_size in by_size.items():
        suffix = f", N = {channels}, K = {clients}" if len(by_size) > 1 else ""
        bounds |= {bound.label: bound for bound in _bounds_of_size(runs_of_size, clients, channels, suffix)}
    return sorted(bounds.values(), key=lambda bound: bound.label)


def _bounds_of_size(runs: Sequence[Run], clients: int, channels: int, suffix: str) -> Iterator[Bound]:
    """Yield the bounds that apply to some of `runs`, which all have this number of clients and of channels.

    A bound may be yielded for several runs. `suffix`: end of the labels.
    """
    size = {"clients": clients, "channels": channels}
    glr_cucb_runs = []
    for run in runs:
        kind, policy = _states_kind(run), run.summary["policy"]
        if kind in FIXED:
            text = "any scheduler on its worst instance, constants of the proof (eq. 67)"
            yield Bound(f"Theorem 2, lower{suffix}", text, _curve(partial(theorem2_lower, **size)))
            if policy == "m-exp3" and unmet_condition_of_theorem3(run) is None:
                yield _theorem3(int(run.summary["rounds"]), size, suffix)
        elif kind in PIECEWISE:
            text = "any scheduler on its worst instance, constants of the proof (eq. 74)"
            yield Bound(f"Theorem 4, lower{suffix}", text, _curve(partial(theorem4_lower, **size)))
            if policy == "glr-cucb":
                glr_cucb_runs.append(run)
    if glr_cucb_runs:
        yield _theorem5(glr_cucb_runs, clients, channels, suffix)


def bound_notes(runs: Sequence[Run]) -> list[str]:
    """Return a sentence for each reason why bounds on the regret against `means` are not drawn."""
    # Sentence -> labels of the runs that it is about, each once and in order.
    reasons: dict[str, dict[str, None]] = {}
    for run in runs:
        if oracle_name(run) != "means":
            continue
        inapplicable = inapplicable_reason(run)
        unmet = unmet_condition_of_theorem3(run) if inapplicable is None and run.summary["policy"] == "m-exp3" else None
        if inapplicable is not None:
            reasons.setdefault(f"Bounds on AoI regret are not drawn for {{}}: {inapplicable}", {})[run.label] = None
        elif unmet is not None:
            reasons.setdefault(f"Theorem 3 is not drawn for {{}}: {unmet}", {})[run.label] = None
    return [reason.replace("{}", ", ".join(labels), 1) for reason, labels in reasons.items()]


def inapplicable_reason(run: Run) -> str | None:
    """Return the first reason why the theorems do not apply to a run, as text; None if they do."""
    scenario, totals = run.scenario, run.summary["totals"]
    for key in ("jammers", "outages", "script"):
        if scenario.get(key):
            return f"{key}: theory has no place for it"
    for link in ("downlink", "uplink"):
        kind = scenario.get(link, {}).get("channel", {}).get("kind", "perfect")
        if kind != "perfect":
            return f"{link}.channel.kind = {kind!r}: updates are lost on Good sub-channels, too"
    presence = scenario.get("availability", {}).get("kind", "always")
    if presence != "always":
        return f"availability.kind = {presence!r}: not everyone takes part in every round"
    if (scenario.get("energy") or {}).get("battery"):
        return "energy.battery: not everyone takes part in every round"
    if totals["late"] or totals["aborted"] or totals["in_flight"]:
        return "updates outlast their rounds, or are aborted"
    return None


def unmet_condition_of_theorem3(run: Run) -> str | None:
    """Return the first condition of Theorem 3 that a run of M-Exp3 does not meet, as text; None if its tables show none.

    The tables do not show how often the oracle's clients succeed; the note of the bound states that condition.
    """
    scheduler, states = run.scenario["scheduler"], run.scenario["channels"].get("states") or {}
    clients, channels = _sizes(run)
    rounds, planned = int(run.summary["rounds"]), int(run.scenario["rounds"])
    least = theorem3_holds_from(clients=clients, channels=channels)
    if _states_kind(run) not in FIXED:
        return "its states are not fixed beforehand"
    if _states_kind(run) == "file" or float(states.get("dwell_rounds", 0.0)) != 1.0:
        return (
            "its proof (eq. 20) takes a client's mean age as one over its rate of success, which wants independent rounds: "
            "channels.states.dwell_rounds = 1"
        )
    if not scheduler.get("normalize", True) or scheduler.get("share"):
        return "it is of rewards in [0, 1] without sharing (scheduler.normalize = true, scheduler.share = 0)"
    tuned = tune_gamma(planned, clients=clients, channels=channels)
    gamma = scheduler.get("gamma")
    if gamma != "tuned" and not math.isclose(float(gamma), tuned, rel_tol=1e-6):
        return f'scheduler.gamma = {gamma} is not tuned to the number of rounds ("tuned": {tuned:.4g})'
    if rounds != planned:
        return f"gamma is tuned to {planned:,} rounds, of which {rounds:,} were run"
    if rounds < least:
        return f"it is proved from {least:,} rounds on, and {rounds:,} were run"
    return None


def _theorem3(rounds: int, size: Mapping[str, int], suffix: str) -> Bound:
    """Return the bound of Theorem 3. It holds at the end of the run only, because gamma is tuned to its length.

    `size`: numbers of clients and channels. `suffix`: end of the label.
    """
    text = (
        "M-Exp3 with its tuned gamma, constants of eq. 21, at the end of the run; where each client of the oracle's set succeeds "
        "in at least one of C(N, K) rounds"
    )

    def value_at(horizon: int) -> float:
        """Return the bound at the end of the run, NaN at other horizons."""
        return theorem3_upper(rounds, clients=size["clients"], channels=size["channels"]) if horizon == rounds else math.nan

    return Bound(f"Theorem 3, upper, at T = {rounds:,}{suffix}", text, _curve(value_at))


def _theorem5(runs: Sequence[Run], clients: int, channels: int, suffix: str) -> Bound:
    """Return the bound of Theorem 5 on the mean regret of `runs`: the mean of the bounds of their instances."""
    # Of each run: number of segments, the largest c' of Lemma 3 over segments, and the least mean of a channel.
    instances: list[tuple[int, float, float]] = []
    for run in runs:
        table = run.summary["aoi"]["channels"]
        means = np.asarray(table["means"], np.float64)
        best = np.sort(means, axis=1)[:, channels - clients :]
        c = max(lemma3_constant(row) for row in best)
        instances.append((len(means), c, float(means.min())))
    segment_counts, constants, least_means = (_range_text(values) for values in zip(*instances, strict=True))
    text = (
        f"GLR-CUCB, eq. 28, mean over {len(runs)} runs: segments {segment_counts}, not known to it; c' of Lemma 3, the largest "
        f"of all segments, {constants}; least mean {least_means}; the constant of Lemma 4, which the paper does not give, taken "
        "as 1"
    )

    def value_at(rounds: int) -> float:
        """Return the mean bound of all instances at `rounds`."""
        values = [
            theorem5_upper(rounds, clients=clients, channels=channels, segments=segments, c=c, mu_min=least)
            for segments, c, least in instances
        ]
        return float(np.mean(values))

    return Bound(f"Theorem 5, upper{suffix}", text, _curve(value_at))


def _range_text(values: Sequence[float]) -> str:
    """Return the smallest and the largest of `values` as text, such as "2 to 5"; one number if they are equal."""
    return " to ".join(f"{end:.3g}" for end in sorted({min(values), max(values)}))


def _curve(bound: Callable[[int], float]) -> Callable[[FloatArray], FloatArray]:
    """Return a function that gives a bound at many numbers of rounds, for figures."""

    def curve(rounds: FloatArray) -> FloatArray:
        """Return the bound at each of `rounds` (n,); NaN where it is not proved (ValueError), or not > 0."""
        values = np.full(len(rounds), np.nan)
        for index, horizon in enumerate(rounds.tolist()):
            try:
                value = bound(int(horizon))
            except ValueError:
                continue
            if value > 0.0:
                values[index] = value
        return values

    return curve


def _sizes(run: Run) -> tuple[int, int]:
    """Return the number of clients and the number of sub-channels of a run."""
    scenario: Mapping[str, Any] = run.scenario
    return int(scenario["clients"]["count"]), int(scenario["channels"]["count"])


def _states_kind(run: Run) -> str:
    """Return the kind of `channels.states` of a run; empty without it."""
    states = run.scenario["channels"].get("states") or {}
    return str(states.get("kind", ""))
