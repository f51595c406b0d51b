"""Estimates from a log: laws or speeds by phase and class, losses by direction and class, bandwidths, presence, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from scenarios.fit.amounts import FittedSpeed, amounts_differ, fit_speed
from scenarios.fit.bandwidths import BANDWIDTHS, FittedBandwidth, Rates, fit_bandwidth
from scenarios.fit.change_points import NoRupturesError, change_rounds
from scenarios.fit.durations import KINDS, Durations, FittedLaw, UnfitError, fit_laws
from scenarios.fit.log import PRESENT, RATES, Log
from scenarios.fit.losses import UNSEEN, FittedLoss, fit_losses
from scenarios.fit.presence import PRESENCES, FittedPresence, fit_presence
from scenarios.schema.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

# Limits of warnings about a phase of a class.
_FEW_DURATIONS = 10
_LARGE_CUT_SHARE = 0.5
_LARGE_DEVIATION = 0.1
_LARGE_CORRELATION = 0.3
_CHANGES, _NONE = "changes", "none"
_LEAST_CLOSES = 5
"""Smallest number of rounds with late updates that determines the rule that closed them."""
_DEADLINE_SPREAD = 0.01
"""Largest relative spread of the times of one deadline, as a server measures them."""
AMOUNTS = {"compute": "samples", "download": "bytes", "upload": "bytes"}
"""Phase -> column of the amount that its duration may grow with."""
LINKS = {phase: link for link, phase in RATES.items()}
"""Phase -> link that carries its messages."""


@dataclass(frozen=True, slots=True)
class PhaseFit:
    """Estimates of a phase of one class."""

    phase: str
    group: str
    durations: Durations
    laws: list[FittedLaw]
    """Laws of the durations, the chosen one first."""
    speed: FittedSpeed | None
    """Overhead and speed, used in place of a law; None if amounts do not differ."""
    typical: float | None
    """Median amount; None if amounts are unknown."""
    first_round: int = 1
    """First round of the scenario for which the estimates hold."""
    later: tuple[PhaseFit, ...] = ()
    """Estimates from each change point on, in order; all have the same kind of law."""

    @property
    def law(self) -> FittedLaw:
        """The chosen law."""
        return self.laws[0]


@dataclass(frozen=True, slots=True)
class LinkFit:
    """Bandwidth of a link of one class."""

    link: str
    """"downlink" or "uplink"."""
    group: str
    laws: list[FittedBandwidth]
    """Laws of the bandwidth, the chosen one first."""
    typical: float
    """Median size of its messages, bytes."""
    overhead_s: float
    """Seconds of a transfer that carry no bytes."""
    rates: Rates
    """Measured rates."""

    @property
    def law(self) -> FittedBandwidth:
        """The chosen law."""
        return self.laws[0]


@dataclass(frozen=True, slots=True)
class LossFit:
    """Losses of a phase of messages (`download`, `upload` or `total`) of one class; the better law comes first."""

    phase: str
    group: str
    laws: list[FittedLoss]


@dataclass(frozen=True, slots=True)
class Estimates:
    """All estimates from a log.

    Attributes:
        log: the log.
        phases: estimates by phase and class.
        losses: losses by phase and class.
        links: bandwidths by link and class.
        presence: law of presence; None if the log has none.
        per_round: median number of clients of a round.
        deadline_s: seconds after which the server cut updates off; None if it cut none, or closed rounds otherwise.
        first: number of deliveries at which the server closed a round; None if it did not.
        cautions: warnings, as sentences.
    """

    log: Log
    phases: dict[tuple[str, str], PhaseFit]
    losses: dict[tuple[str, str], LossFit]
    per_round: int
    deadline_s: float | None
    first: int | None = None
    cautions: list[str] = field(default_factory=list)
    links: dict[tuple[str, str], LinkFit] = field(default_factory=dict)
    presence: FittedPresence | None = None

    def hold_last_laws(self) -> Estimates:
        """Return the estimates that hold after the last change point, for a scenario that begins there."""
        last_fits = {}
        for key, fit in self.phases.items():
            last_fits[key] = replace(fit.later[-1], first_round=1) if fit.later else fit
        return replace(self, phases=last_fits)


def estimate(log: Log, *, laws: Mapping[str, str] | None = None, deadline_s: float | None = None) -> Estimates:
    """Estimate the laws of a log.

    Args:
        log: the log.
        laws: names of the laws to use for some phases, links or presence, in place of the best ones. {"changes": "none"} fits
            one law to all rounds.
        deadline_s: the server's deadline, seconds after a round's start; None: the longest time at which it cut an update off.

    Raises:
        UserError: a phase of a class has too few durations, or all of them are cut off; a law is unknown.
    """
    forced = dict(laws or {})
    _check_laws(forced, log)
    if not log.phases():
        raise UserError(f"{log.source}: has no durations of a phase; only presence or bandwidth")
    cautions = list(log.doubts)
    phases, losses, links = {}, {}, {}
    for phase in log.phases():
        link = LINKS.get(phase)
        for group in log.classes:
            rows = log.phase(phase, group)
            if not len(rows):
                reason = f"class {group!r} has no row of phase {phase!r}; leave the class out, or add its rows"
                raise UserError(f"{log.source}: {reason}")
            if phase != "compute":
                losses[phase, group] = LossFit(phase, group, fit_losses(_outcomes(rows)))
            if link is not None and log.has_rows(link):
                links[link, group] = _fit_link(log, rows, link, group, forced.get(link))
                continue
            seeks_changes = _CHANGES not in forced
            fit = _fit_phase(rows, phase, group, forced.get(phase), cautions, log, seeks_changes)
            phases[phase, group] = fit
            if link is not None and fit.speed is not None:
                varying = _fit_varying_link(rows, fit, link)
                if varying is not None:
                    links[link, group] = varying
    # A scenario gives a link either laws or numbers, so keep laws only for links where all classes have one.
    whole_links = [link for link in RATES if all((link, group) in links for group in log.classes)]
    links = {(link, group): fit for (link, group), fit in links.items() if link in whole_links}
    attempts = log.attempts()
    per_round = int(np.median(attempts.groupby("round").size())) if len(attempts) else len(log.names)
    first = log.first
    if first is None and deadline_s is None:
        first = _deliveries_at_close(attempts)
    if deadline_s is None:
        deadline_s = log.deadline_s
    if deadline_s is None and first is None:
        cut_off = attempts.loc[attempts["late"] & attempts["cut"], "seconds"]
        deadline_s = float(cut_off.max()) if len(cut_off) else None
    for (phase, group), loss in losses.items():
        best_law = loss.laws[0]
        if best_law.number and best_law.lost.value == 1.0:
            cautions.append(f"{phase} of class {group}: every transmission was lost; the scenario delivers none of them")
    if log.phases() == ["total"]:
        cautions.append("the log has one duration an update: its phases cannot be told apart, and one law holds for their sum")
    presence = fit_presence(log, forced.get(PRESENT))
    return Estimates(
        log=log,
        phases=phases,
        losses=losses,
        per_round=per_round,
        deadline_s=deadline_s,
        first=first,
        cautions=cautions,
        links=links,
        presence=presence,
    )


def _deliveries_at_close(attempts: pd.DataFrame) -> int | None:
    """Return n if the server closed its rounds at the n-th delivery, else None. `attempts`: a row for each (`Log.attempts`).

    Such a server has n deliveries in each round with late updates, and cuts updates off after different times. A server with a
    deadline has different numbers of deliveries, and cuts all updates off after equal times.
    """
    late = attempts[attempts["late"]]
    cut_s = late.loc[late["cut"], "seconds"]
    deliveries = attempts.groupby("round")["delivered"].sum()[late["round"].unique()]
    if len(deliveries) < _LEAST_CLOSES or deliveries.nunique() > 1 or deliveries.iloc[0] == 0:
        return None
    has_deadline = len(cut_s) > 0 and np.ptp(cut_s) <= _DEADLINE_SPREAD * cut_s.max()
    return None if has_deadline else int(deliveries.iloc[0])


def _check_laws(forced: Mapping[str, str], log: Log) -> None:
    """Raise UserError if `forced` names a phase or link that the log does not have, or an unknown law."""
    phases = [*log.phases(), *(phase for phase in (*RATES, PRESENT) if log.has_rows(phase))]
    for phase, kind in forced.items():
        if phase == _CHANGES and kind == _NONE:
            continue
        if phase == _CHANGES:
            raise UserError(f"laws: {phase} = {kind!r}: must be {_NONE!r} (one law for all rounds), or left out")
        if phase not in phases:
            raise UserError(f"laws: {phase}: the log has no such phase; {did_you_mean(phase, phases)}")
        kinds: tuple[str, ...]
        if phase == PRESENT:
            kinds = PRESENCES
        elif phase in RATES:
            kinds = BANDWIDTHS
        else:
            kinds = KINDS
        if kind not in kinds:
            raise UserError(f"laws: {phase} = {kind!r}: unknown law; {did_you_mean(kind, kinds)}")


def _fit_link(log: Log, rows: pd.DataFrame, link: str, group: str, forced: str | None) -> LinkFit:
    """Fit laws to the measured bandwidth of a link of a class; raises UserError.

    `rows`: transfers of the class over the link. `forced`: law to use; None: the best one.
    """
    measured = log.phase(link, group)
    where = f"{link} of class {group}"
    if not len(measured):
        raise UserError(f"{log.source}: {where}: has no measured bandwidth, which other classes have; add rows of phase {link!r}")
    if not rows["bytes"].gt(0).all():
        reason = f"its transfers have no sizes; give 'bytes' in the rows of phase {RATES[link]!r}, or leave out those of {link!r}"
        raise UserError(f"{log.source}: {where}: {reason}")
    rates = Rates.from_rows(measured)
    if not rates.bytes_per_s.any():
        raise UserError(f"{log.source}: {where}: every measured bandwidth is 0; leave the class out")
    laws = fit_bandwidth(rates)
    if forced == "trace":
        number = len(rates.bytes_per_s)
        laws = [FittedBandwidth("trace", {}, {"kind": "trace"}, np.nan, 0, number), *laws]
    elif forced is not None:
        chosen = [law for law in laws if law.kind == forced]
        if not chosen:
            raise UserError(f"{log.source}: {where}: the law {forced!r} does not fit these rates; leave the choice to the fit")
        laws = chosen + [law for law in laws if law.kind != forced]
    return LinkFit(link, group, laws, float(rows["bytes"].median()), 0.0, rates)


def _fit_varying_link(rows: pd.DataFrame, fit: PhaseFit, link: str) -> LinkFit | None:
    """Fit a bandwidth that varies over time to transfers of several sizes; None if such a fit is not possible.

    The fit needs a speed, start times, and no change of level (`fit.later`). The speed's overhead is taken off each transfer.
    A Gauss-Markov law with a standard deviation above half of its mean is not used: it would often be at its floor, 0 bytes/s.
    """
    complete = rows[~rows["cut"]]
    if fit.speed is None or fit.later or complete["start_s"].isna().any():
        return None
    rates = Rates.from_rows(complete, fit.speed.overhead_s.value)
    laws = [law for law in fit_bandwidth(rates) if law.kind == "gauss-markov"]
    if not laws or laws[0].parameters["std_bytes_per_s"].value > 0.5 * laws[0].parameters["mean_bytes_per_s"].value:
        return None
    return LinkFit(link, fit.group, laws, fit.typical or 1.0, fit.speed.overhead_s.value, rates)


def _fit_phase(
    rows: pd.DataFrame, phase: str, group: str, forced: str | None, cautions: list[str], log: Log, seeks_changes: bool
) -> PhaseFit:
    """Return the estimates of one phase of one class from its `rows`; raises UserError. Warnings are added to `cautions`.

    `forced`: law to use; None: the best one. `seeks_changes`: True to fit the rounds between change points by themselves: the
    result is then the fit up to the first change, which holds the others in `later`. If a part cannot be fitted by itself, the
    result is one fit to all rows.
    """
    where = f"{phase} of class {group}"
    try:
        fit_to_all = _fit_rows(rows, phase, group, forced)
    except UnfitError as error:
        raise UserError(f"{log.source}: {where}: {error}") from None
    changes: list[int] = []
    try:
        if seeks_changes:
            changes = change_rounds(rows, AMOUNTS[phase] if fit_to_all.speed is not None else None)
    except NoRupturesError as error:
        cautions.append(f"{where}: {error}")
    # Rows between change points, and the fit of each; all rows and one fit without changes.
    pieces, parts = [rows], [fit_to_all]
    if changes:
        edges = [0, *changes, int(rows["round"].max()) + 1]
        between = [rows[rows["round"].between(first, end - 1)] for first, end in pairwise(edges)]
        fits = _fit_parts(between, fit_to_all, forced, log)
        remedy = "one law is fitted to all: a part has too few durations of its own"
        if fits:
            pieces, parts = between, fits
            remedy = "the scenario has them as changes"
        cautions.append(f"{where}: the durations change at round {', '.join(map(str, changes))}; {remedy}")
    for piece, part in zip(pieces, parts, strict=True):
        since = f" from round {part.first_round}" if part.first_round > 1 else ""
        cautions += _find_doubts(piece, part, where + since)
    return replace(parts[0], later=tuple(parts[1:]))


def _fit_rows(rows: pd.DataFrame, phase: str, group: str, forced: str | None) -> PhaseFit:
    """Fit laws to the rows of a phase of a class, and a speed if their amounts differ; raises UnfitError."""
    seconds, cut = rows["seconds"].to_numpy(np.float64), rows["cut"].to_numpy(np.bool_)
    durations = Durations.sort(seconds, cut)
    laws = fit_laws(durations)
    if forced is not None:
        laws = _choose_first(laws, forced)
    amount = AMOUNTS.get(phase)
    amounts = rows[amount].to_numpy(np.float64) if amount else np.full(len(rows), np.nan)
    amounts_known = len(amounts) > 0 and bool(np.isfinite(amounts).all() and (amounts > 0).all())
    typical = float(np.median(amounts)) if amounts_known else None
    by_amount = forced is None and amounts_differ(amounts) and seconds.min() > 0
    speed = fit_speed(seconds, cut, amounts) if by_amount else None
    return PhaseFit(phase, group, durations, laws, speed, typical)


def _choose_first(laws: list[FittedLaw], kind: str) -> list[FittedLaw]:
    """Return the laws with that of `kind` first; raises UnfitError if it is not among them."""
    chosen = [law for law in laws if law.kind == kind]
    if not chosen:
        raise UnfitError(f"the law {kind!r} does not fit these durations; some are 0, or all are equal")
    return chosen + [law for law in laws if law.kind != kind]


def _fit_parts(pieces: list[pd.DataFrame], fit_to_all: PhaseFit, forced: str | None, log: Log) -> list[PhaseFit]:
    """Fit each of the `pieces` of rows between change points, with one kind of law for all.

    The kind is the one with the least sum of Akaike's criteria, unless it is `forced`. All pieces need the same kind, because a
    change point of a scenario changes parameters of a law, not its kind. Return an empty list if a piece has too few durations,
    or no kind of law fits all.
    """
    numbers = log.round_numbers()
    try:
        fits = [_fit_rows(piece, fit_to_all.phase, fit_to_all.group, forced) for piece in pieces]
    except UnfitError:
        return []
    only_some_have_speeds = len({fit.speed is None for fit in fits}) > 1
    if only_some_have_speeds or min(fit.durations.complete for fit in fits) < _FEW_DURATIONS:
        return []
    # Kinds of law that fit every piece. An empirical law has no parameters that could change.
    kinds = set.intersection(*({law.kind for law in fit.laws if law.parameters} for fit in fits))
    if not kinds or forced == "empirical":
        return []

    def total_aic(kind: str) -> float:
        return sum(law.aic for fit in fits for law in fit.laws if law.kind == kind)

    kind = forced or min(sorted(kinds), key=total_aic)
    first_numbers = [int(piece.loc[piece["round"] > 0, "round"].min()) for piece in pieces[1:]]
    # Rounds of the scenario count from 1 without gaps; numbers of rounds in a log may have gaps.
    starts = [1, *(int(np.searchsorted(numbers, first)) + 1 for first in first_numbers)]
    return [
        replace(fit, laws=_choose_first(fit.laws, kind), first_round=start, typical=fit_to_all.typical)
        for fit, start in zip(fits, starts, strict=True)
    ]


def _find_doubts(rows: pd.DataFrame, fit: PhaseFit, where: str) -> list[str]:
    """Return warnings about the estimates of one phase of one class, from the rounds in `rows`."""
    durations, law = fit.durations, fit.law
    doubts = []
    if fit.speed is None and not durations.seconds[0] > 0.0:
        zeros = int(durations.counts[durations.seconds == 0.0].sum())
        remedy = "only a shifted exponential fits them; leave these rows out if a clock was too coarse"
        doubts.append(f"{where}: {zeros} of the durations are 0 s: {remedy}")
    if durations.complete < _FEW_DURATIONS:
        doubts.append(f"{where}: only {durations.complete} complete durations; intervals are rough")
    if durations.censored_share > _LARGE_CUT_SHARE:
        share = 100 * durations.censored_share
        doubts.append(f"{where}: {share:.0f} % of the durations are cut off; the law beyond the deadline is extrapolated")
    if fit.speed is None and law.deviation > _LARGE_DEVIATION:
        doubts.append(f"{where}: the law {law.kind} is off by up to {law.deviation:.2f} in probability; compare the figure")
    correlation = _autocorrelation(rows)
    if correlation > _LARGE_CORRELATION:
        consequence = "the simulation draws them independently"
        doubts.append(f"{where}: successive durations of a client are correlated ({correlation:.2f}); {consequence}")
    return doubts


def _autocorrelation(rows: pd.DataFrame) -> float:
    """Return the mean correlation of successive complete durations of a client, in logarithms; 0 if there are too few."""
    complete = rows[~rows["cut"] & (rows["seconds"] > 0)].sort_values(["client", "round"], kind="stable")
    logs = np.log(complete["seconds"].to_numpy(np.float64))
    clients = complete["client"].to_numpy()
    centred = logs - complete.assign(log=logs).groupby("client")["log"].transform("mean").to_numpy()
    # Pairs of successive rows are of one client, or of two.
    of_one_client = clients[1:] == clients[:-1]
    if of_one_client.sum() < 3 * _FEW_DURATIONS or not np.any(centred):
        return 0.0
    products = (centred[1:] * centred[:-1])[of_one_client]
    return float(products.mean() / np.mean(centred**2))


def _outcomes(rows: pd.DataFrame) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return a table of outcomes (clients, rounds) for `fit_losses`: 1 lost, 0 complete, `UNSEEN` nothing sent or cut off.

    Without rounds the columns are each client's transmissions in their order.
    """
    complete = rows[~rows["cut"]]
    if not len(complete):
        return np.full((1, 1), UNSEEN, np.int64)
    _, clients = np.unique(complete["client"], return_inverse=True)
    rounds = complete["round"].to_numpy(np.int64)
    if (rounds == 0).any():
        rounds = complete.groupby("client").cumcount().to_numpy(np.int64) + 1
    first, last = int(rounds.min()), int(rounds.max())
    table = np.full((int(clients.max()) + 1, last - first + 1), UNSEEN, np.int64)
    table[clients, rounds - first] = complete["lost"].to_numpy(np.int64)
    return table


def trace_rows(estimates: Estimates, link: str) -> pd.DataFrame:
    """Return the measured bandwidths of `link` as the rows of a trace, by client and time.

    Columns: `client`; `time_s`, seconds since the client's first measurement; `bytes_per_s`. Of several measurements of a client
    at one time the first is kept. Without rows if the chosen law of the link is not "trace" for any class.
    """
    import pandas as pd

    if not any(fit.link == link and fit.law.kind == "trace" for fit in estimates.links.values()):
        return pd.DataFrame(columns=["client", "time_s", "bytes_per_s"])
    rows = estimates.log.phase(link).sort_values(["client", "start_s"], kind="stable").drop_duplicates(["client", "start_s"])
    first = rows.groupby("client")["start_s"].transform("min")
    rate = rows["bytes"] / rows["seconds"]
    return pd.DataFrame({"client": rows["client"], "time_s": rows["start_s"] - first, "bytes_per_s": rate})
