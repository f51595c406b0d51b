"""The section of a report on where the time of a run went: phases of an update, and what the server waited for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from analysis.report.blocks import Block, Section, Table, Text
from analysis.report.tables import MISSING, format_number
from analysis.report.waiting import StragglerStudy, communication_rounds, straggler_study
from analysis.results import Run
from analysis.studies.find import PHASES, phase_means

if TYPE_CHECKING:
    import pandas as pd

NOT_WAITING = {
    "buffered": "This server waits for nobody: whoever ends is followed by another client, so that no round is held up by one "
    "client, and none could be blamed.",
    "semi-synchronous": "A round of this server lasts as long as it is set to last: nobody is waited for, and nobody could be "
    "blamed for its length.",
    "safa": "A round of this server closes once enough of what arrives is picked, or at its deadline; who is slower goes on and "
    "arrives in a later one, so that no client holds a round up by itself.",
    "compass": "A round of this server closes as a group of clients is complete, or as one arrives that has no group; the others "
    "go on, so that no client holds all of them up.",
    "asynchronous": "Who held a round up is not said of this server: clients take their updates from round to round, and a round "
    "ends by the clock, or when nothing is being sent, whoever is still at work.",
}
"""Kinds of servers of which the wait for single clients is not told, and why."""
_PHASES = {"asynchronous": ("download_s", "compute_s", "upload_s")}
# An update of the asynchronous server waits over several rounds, in rows of which each tells only its own steps.


def time_sections(run: Run) -> list[Section]:
    """Where the time of `run` went; its table of clients must not be empty."""
    server: dict[str, Any] = run.scenario.get("server") or {}
    kind = str(server.get("kind", "synchronous"))
    title = "Where the time went"
    phases = _phase_table(run.clients, _PHASES.get(kind, PHASES))
    if kind in NOT_WAITING:
        return [Section(title, [phases, Text(NOT_WAITING[kind])])]
    first = server.get("first")
    if "rounds_per_slot" not in (run.summary.get("slots") or {}):
        rounds = run.rounds
        before = _round_words(rounds)
    else:
        per_slot = int(run.summary["slots"]["rounds_per_slot"])
        rounds = communication_rounds(run.clients, last=per_slot * len(run.rounds), deadline_s=server.get("deadline_s"))
        before = _slot_words(run.rounds, rounds)
    study = straggler_study(rounds, run.clients, first=first)
    return [Section(title, [phases, Text(before), Text(_waiting_words(study, first)), _worst(study)])]


def _phase_table(clients: pd.DataFrame, shown: tuple[str, ...]) -> Table:
    phases = phase_means(clients).loc[list(shown)]
    means, counts = phases["mean_s"].tolist(), phases["count"].tolist()
    rows = [[name[:-2], format_number(mean), f"{n:,}"] for name, mean, n in zip(shown, means, counts, strict=True)]
    cells = (["phase of an update", "mean (s)", "ended"], rows)
    return Table("phases", "Phases of an update that ended, those cut short included", cells)


def _round_words(rounds: pd.DataFrame) -> str:
    in_rounds_s = float((rounds["end_s"] - rounds["start_s"]).sum())
    total_s, asked_s = float(rounds["end_s"].iloc[-1]), float(rounds["probe_s"].sum())
    asking = f" ({format_number(asked_s)} s of them asking clients for their loss)" if asked_s else ""
    return (
        f"Of {format_number(total_s)} s up to the last close, rounds took {format_number(in_rounds_s)} s{asking}; "
        f"{format_number(max(0.0, total_s - in_rounds_s))} s passed between rounds, waiting for enough clients to be there."
    )


def _slot_words(slots: pd.DataFrame, rounds: pd.DataFrame) -> str:
    total_s = float(slots["end_s"].iloc[-1])
    shares = {
        "training, in communication rounds": float((rounds["end_s"] - rounds["start_s"]).sum()),
        "deciding who takes part": float(slots["consensus_s"].sum()),
        "tests and opinions at the end of slots": float(slots["opinion_s"].sum()),
    }
    named = "; ".join(f"{what}: {format_number(seconds)} s" for what, seconds in shares.items())
    rest_s = max(0.0, total_s - sum(shares.values()))
    return (
        f"Of {format_number(total_s)} s up to the end of the last slot: {named}; waiting for members to be there, and for a "
        f"first test of the model where there is one: {format_number(rest_s)} s."
    )


def _waiting_words(study: StragglerStudy, first: int | None) -> str:
    closer = "the last to end" if first is None else "the one whose delivery closed it, or the last to end"
    return (
        f"Of the {format_number(study.waited_s)} s that rounds took, {_share(study.slowest_share)} were spent waiting for a "
        f"single client alone, {closer}, and {_share(study.together_share)} for several clients that then ended at the same "
        f"moment or missed the close. Clients of a round were done and idle for {_share(study.idle_share)} of their time in it."
    )


def _worst(study: StragglerStudy) -> Block:
    worst = study.per_client.sort_values(["cost_s", "missed"], ascending=False, kind="stable").head(5)
    columns = (worst.index, *(worst[name] for name in ("rounds", "missed", "times_slowest", "mean_latency_s", "cost_s")))
    rows = [
        [str(client), f"{rounds:,}", f"{missed:,}", f"{times:,}", format_number(latency_s), format_number(cost_s)]
        for client, rounds, missed, times, latency_s, cost_s in zip(*(column.tolist() for column in columns), strict=True)
    ]
    header = ["client", "rounds", "closes missed", "times waited for alone", "mean latency, cut at the close (s)", "cost (s)"]
    caption = "The clients that cost most; the cost is the time in which a client alone held up the close of its rounds"
    return Table("stragglers", caption, (header, rows))


def _share(share: float) -> str:
    return MISSING if math.isnan(share) else f"{share * 100:.1f} %"
