"""Fit of a log into a folder with a scenario: estimate, write, predict, report."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.fit.estimate import Estimates, estimate, trace_rows
from scenarios.fit.log import RATES, Log, read_log
from scenarios.fit.prediction import Prediction, predict
from scenarios.fit.presence import presence_rows
from scenarios.fit.scenario_text import scenario_text
from scenarios.runs.folders.replacement import check_place, writing
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FILES = ("scenario.toml", "devices.csv", "presence.csv", "downlink.csv", "uplink.csv", "report.html")
"""Names of the files that a fit may write."""
_FITTED_SHARE = 0.7
"""Share of the rounds, the first ones, from which the held-out rounds are predicted."""
_LEAST_ROUNDS = 10
"""Smallest number of rounds of which some are held out."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted scenario."""

    scenario: Path
    """File of the scenario."""
    estimates: Estimates
    check: list[Prediction]
    """Predictions of all rounds of the log."""
    hold_out: list[Prediction]
    """Predictions of the last rounds by a fit to the first ones."""


def fit_log(
    source: str | Path | pd.DataFrame,
    out: Path,
    *,
    by: str = "class",
    laws: Mapping[str, str] | None = None,
    deadline_s: float | None = None,
    seeds: int = 20,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Fit:
    """Fit a scenario to a log and write it into the folder `out`.

    Args:
        source: a CSV or Parquet file, a run's folder, or a table (`scenarios.fit.log`).
        out: a new or empty folder; it gets `scenario.toml`, `devices.csv`, `report.html`, `presence.csv` if
            presence was logged, and `downlink.csv` or `uplink.csv` if a measured bandwidth is replayed.
        by: "class": clients of one class share their laws; "client": each client has its own.
        laws: a law by name for some phases, such as {"upload": "gamma"}, a link or `present`; {"changes": "none"} fits one law
            to all rounds.
        deadline_s: the server's deadline in seconds; None: the longest time at which it cut an update off.
        seeds: seeds of the predictive check; 0: no check.
        overwrite: replace the files of an earlier fit.
        progress: called with the number of finished runs of the check.

    Raises:
        UserError: the log cannot be read or determines no law, or the folder holds something else.
    """
    if deadline_s is not None and not deadline_s > 0:
        raise UserError(f"deadline_s = {deadline_s!r}: must be > 0 seconds")
    if seeds < 0 or seeds == 1:
        raise UserError(f"seeds = {seeds!r}: must be 0, or at least 2 for a band")
    _check_folder(out, overwrite)
    log = read_log(source, by=by)
    estimates = estimate(log, laws=laws, deadline_s=deadline_s)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = scenario_text(estimates, out.resolve().name, out)
        _write_scenario(estimates, text, folder)
        check, hold_out = _predictions(estimates, folder, laws, seeds, progress)
        # Matplotlib takes a second to load, so it is imported last, after everything that may be refused.
        from scenarios.fit.report import report_html

        (folder / "report.html").write_text(report_html(estimates, text, check, hold_out, seeds), encoding="utf-8")
        _move_files(folder, out)
    return Fit(out / "scenario.toml", estimates, check, hold_out)


def _check_folder(out: Path, overwrite: bool) -> None:
    """Raise UserError unless `out` is new, empty, or an earlier fit that may be overwritten."""
    with writing(out):
        check_place(out)
        names = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if names - set(FILES):
        raise UserError(f"{out}: holds files that no fit wrote ({sorted(names - set(FILES))[0]}); name a new folder")
    if names and not overwrite:
        raise UserError(f"{out}: holds an earlier fit; name a new folder, or give --overwrite")


def _move_files(folder: Path, out: Path) -> None:
    """Move the files of the fit into `out`, and delete files of an earlier fit that this one does not have."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if (folder / name).is_file():
                shutil.move(folder / name, out / name)
            else:
                (out / name).unlink(missing_ok=True)


def _write_scenario(estimates: Estimates, text: str, folder: Path) -> None:
    """Write the scenario's `text` and the files that it names into `folder`."""
    log = estimates.log
    lines = ["client,class", *(f"{client},{_quote_cell(group)}" for client, group in enumerate(log.groups))]
    (folder / "devices.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if estimates.presence is not None and estimates.presence.kind == "trace":
        presence = presence_rows(log).drop(columns="cut")
        presence.to_csv(folder / "presence.csv", index=False)
    for link in RATES:
        rows = trace_rows(estimates, link)
        if len(rows):
            rows.to_csv(folder / f"{link}.csv", index=False)
    (folder / "scenario.toml").write_text(text, encoding="utf-8")


def _quote_cell(cell: str) -> str:
    """Return a cell of a CSV file, quoted if it must be."""
    return '"' + cell.replace('"', '""') + '"' if set(cell) & set(',"\n') else cell


def _predictions(
    estimates: Estimates, folder: Path, laws: Mapping[str, str] | None, seeds: int, progress: Callable[[int], None]
) -> tuple[list[Prediction], list[Prediction]]:
    """Return two predictive checks: of all rounds, and of the last rounds by a fit to the first ones.

    A check that is not possible is empty, with a reason in `estimates.cautions`.
    """
    log, deadline_s, deliveries = estimates.log, estimates.deadline_s, estimates.first
    if not seeds or not log.rounds:
        if not log.rounds:
            estimates.cautions.append("the log has no rounds: its predictions cannot be checked")
        return [], []
    tables = tomllib.loads(scenario_text(estimates, "check", folder))
    check = predict(tables, log, deadline_s=deadline_s, first=deliveries, seeds=seeds, progress=progress)
    first_rounds, last_rounds = _split_rounds(log)
    if first_rounds is None or last_rounds is None:
        estimates.cautions.append(f"the log has fewer than {_LEAST_ROUNDS} rounds: nothing is held out")
        return check, []
    try:
        earlier = replace(estimate(first_rounds, laws=laws, deadline_s=deadline_s), first=deliveries)
    except UserError as error:
        estimates.cautions.append(f"nothing is held out: {error}")
        return check, []
    tables = tomllib.loads(scenario_text(earlier.hold_last_laws(), "hold-out", folder))

    def report_runs(runs: int) -> None:
        progress(seeds + runs)  # the check has had as many

    hold_out = predict(tables, last_rounds, deadline_s=deadline_s, first=deliveries, seeds=seeds, progress=report_runs)
    return check, hold_out


def _split_rounds(log: Log) -> tuple[Log | None, Log | None]:
    """Return the log of the first 70 % of the rounds, and of the rest; None and None if there are too few rounds."""
    rounds = log.round_numbers()
    if len(rounds) < _LEAST_ROUNDS:
        return None, None
    last_fitted = rounds[int(_FITTED_SHARE * len(rounds)) - 1]
    return log.select_rounds(1, last_fitted), log.select_rounds(last_fitted + 1, rounds[-1])
