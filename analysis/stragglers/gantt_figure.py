"""The Gantt chart of one round: phases of each client over time, and the close."""

from __future__ import annotations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from analysis.figures.settings import PLAIN, Look
from analysis.figures.style import ShownFigure, finish_figure, halo, new_figure, surface_style
from analysis.figures.theme import INK
from analysis.peers.measure import waits
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import FloatArray
from analysis.stragglers.decomposition import attempt_times
from analysis.stragglers.records import run_records

MOST_CLIENTS = 40
"""Largest number of clients in a figure; of more clients, the last ones to end are shown."""
_PHASES = (
    ("download", "download_start_s", "download_end_s"),
    ("training", "compute_start_s", "compute_end_s"),
    ("waiting for a sub-channel", "compute_end_s", "upload_start_s"),
    ("upload", "upload_start_s", "upload_end_s"),
)
_WAITING = 2
"""The surface of waiting."""
_COLUMNS = ("client", "selected_s", "outcome_s", *dict.fromkeys(name for _, start, end in _PHASES for name in (start, end)))
_MARKS = {"lost": "X", "late": "P", "aborted": "v", "in_flight": ">"}
"""Marker at the end of an attempt that was not delivered, by outcome."""


def gantt_figure(groups: Groups, *, round: int | None = None, look: Look = PLAIN) -> ShownFigure | None:
    """Draw one round of the first run of the first variant: the phases of each attempt, and the close of the round.

    `round`: its number, with slots the number of a communication round; None: the round of median length. Return None without
    records of clients, and where no phase takes time.

    Raises:
        ValueError: the run has no such round.
    """
    run = next((run for runs in groups.values() for run in runs if run.has_clients), None)
    if run is None:
        return None
    chosen = _median_round(run) if round is None else round
    if chosen is None:
        return None
    columns, outcomes = _attempts(run, chosen)
    if not outcomes:
        raise ValueError(f"round = {round}: the run has records of no attempt in it ({run.label}, seed {run.seed})")
    begin, close = _bounds(run, chosen, columns)
    waited = _waits_after_round(run, chosen)
    last_s = np.nanmax(np.where(np.isnan(columns["outcome_s"]), close, columns["outcome_s"]))
    last_s = max([last_s, *(until_s for _, until_s, _ in waited.values())])
    order = np.argsort(np.nan_to_num(columns["outcome_s"], nan=np.inf), kind="stable")[-MOST_CLIENTS:]
    with look.apply():
        figure, (axes,) = new_figure(size_in=(7.2, 1.9 + 0.19 * order.size), look=look)
        legend: list[tuple[Artist, str]] = []
        for index, (name, start, end) in enumerate(_PHASES):
            left = columns[start][order] - begin
            # A phase in progress at the end of the run extends to the last known time.
            right = np.where(np.isnan(columns[end][order]), last_s, columns[end][order]) - begin
            width = np.where(np.isnan(left), 0.0, right - left)
            style = surface_style(index)
            axes.barh(np.arange(order.size), width, left=np.nan_to_num(left), height=0.72, **style)
            if (width > 0.0).any():
                legend.append((Patch(**style), name))
        for position, client in enumerate(columns["client"][order].tolist()):
            if client in waited:
                from_s, until_s, other = waited[client]
                _draw_wait(axes, position, from_s - begin, until_s - begin, str(other))
        if waited:
            legend.append((Patch(**surface_style(_WAITING)), "waiting for the peer named beside it"))
        for outcome, marker in _MARKS.items():
            positions = [position for position, attempt in enumerate(order) if outcomes[attempt] == outcome]
            if positions:
                ends = np.nan_to_num(columns["outcome_s"][order][positions], nan=last_s) - begin
                axes.plot(ends, positions, marker, color=INK, ms=6.0, zorder=4)
                legend.append((Line2D([], [], color=INK, marker=marker, ls="none"), outcome.replace("_", " ")))
        axes.axvline(close - begin, color=INK, linewidth=1.4)
        legend.append((Line2D([], [], color=INK, linewidth=1.4), "close of the round"))
        axes.set_yticks(range(order.size), [f"{int(client)}" for client in columns["client"][order]], fontsize="small")
        axes.set(xlabel="time since the first attempt of the round began (s)", ylabel="client")
        # Marks at the last end, and numbers beside it, are whole.
        axes.set_xlim(0.0, (1.05 if waited else 1.02) * (max(last_s, close) - begin))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        left_out = len(outcomes) - order.size
        note = f"seed {run.seed}, {run.label}" + ("; the round of median length" if round is None else "")
        note += f"; {left_out} attempts that ended before these are left out" if left_out else ""
        finish_figure(figure, f"Round {chosen:,}, client by client", note, legend, look=look)
    return figure


