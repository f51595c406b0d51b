"""Rounds decomposed, who closed them, and the critical path: by hand, and as a partition of time in random worlds."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import netsim
from analysis.results.run import Run
from analysis.stragglers.closers import closers
from analysis.stragglers.critical_path import critical_path, path_totals
from analysis.stragglers.decomposition import EDGES, PHASES, decompose, edges, totals
from analysis.stragglers.records import RunRecords, run_records
from analysis.stragglers.waiting import straggler_study
from tests.helpers.random_worlds import random_tables
from tests.helpers.rough_scenarios import BUFFERED, other, rough
from tests.helpers.suites import each_nth


def constant(*values_s: float) -> dict[str, Any]:
    return {"delay": {"kind": "constant", "value_s": list(values_s)}}


def world(server: dict[str, Any], rounds: list[list[int]], **tables: Any) -> Run:
    """A run of three clients: downloads of 1 s, training of 1, 2 and 4 s, uploads of 2 s."""
    base: dict[str, Any] = {
        "name": "hand",
        "rounds": len(rounds),
        "clients": {"count": 3, "groups": [{"name": "quick", "share": 2 / 3}, {"name": "slow", "share": 1 / 3}]},
        "server": server,
        "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": rounds},
        "downlink": constant(1.0, 1.0, 1.0),
        "compute": constant(1.0, 2.0, 4.0),
        "uplink": constant(2.0, 2.0, 2.0),
    }
    return quietly(base | tables)


def quietly(tables: dict[str, Any]) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return netsim.run(tables)


def test_a_round_with_one_sub_channel_by_hand() -> None:
    run = run_records(world({"per_round": 3}, [[0, 1, 2]], uplink=constant(2.0, 2.0, 2.0) | {"sub_channels": 1}))
    told = decompose(run).set_index("client")
    # Ready after 2, 3 and 5 s; sending from 2 to 4, 4 to 6 and 6 to 8 s.
    assert told.loc[0, list(PHASES)].tolist() == [0.0, 1.0, 1.0, 0.0, 2.0, 0.0, 4.0]
    assert told.loc[1, list(PHASES)].tolist() == [0.0, 1.0, 2.0, 1.0, 2.0, 0.0, 2.0]
    assert told.loc[2, list(PHASES)].tolist() == [0.0, 1.0, 4.0, 1.0, 2.0, 0.0, 0.0]
    assert told["length_s"].tolist() == [8.0] * 3
    by_group = totals(decompose(run), "group")
    assert by_group.loc["quick", "queue_s"] == 1.0
    assert by_group.loc["slow", ["rounds", "compute_s"]].tolist() == [1, 4.0]
    last = closers(run).iloc[0]
    assert (last["rule"], last["due"], last["client"], last["stretch_s"]) == ("all ended", 1, 2, 2.0)
    # Client 2 queued for client 1, which queued for client 0: its training is what the round had to wait for.
    path = critical_path(run)
    assert path[["client", "phase", "start_s", "end_s"]].to_numpy().tolist() == [
        [0, "download", 0.0, 1.0],
        [0, "compute", 1.0, 2.0],
        [0, "upload", 2.0, 4.0],
        [1, "upload", 4.0, 6.0],
        [2, "upload", 6.0, 8.0],
    ]
    assert path_totals(path)["seconds"].to_dict() == {0: 4.0, 1: 2.0, 2: 2.0}


def test_buffered_deliveries_by_hand() -> None:
    # One at work: client 0 delivers after 4 s, client 1 after 5 s more.
    one = run_records(quietly(BY_TURNS))
    assert closers(one)[["rule", "client", "stretch_s"]].to_numpy().tolist() == [["deliveries", 0, 4.0], ["deliveries", 1, 5.0]]
    path = critical_path(one)
    assert path["client"].tolist() == [0, 0, 0, 1, 1, 1]
    assert path["end_s"].tolist() == [1.0, 2.0, 4.0, 5.0, 7.0, 9.0]


def test_the_clock_closes_rounds_that_are_paced() -> None:
    # Both are at work, and count as 12 s: a model is due at 6 s. Client 0 has delivered after 4 s, client 1 after 5 s: nobody is
    # at work then, and the server looks at multiples of 7 s.
    server = {"kind": "buffered", "concurrency": 2, "pacing": "latency", "unknown_latency_s": 12.0, "check_every_s": 7.0}
    run = run_records(quietly(BY_TURNS | {"rounds": 1, "server": server, "policy": {"kind": "all"}}))
    assert closers(run)[["rule", "due", "stretch_s"]].to_numpy().tolist() == [["pacing", 0, 0.0]]
    path = critical_path(run)
    assert path[["phase", "start_s", "end_s"]].to_numpy().tolist()[-2:] == [["upload", 3.0, 5.0], ["clock", 5.0, 7.0]]


BY_TURNS: dict[str, Any] = {
    "name": "turns",
    "rounds": 2,
    "clients": {"count": 2},
    "server": {"kind": "buffered", "concurrency": 1, "buffer": 1},
    "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": [[0], [1]]},
    "downlink": constant(1.0, 1.0),
    "compute": constant(1.0, 2.0),
    "uplink": constant(2.0, 2.0),
}


def test_semi_synchronous_rounds_by_hand() -> None:
    run = run_records(world({"kind": "semi-synchronous", "per_round": 1, "round_s": 5.0}, [[2], [0], [1]]))
    told = decompose(run)
    # Client 2 is at work from 0 to 7 s, client 0 from 5 to 9 s, client 1 from 10 to 15 s.
    rows = told[["round", "client", "begun_round", "download_s", "compute_s", "upload_s", "wait_s"]].to_numpy().tolist()
    assert rows == [
        [1, 2, 1, 1.0, 4.0, 0.0, 0.0],
        [2, 2, 1, 0.0, 0.0, 2.0, 3.0],
        [2, 0, 2, 1.0, 1.0, 2.0, 1.0],
        [3, 1, 3, 1.0, 2.0, 2.0, 0.0],
    ]
    path = critical_path(run)
    # The last close took in client 1 alone, begun as round 2 closed; that took in client 0 last, begun at 5 s, before which
    # nothing had arrived.
    assert path[["client", "start_s", "end_s"]].fillna(-1).to_numpy().tolist() == [
        [-1, 0.0, 5.0],
        [0, 5.0, 6.0],
        [0, 6.0, 7.0],
        [0, 7.0, 9.0],
        [-1, 9.0, 10.0],
        [1, 10.0, 11.0],
        [1, 11.0, 13.0],
        [1, 13.0, 15.0],
    ]


def test_updates_that_take_several_rounds_by_hand(tmp_path: Path) -> None:
    # Rounds of 2 s, training of 3 s, one sub-channel that is good in round 3 only: trained in rounds 1 and 2, lost in 2, sent
    # again and delivered in 3, then training in 4.
    (tmp_path / "states.csv").write_text("0\n0\n1\n1\n")
    tables: dict[str, Any] = {
        "name": "ages",
        "rounds": 4,
        "clients": {"count": 1},
        "server": {"kind": "asynchronous", "round_s": 2.0},
        "compute": constant(3.0),
        "channels": {
            "count": 1,
            "states": {"kind": "file", "path": str(tmp_path / "states.csv")},
            "delay": {"kind": "constant", "value_s": 0.5},
        },
        "scheduler": {"kind": "round-robin"},
    }
    run = run_records(quietly(tables))
    told = decompose(run)
    assert told[["compute_s", "queue_s", "upload_s", "resend_s", "wait_s"]].to_numpy().tolist() == [
        [2.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.5, 0.0, 0.5],
        [0.0, 0.0, 0.0, 0.5, 1.5],
        [2.0, 0.0, 0.0, 0.0, 0.0],
    ]
    path = critical_path(run)
    assert path[["phase", "end_s"]].to_numpy().tolist() == [
        # Round 3 opened at its time, and let the update be sent again, whenever it had been trained and lost.
        ["clock", 2.0],
        ["clock", 4.0],
        ["upload", 4.5],
        ["clock", 6.0],
        ["clock", 8.0],
    ]


def checked(run: RunRecords) -> pd.DataFrame:
    """The critical path of a run, once its decomposition and the path are known to divide time up without rest."""
    found = edges(run)
    times = found[list(EDGES)].to_numpy()
    assert (np.diff(times, axis=1) >= 0.0).all()
    bounds = run.rounds.set_index("round").loc[found["round"]]
    assert (times[:, 0] == bounds["start_s"].to_numpy()).all()
    assert (times[:, -1] == bounds["end_s"].to_numpy()).all()
    told = decompose(run)
    assert told[list(PHASES)].sum(axis=1).to_numpy() == pytest.approx(told["length_s"].to_numpy(), rel=0, abs=1e-9)
    assert (told[list(PHASES)].to_numpy() >= 0.0).all()
    if not run.carries:
        assert len(told) == len(run.attempts)
        assert set(told["round"]) == set(run.attempts["round"])
    path = critical_path(run)
    if len(run.rounds):
        assert path["start_s"].iloc[0] == 0.0
        assert path["end_s"].iloc[-1] == run.rounds["end_s"].iloc[-1]
        assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    return path


def several() -> list[tuple[str, dict[str, Any]]]:
    semi = BUFFERED | {"server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.0}}
    server = {"kind": "buffered", "concurrency": 4, "pacing": "latency", "unknown_latency_s": 2.0}
    paced = BUFFERED | {"server": server, "policy": {"kind": "random"}}
    ages = other("scheduler", "glr-cucb")
    cut = ages | {"server": {"kind": "asynchronous", "round_s": 0.15}}
    return [
        ("queue", rough()),
        ("buffered", BUFFERED),
        ("paced", paced),
        ("semi", semi),
        ("ages", ages),
        ("cut", cut),
        ("slots", other("policy", "super-arm-ucb")),
        ("peers", other("policy", "bp-index")),
    ]


@pytest.mark.parametrize(("name", "tables"), several(), ids=[name for name, _ in several()])
def test_every_server_divides_its_time_without_rest(name: str, tables: dict[str, Any]) -> None:
    assert len(checked(run_records(quietly(tables)))) > 0


@pytest.mark.parametrize("seed", each_nth(5, range(12)))
def test_random_worlds_divide_their_time_without_rest(seed: int, tmp_path: Path) -> None:
    run = quietly(random_tables(seed, tmp_path))
    view = run_records(run)
    checked(view)
    table = closers(view)
    study = straggler_study(run.rounds, run.clients)
    alone = table[table["client"].notna()]
    cost_s = alone.groupby(alone["client"].astype(int))["stretch_s"].sum()
    assert cost_s[cost_s > 0].to_dict() == pytest.approx(study.per_client["cost_s"][study.per_client["cost_s"] > 0].to_dict())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 60))
def test_more_random_worlds_divide_their_time_without_rest(seed: int, tmp_path: Path) -> None:
    checked(run_records(quietly(random_tables(seed, tmp_path))))


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="by = 'phone': must be 'round', 'client' or 'group'"):
        totals(decompose(run_records(quietly(BY_TURNS))), "phone")  # type: ignore[arg-type]


def test_causes_that_do_not_fit_together_are_refused() -> None:
    run = run_records(quietly(BY_TURNS))
    for changed, message in (
        (run.rounds.assign(closed_after=99), "number 99.* is in no table"),
        (run.rounds.assign(opened_by="end", opened_after=run.rounds["closed_after"]), "they lead in a circle"),
    ):
        with pytest.raises(ValueError, match=f"the recorded causes do not fit together.*{message}"):
            critical_path(replace(run, rounds=changed))
