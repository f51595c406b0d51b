"""What a server waited for, against tables worked out by hand: plain rounds, deadlines, over-selection, slots."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import open_run
from analysis.report.write import write_report
from analysis.stragglers.records import run_records
from analysis.stragglers.waiting import straggler_study
from netsim.core.rows import ROUND_CAUSES
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.result_folders import FACTS, PARTS, write_run, write_table

BOUNDS: dict[str, list[Any]] = {"round": [1, 2, 3], "start_s": [0.0, 5.0, 9.0], "end_s": [5.0, 9.0, 10.0]}


def table(rows: list[tuple[int, int, str, float, float]]) -> dict[str, list[Any]]:
    """Columns of `clients` from rows of round, client, outcome, selected_s, outcome_s."""
    return {
        name: list(column)
        for name, column in zip(("round", "client", "outcome", "selected_s", "outcome_s"), zip(*rows, strict=True), strict=True)
    }


def frames(bounds: dict[str, list[Any]], parts: dict[str, list[Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return pd.DataFrame(bounds), pd.DataFrame(parts)


# A deadline of 10 s. Round 1: ends after 2 and 4 s, clients 2 and 3 miss the close. Round 2, 10 to 20 s: client 2 still works on
# round 1 and ends late; of the new ones client 0 ends after 3 s, and client 1 alone misses the close. Round 3: all end by 24 s.
DEADLINE: tuple[dict[str, list[Any]], dict[str, list[Any]]] = (
    {"round": [1, 2, 3], "start_s": [0.0, 10.0, 20.0], "end_s": [10.0, 20.0, 24.0]},
    table(
        [
            (1, 0, "delivered", 0.0, 2.0),
            (1, 1, "lost", 0.0, 4.0),
            (1, 2, "late", 0.0, 12.0),
            (1, 3, "aborted", 0.0, 10.0),
            (2, 3, "delivered", 10.0, 12.5),
            (2, 0, "delivered", 10.0, 13.0),
            (2, 1, "in_flight", 10.0, 24.0),
            (3, 0, "delivered", 20.0, 21.0),
            (3, 3, "delivered", 20.0, 24.0),
        ]
    ),
)
# The first 2 deliveries of 4 close a round. Round 1: deliveries after 1 and 4 s, a loss after 3 s does not count, one is late.
# Round 2: a tie at 6 s, of which one is the second delivery and the other late. Round 3: one delivery only, so it waits for all.
OVERSELECTED: tuple[dict[str, list[Any]], dict[str, list[Any]]] = (
    {"round": [1, 2, 3], "start_s": [0.0, 4.0, 6.0], "end_s": [4.0, 6.0, 11.0]},
    table(
        [
            (1, 0, "delivered", 0.0, 1.0),
            (1, 1, "delivered", 0.0, 4.0),
            (1, 2, "lost", 0.0, 3.0),
            (1, 3, "late", 0.0, 9.0),
            (2, 0, "delivered", 4.0, 5.5),
            (2, 1, "delivered", 4.0, 6.0),
            (2, 2, "late", 4.0, 6.0),
            (3, 0, "delivered", 6.0, 7.0),
            (3, 1, "lost", 6.0, 8.0),
            (3, 2, "lost", 6.0, 11.0),
        ]
    ),
)


def test_plain_rounds_by_hand() -> None:
    study = straggler_study(*frames(BOUNDS, PARTS))
    assert study.waited_s == 10.0
    # Without client 2, round 1 ends 2 s and round 2 ends 1 s sooner; the second of round 3 is due to two clients.
    assert study.slowest_share == pytest.approx(0.3)
    assert study.together_share == pytest.approx(0.1)
    # Idle: 3 + 2 in round 1, 1 in round 2; clients' time in rounds: 15 + 8 + 2.
    assert study.idle_share == pytest.approx(6.0 / 25.0)
    per_client = study.per_client
    assert per_client.index.tolist() == [0, 1, 2]
    assert per_client["rounds"].tolist() == [2, 3, 2]
    assert per_client["missed"].tolist() == [0, 1, 1]
    assert per_client["times_slowest"].tolist() == [0, 0, 2]
    assert per_client["cost_s"].tolist() == [0.0, 0.0, 3.0]
    assert per_client["mean_latency_s"].tolist() == pytest.approx([1.5, 7.0 / 3.0, 4.5])


def test_at_a_deadline_the_wait_for_those_who_missed_it_counts() -> None:
    study = straggler_study(*frames(*DEADLINE))
    assert study.waited_s == 24.0
    # Round 1: 6 s for two clients, one of which is then selected again. Round 2: 7 s for client 1. Round 3: 3 s for client 3.
    assert study.slowest_share == pytest.approx(10.0 / 24.0)
    assert study.together_share == pytest.approx(6.0 / 24.0)
    assert study.per_client["cost_s"].tolist() == [0.0, 7.0, 0.0, 3.0]
    assert study.per_client["missed"].tolist() == [0, 1, 1, 1]
    # Idle: 8 + 6, 7.5 + 7, 3; clients' time in rounds: 40 + 30 + 8.
    assert study.idle_share == pytest.approx(31.5 / 78.0)


def test_over_selection_charges_the_delivery_that_closed_the_round() -> None:
    study = straggler_study(*frames(*OVERSELECTED), first=2)
    assert study.waited_s == 11.0
    # Client 1 closes round 1 three seconds after the delivery before, and round 2 half a second; round 3 waits 3 s for client 2.
    assert study.per_client["cost_s"].tolist() == [0.0, 3.5, 3.0, 0.0]
    assert study.per_client["times_slowest"].tolist() == [0, 2, 1, 0]
    assert study.per_client["missed"].tolist() == [0, 0, 1, 1]
    assert study.slowest_share == pytest.approx(6.5 / 11.0)
    assert study.together_share == 0.0


def test_nothing_gives_no_shares() -> None:
    rounds, clients = frames(BOUNDS, PARTS)
    study = straggler_study(rounds, clients.iloc[:0])
    assert study.waited_s == 0.0
    assert math.isnan(study.slowest_share)
    assert len(study.per_client) == 0


# Slots of two communication rounds, deadline 3 s. Slot 1, 0 to 20 s: 10 s of consensus, rounds 10 to 12 and 12 to 15 s (client 1
# misses the deadline), tests until 20. Slot 2, 20 to 30: 4 s of consensus, a second of waiting, rounds 25 to 26 and 26 to 28,
# tests until 30.
SLOTS: tuple[dict[str, list[Any]], dict[str, list[Any]]] = (
    {"round": [1, 2], "start_s": [0.0, 20.0], "end_s": [20.0, 30.0], "consensus_s": [10.0, 4.0], "opinion_s": [5.0, 2.0]},
    table(
        [
            (1, 0, "delivered", 10.0, 11.0),
            (1, 1, "delivered", 10.0, 12.0),
            (2, 0, "delivered", 12.0, 14.0),
            (2, 1, "late", 12.0, 22.0),
            (3, 0, "delivered", 25.0, 26.0),
            (4, 0, "delivered", 26.0, 28.0),
            (5, 0, "in_flight", 31.0, 32.0),
        ]
    ),
)


TRAINED: dict[str, list[Any]] = {
    "round": [1, 2, 3, 4, 5],
    "slot": [1, 1, 2, 2, 3],
    "start_s": [10.0, 12.0, 25.0, 26.0, 31.0],
    "end_s": [12.0, 15.0, 26.0, 28.0, 33.0],
    "close_rule": ["all ended", "deadline", "all ended", "all ended", "all ended"],
}
"""The communication rounds of `SLOTS`; the third slot had not closed as the run ended."""


def report_of(folder: Path, bounds: dict[str, list[Any]], parts: dict[str, list[Any]], **summary: Any) -> str:
    run = write_run(folder / "run", bounds, parts, **summary)
    write_table(run / "communication_rounds.parquet", "communication_rounds", TRAINED)
    text = write_report(run, folder / "report.md").read_text(encoding="utf-8")
    return text[text.index("## Where the time went") :].split("\n## ")[0]


def test_the_report_of_slots_counts_all_their_time(tmp_path: Path) -> None:
    text = report_of(tmp_path, *SLOTS, slots={"rounds_per_slot": 2}, coordinator=FACTS | {"slotted": True})
    assert "Of 30.00 s up to the end of the last slot" in text
    assert "training, in communication rounds: 8.00 s; deciding who takes part: 14.00 s" in text
    assert "tests and opinions at the end of slots: 7.00 s" in text
    assert "a first test of the model where there is one: 1.00 s" in text
    # Alone: 1 s for client 1 in round 1, 1 s in round 2, and all 3 s of the rounds with one client.
    assert "62.5 % were spent waiting for a single client alone" in text
    assert "| 0 | 4 | 0 | 2 | 1.50 | 3.00 |" in text
    assert "| 1 | 2 | 1 | 2 | 2.50 | 2.00 |" in text


def test_the_report_of_over_selection_and_of_waits_between_rounds(tmp_path: Path) -> None:
    bounds, parts = OVERSELECTED
    closes = {"start_s": [0.0, 4.0, 6.0], "end_s": [4.0, 6.0, 11.0], "close_rule": ["deliveries", "deliveries", "all ended"]}
    text = report_of(tmp_path, bounds | closes, parts)
    assert "Of 11.00 s up to the last close, rounds took 11.00 s; 0.000 s passed between rounds" in text
    assert "59.1 % were spent waiting for a single client alone, the one whose delivery closed it, or the last to end" in text
    assert "| 1 | 3 | 0 | 2 | 2.67 | 3.50 |" in text


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ("carries_over", "no client holds a round up by itself"),
        ("fixed_length", "lasts as long as it is set to last"),
        ("resends", "is not said of this run"),
    ],
)
def test_servers_that_wait_for_no_single_client_say_why_none_is_blamed(tmp_path: Path, fact: str, words: str) -> None:
    text = report_of(tmp_path, BOUNDS, PARTS, coordinator=FACTS | {fact: True})
    assert words in text
    assert "cost" not in text
    assert "| compute |" in text
    assert ("| wait |" in text) == (fact != "resends")


def test_the_report_of_a_run_of_before_causes_says_what_it_cannot_tell(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", BOUNDS, PARTS)
    (run / "rounds.parquet").unlink()
    write_table(run / "rounds.parquet", "rounds", BOUNDS, format="1", drop=ROUND_CAUSES)
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    del summary["coordinator"]
    (run / "summary.json").write_text(json.dumps(summary | {"format": 1}), encoding="utf-8")
    text = write_report(run, tmp_path / "report.md").read_text(encoding="utf-8")
    assert "recorded before runs said what closed their rounds" in text
    assert "| compute |" in text
    assert "Who held the run up" not in text
    with pytest.raises(ValueError, match="run: was recorded before causes were"):
        run_records(open_run(run))


def test_the_time_of_asking_for_losses_is_nobodys_wait(tmp_path: Path) -> None:
    # An answer after 0.25 + 1 + 0.5 s, then 3 s of training and half a second of sending: client 0 held the round up for 3.5 s.
    tables: dict[str, Any] = {
        "name": "asked",
        "rounds": 1,
        "clients": {"count": 2},
        "server": {"per_round": 1},
        "policy": {"kind": "tests.helpers.asking:Asking", "asked": [[0]], "rounds": [[0]]},
        "downlink": {"delay": {"kind": "constant", "value_s": 0.25}},
        "compute": {"delay": {"kind": "constant", "value_s": 3.0}},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.5}},
    }
    run(parse(tables), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    study = straggler_study(opened.rounds, opened.clients)
    assert (study.waited_s, study.per_client["cost_s"].tolist()) == (3.5, [3.5])
    text = write_report(tmp_path / "run", tmp_path / "report.md").read_text(encoding="utf-8")
    assert "rounds took 5.25 s (1.75 s of them asking clients for their loss)" in text