def _draw_wait(axes: Axes, position: int, from_s: float, until_s: float, awaited: str) -> None:
    """Draw the wait of the client at `position`, from `from_s` to `until_s` on the axis, and the number of the peer `awaited`."""
    axes.barh(position, until_s - from_s, left=from_s, height=0.72, **surface_style(_WAITING))
    # Beside the bar, which may be narrower than the number; in front of the line of the close, which may cross it.
    axes.annotate(
        awaited,
        (until_s, position),
        (3, 0),
        textcoords="offset points",
        va="center",
        fontsize="x-small",
        color=INK,
        zorder=5,
        path_effects=halo(),
    )


def _waits_after_round(run: Run, chosen: int) -> dict[float, tuple[float, float, int]]:
    """Return, by peer, start and end of its wait at the end of its own round `chosen`, and the peer whose message ended it."""
    found = waits(run)
    found = found[found["round"] == chosen]
    columns = [found[name].tolist() for name in ("peer", "from_s", "until_s", "waited_for")]
    return {float(peer): (from_s, until_s, other) for peer, from_s, until_s, other in zip(*columns, strict=True)}


def _median_round(run: Run) -> int | None:
    """Return the round of median length from the first selection to the last end; None where no round takes time."""
    table = run.arrow("clients", ["round", "selected_s", "outcome_s"]).to_pandas()
    intervals = table.groupby("round").agg(start=("selected_s", "min"), end=("outcome_s", "max"))
    lengths = (intervals["end"] - intervals["start"]).dropna()
    lengths = lengths[lengths > 0.0].sort_values(kind="stable")
    return int(lengths.index[(len(lengths) - 1) // 2]) if len(lengths) else None


def _attempts(run: Run, chosen: int) -> tuple[dict[str, FloatArray], list[str]]:
    """Return columns of the attempts of a round, each (n,), and their outcomes."""
    import pyarrow.compute as pc

    if (run.summary.get("coordinator") or {}).get("resends"):
        return _parts_of_updates(run, chosen)
    table = run.arrow("clients", ["round", "outcome", *_COLUMNS])
    table = table.filter(pc.equal(table.column("round"), chosen))
    columns = {name: np.asarray(table.column(name).to_numpy(), np.float64) for name in _COLUMNS}
    return columns, [str(outcome) for outcome in table.column("outcome").to_pylist()]


def _parts_of_updates(run: Run, chosen: int) -> tuple[dict[str, FloatArray], list[str]]:
    """Return the columns and outcomes of `_attempts` where an update may take several: the part of each phase in the round.

    A phase that lasts several rounds is recorded in the attempt in which it ends, so that the rows of the round alone lack it.
    """
    view = run_records(run)
    mine = (view.attempts["round"] == chosen).to_numpy()
    attempts = view.attempts[mine]
    selected_s, ended_s = attempts["selected_s"].to_numpy(np.float64), attempts["outcome_s"].to_numpy(np.float64)
    times = np.clip(attempt_times(view)[mine], selected_s[:, None], ended_s[:, None])
    columns = {"client": attempts["client"].to_numpy(np.float64), "selected_s": selected_s, "outcome_s": ended_s}
    edges = ("download_start_s", "download_end_s", "compute_end_s", "upload_start_s", "upload_end_s")
    columns |= dict(zip(edges, times.T, strict=True)) | {"compute_start_s": times[:, 1]}
    return columns, attempts["outcome"].tolist()


def _bounds(run: Run, chosen: int, columns: dict[str, FloatArray]) -> tuple[float, float]:
    """Return the times of the selection and of the close; for a communication round in a slot, its last end."""
    begin = float(columns["selected_s"].min())
    if run.summary.get("slots"):
        return begin, float(np.nanmax(columns["outcome_s"]))
    rounds = run.arrow("rounds", ["round", "end_s"])
    ends = dict(zip(rounds.column("round").to_pylist(), rounds.column("end_s").to_pylist(), strict=True))
    return begin, float(ends.get(chosen, np.nanmax(columns["outcome_s"])))
