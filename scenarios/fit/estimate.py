"""All estimates of a log: laws or speeds by phase and class, losses by direction and class, and what is doubtful."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scenarios.fit.amounts import FittedSpeed, amounts_differ, fit_speed
from scenarios.fit.change_points import NoRupturesError, change_rounds
from scenarios.fit.durations import KINDS, Durations, FittedLaw, UnfitError, fit_laws
from scenarios.fit.log import PRESENT, Log
from scenarios.fit.losses import UNSEEN, FittedLoss, fit_losses
from scenarios.schema.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

_FEW = 10
_MUCH_CUT = 0.5
_DEVIATES = 0.1
_CORRELATED = 0.3
AMOUNTS = {"compute": "samples", "download": "bytes", "upload": "bytes"}
"""The amount that the duration of a phase may grow with."""
UNITS = {"samples": "sample", "bytes": "byte"}


@dataclass(frozen=True, slots=True)
class PhaseFit:
    """Estimates of a phase of one class: `laws`, the chosen one first, or the `speed`; `typical`: the median amount, if known."""

    phase: str
    group: str
    durations: Durations
    laws: list[FittedLaw]
    speed: FittedSpeed | None
    typical: float | None

    @property
    def law(self) -> FittedLaw:
        """The chosen law."""
        return self.laws[0]


@dataclass(frozen=True, slots=True)
class LossFit:
    """Losses of a direction (`download` or `upload`) of one class, the better law first."""

    phase: str
    group: str
    laws: list[FittedLoss]


@dataclass(frozen=True, slots=True)
class Estimates:
    """All that a log says of a world.

    Attributes:
        log: the log.
        phases: by phase and class.
        losses: by direction and class.
        per_round: clients of a round, the median.
        deadline_s: seconds after which the server cut updates off; None if it cut none.
        cautions: what is doubtful, in sentences.
    """

    log: Log
    phases: dict[tuple[str, str], PhaseFit]
    losses: dict[tuple[str, str], LossFit]
    per_round: int
    deadline_s: float | None
    cautions: list[str] = field(default_factory=list)


def estimate(log: Log, *, laws: Mapping[str, str] | None = None, deadline_s: float | None = None) -> Estimates:
    """Estimate the laws of a log.

    Args:
        log: the log.
        laws: a law by name for some phases, in place of the one that Akaike's criterion chooses.
        deadline_s: the server's deadline, seconds after a round's start; None: the longest time at which it cut an update off.

    Raises:
        UserError: a phase of a class has too few durations, or all of them are cut off; a law is unknown.
    """
    forced = dict(laws or {})
    for phase, kind in forced.items():
        if phase not in log.phases():
            raise UserError(f"laws: {phase}: the log has no such phase; {did_you_mean(phase, log.phases())}")
        if kind not in KINDS:
            raise UserError(f"laws: {phase} = {kind!r}: unknown law; {did_you_mean(kind, KINDS)}")
    if not log.phases():
        raise UserError(f"{log.source}: has no durations of a phase; only presence")
    cautions: list[str] = []
    phases, losses = {}, {}
    for phase in log.phases():
        for group in log.classes:
            rows = log.phase(phase, group)
            if not len(rows):
                reason = f"class {group!r} has no row of phase {phase!r}; leave the class out, or add its rows"
                raise UserError(f"{log.source}: {reason}")
            phases[phase, group] = _fit_phase(rows, phase, group, forced.get(phase), cautions, log.source)
            if phase != "compute":
                losses[phase, group] = LossFit(phase, group, fit_losses(_outcomes(rows)))
    attempts = log.attempts()
    per_round = int(np.median(attempts.groupby("round").size())) if len(attempts) else len(log.names)
    if deadline_s is None:
        deadline_s = log.deadline_s
    if deadline_s is None:
        cut_off = attempts.loc[attempts["late"] & attempts["cut"], "seconds"]
        deadline_s = float(cut_off.max()) if len(cut_off) else None
    if log.phases() == ["total"]:
        cautions.append("the log has one duration an update: its phases cannot be told apart, and one law holds for their sum")
    return Estimates(log, phases, losses, per_round, deadline_s, cautions)


def _fit_phase(
    rows: pd.DataFrame, phase: str, group: str, forced: str | None, cautions: list[str], source: str
) -> PhaseFit:
    seconds, cut = rows["seconds"].to_numpy(np.float64), rows["cut"].to_numpy(np.bool_)
    durations = Durations.of(seconds, cut)
    where = f"{phase} of class {group}"
    try:
        laws = fit_laws(durations)
    except UnfitError as error:
        raise UserError(f"{source}: {where}: {error}") from None
    if forced is not None:
        chosen = [law for law in laws if law.kind == forced]
        if not chosen:
            raise UserError(f"{source}: {where}: the law {forced!r} does not fit these durations; some are 0, or all are equal")
        laws = chosen + [law for law in laws if law.kind != forced]
    amount = AMOUNTS.get(phase)
    amounts = rows[amount].to_numpy(np.float64) if amount else np.full(len(rows), np.nan)
    typical = float(np.median(amounts)) if len(amounts) and np.isfinite(amounts).all() and (amounts > 0).all() else None
    by_amount = forced is None and amounts_differ(amounts) and seconds.min() > 0
    speed = fit_speed(seconds, cut, amounts) if by_amount else None
    cautions += _doubts(rows, durations, laws[0], where, speed is None) + _changes(rows, where)
    return PhaseFit(phase, group, durations, laws, speed, typical)


def _doubts(rows: pd.DataFrame, durations: Durations, law: FittedLaw, where: str, by_law: bool) -> list[str]:
    """Return what a reader must doubt of the estimates of one phase of one class."""
    doubts = []
    if durations.complete < _FEW:
        doubts.append(f"{where}: only {durations.complete} complete durations; intervals are rough")
    if durations.censored_share > _MUCH_CUT:
        share = 100 * durations.censored_share
        doubts.append(f"{where}: {share:.0f} % of the durations are cut off; the law beyond the deadline is extrapolated")
    if by_law and law.deviation > _DEVIATES:
        doubts.append(f"{where}: the law {law.kind} is off by up to {law.deviation:.2f} in probability; compare the figure")
    correlation = _autocorrelation(rows)
    if correlation > _CORRELATED:
        drawn = "the simulation draws them independently"
        doubts.append(f"{where}: successive durations of a client are correlated ({correlation:.2f}); {drawn}")
    return doubts


def _changes(rows: pd.DataFrame, where: str) -> list[str]:
    """Return a caution about the rounds at which the durations change; one law is fitted to all of them."""
    try:
        changes = change_rounds(rows)
    except NoRupturesError as error:
        return [f"{where}: {error}"]
    if not changes:
        return []
    rounds = ", ".join(map(str, changes))
    return [f"{where}: the durations change at round {rounds}; one law is fitted to all: fit the parts, or add [[changes]]"]


def _autocorrelation(rows: pd.DataFrame) -> float:
    """Return the mean correlation of successive complete durations of a client, in logarithms; 0 where too few are known."""
    whole = rows[~rows["cut"] & (rows["seconds"] > 0)].sort_values(["client", "round"], kind="stable")
    logs = np.log(whole["seconds"].to_numpy(np.float64))
    clients = whole["client"].to_numpy()
    centred = logs - whole.assign(log=logs).groupby("client")["log"].transform("mean").to_numpy()
    same = clients[1:] == clients[:-1]
    if same.sum() < 3 * _FEW or not np.any(centred):
        return 0.0
    return float((centred[1:] * centred[:-1])[same].mean() / np.mean(centred**2))


def _outcomes(rows: pd.DataFrame) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return outcomes (clients, rounds): 1 lost, 0 complete, `UNSEEN` nothing sent or cut off.

    Without rounds the columns are each client's transmissions in their order.
    """
    seen = rows[~rows["cut"]]
    clients = np.unique(seen["client"], return_inverse=True)[1]
    numbers = seen["round"].to_numpy(np.int64)
    if len(numbers) and (numbers == 0).any():
        numbers = seen.groupby("client").cumcount().to_numpy(np.int64) + 1
    if not len(numbers):
        return np.full((1, 1), UNSEEN, np.int64)
    first, last = int(numbers.min()), int(numbers.max())
    table = np.full((int(clients.max()) + 1, last - first + 1), UNSEEN, np.int64)
    table[clients, numbers - first] = seen["lost"].to_numpy(np.int64)
    return table


def presence_rows(log: Log) -> pd.DataFrame:
    """Return the intervals of presence: `client`, `start_s`, `end_s`."""
    rows = log.phase(PRESENT)
    return rows.assign(end_s=rows["start_s"] + rows["seconds"])[["client", "start_s", "end_s"]].sort_values(["client", "start_s"])
