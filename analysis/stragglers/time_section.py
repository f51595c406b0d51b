"""The section of a report on the time of a run: phases of updates, and waits of the server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from analysis.documents.blocks import Block, Section, Table, Text
from analysis.documents.numbers import MISSING, format_number
from analysis.results.run import Run
from analysis.stragglers.phases import PHASES, phase_means
from analysis.stragglers.records import run_records
from analysis.stragglers.waiting import StragglerStudy, straggler_study

if TYPE_CHECKING:
    import pandas as pd

NOT_WAITING = {
    "resends": "Who held a round up is not said of this run: clients take their updates from round to round, and a round ends "
    "by the clock, or when nothing is being sent, whoever is still at work.",
    "fixed_length": "A round of this run lasts as long as it is set to last: no client is waited for, and none could be blamed "
    "for its length.",
    "carries_over": "A round of this run is about the updates that ended in it; clients that are slower go on and arrive in a "
    "later one, so that no client holds a round up by itself.",
}
"""Facts of coordinators to reasons why the wait for single clients is not shown."""
_OLD = "This run was recorded before runs said what closed their rounds: who was waited for is not told."
_RESENT = ("download_s", "compute_s", "upload_s")
# An update that is sent again waits over several rounds; each of its rows holds only its own steps.


def time_sections(run: Run) -> list[Section]:
    """Return where the time of `run` went; its table of clients must not be empty."""
    facts: dict[str, Any] | None = run.summary.get("coordinator")
    title = "Where the time went"
    resends = run.clients["started_round"].notna().any() if facts is None else facts["resends"]
    phases = _phase_table(run.clients, _RESENT if resends else PHASES)
    if facts is None:
        return [Section(title, [phases, Text(_OLD)])]
    rounds = run_records(run).rounds
    closed = Text(_rule_words(rounds))
    for fact, reason in NOT_WAITING.items():
        if facts[fact]:
            return [Section(title, [phases, closed, Text(reason)])]
    before = _slot_words(run.rounds, rounds) if facts["slotted"] else _round_words(run.rounds)
    study = straggler_study(rounds, run.clients)
    by_count = bool((rounds["close_rule"] == "deliveries").any())
    return [Section(title, [phases, Text(before), closed, Text(_waiting_words(study, by_count)), _cost_table(study)])]


def _phase_table(clients: pd.DataFrame, shown: tuple[str, ...]) -> Table:
    """Return the table of the mean length of the phases `shown`, a row for each, and of how many of them ended."""
    phases = phase_means(clients).loc[list(shown)]
    means, counts = phases["mean_s"].tolist(), phases["count"].tolist()
    rows = [[name[:-2], format_number(mean), f"{n:,}"] for name, mean, n in zip(shown, means, counts, strict=True)]
    cells = (["phase of an update", "mean (s)", "ended"], rows)
    return Table("phases", "Phases of an update that ended, those cut short included", cells)


def _rule_words(rounds: pd.DataFrame) -> str:
    """Return a sentence that says by which rules rounds were closed, and how many by each."""
    rules = rounds["close_rule"].fillna("a rule without a name").value_counts()
    return f"Rounds were closed by: {', '.join(f'{rule} ({count:,})' for rule, count in rules.items())}."


def _round_words(rounds: pd.DataFrame) -> str:
    """Return a sentence that divides the time up to the last close into rounds, probes within them, and time between rounds."""
    in_rounds_s = float((rounds["end_s"] - rounds["start_s"]).sum())
    total_s, probes_s = float(rounds["end_s"].iloc[-1]), float(rounds["probe_s"].sum())
    probes = f" ({format_number(probes_s)} s of them asking clients for their loss)" if probes_s else ""
    return (
        f"Of {format_number(total_s)} s up to the last close, rounds took {format_number(in_rounds_s)} s{probes}; "
        f"{format_number(max(0.0, total_s - in_rounds_s))} s passed between rounds, waiting for enough clients to be there."
    )


def _slot_words(slots: pd.DataFrame, rounds: pd.DataFrame) -> str:
    """Return a sentence that divides the time of a run with slots into training, deciding, tests and waiting."""
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


def _waiting_words(study: StragglerStudy, by_count: bool) -> str:
    """Return sentences on the shares of the rounds' time in which one client, or several, held up the close.

    `by_count`: True if deliveries closed some rounds, so that the client whose delivery closed one is named as well.
    """
    closer = "the last to end" if not by_count else "the one whose delivery closed it, or the last to end"
    return (
        f"Of the {format_number(study.waited_s)} s that rounds took, {_share_text(study.slowest_share)} were spent waiting for a "
        f"single client alone, {closer}, and {_share_text(study.together_share)} for several clients that then ended at the same "
        f"moment or missed the close. Clients of a round were done and idle for {_share_text(study.idle_share)} of their time in "
        "it."
    )


def _cost_table(study: StragglerStudy) -> Block:
    """Return the table of the five clients that alone held up closes longest; of equal ones, those that missed most closes."""
    worst = study.per_client.sort_values(["cost_s", "missed"], ascending=False, kind="stable").head(5)
    columns = (worst.index, *(worst[name] for name in ("rounds", "missed", "times_slowest", "mean_latency_s", "cost_s")))
    rows = [
        [str(client), f"{rounds:,}", f"{missed:,}", f"{times:,}", format_number(latency_s), format_number(cost_s)]
        for client, rounds, missed, times, latency_s, cost_s in zip(*(column.tolist() for column in columns), strict=True)
    ]
    header = ["client", "rounds", "closes missed", "times waited for alone", "mean latency, cut at the close (s)", "cost (s)"]
    caption = "The clients that cost most; the cost is the time in which a client alone held up the close of its rounds"
    return Table("stragglers", caption, (header, rows))


def _share_text(share: float) -> str:
    """Return a share as a percentage; "—" for NaN."""
    return MISSING if math.isnan(share) else f"{share * 100:.1f} %"
