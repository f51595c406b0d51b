"""The critical path by derivatives: a run ends later by as much as a phase takes longer if its exact path holds the phase.

Where the path does not hold the phase, and all of it is exact, the run does not end later.
"""

from __future__ import annotations

from typing import Any

import pytest

from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records
from tests.helpers.derivative_worlds import INEXACT, WORLDS
from tests.helpers.longer_phases import LONGER_S, Phase, end_s, played
from tests.helpers.suites import each_nth

PHASES = ("download", "compute", "upload")


@pytest.mark.parametrize("name", each_nth(5, WORLDS))
def test_the_path_holds_what_moves_the_end(name: str) -> None:
    tables = WORLDS[name]
    view = run_records(played(tables))
    path, was_s = critical_path(view), end_s(tables)
    assert path["exact"].all() == (name not in INEXACT)
    held = path[path["exact"] & path["attempt"].notna()]
    attempts = view.attempts.set_index("number")
    on_path = {(phase, int(number)) for phase, number in zip(held["phase"], held["attempt"], strict=True)}
    everything = {(phase, number) for phase in PHASES for number in attempts.index}
    others = sorted(everything - on_path)[:: max(1, len(everything) // 6)] if path["exact"].all() else []
    for phase, number in [*sorted(on_path)[:: max(1, len(on_path) // 6)], *others]:
        address = _address(phase, number, attempts)
        moved = (end_s(tables, address) - was_s) / LONGER_S
        expected = sum(address == _address(*one, attempts) for one in on_path)
        assert moved == pytest.approx(expected, abs=1e-3), (address, number)


@pytest.mark.parametrize("name", each_nth(7, [name for name in WORLDS if name not in INEXACT], first=2))
def test_a_phase_that_is_longer_in_every_round_moves_the_end_as_often_as_the_path_holds_it(name: str) -> None:
    tables = WORLDS[name]
    held = critical_path(run_records(played(tables))).groupby(["phase", "client"])["attempt"].nunique()
    was_s = end_s(tables)
    most = held[held.index.isin(PHASES, level="phase")].sort_values().index[-3:]
    for phase, client in [*most, ("compute", 0)]:
        moved = (end_s(tables, Phase(phase, None, int(client))) - was_s) / LONGER_S
        assert moved == pytest.approx(held.get((phase, client), 0), abs=2e-3), (phase, client)


def test_updates_that_are_sent_again_are_on_the_path_as_often_as_they_move_the_end() -> None:
    tables, was_s = WORLDS["asynchronous"], end_s(WORLDS["asynchronous"])
    run = run_records(played(tables))
    path = critical_path(run)
    assert run.attempts["started_round"].notna().sum() > 5
    assert set(path["phase"]) <= {"download", "compute", "upload"}
    held = path.groupby(["phase", "client"])["attempt"].nunique()
    moved = [(end_s(tables, Phase("upload", None, client)) - was_s) / LONGER_S for client in range(6)]
    assert moved == pytest.approx([held.get(("upload", client), 0) for client in range(6)], abs=2e-3)
    assert sum(moved) > 10


@pytest.mark.parametrize("name", each_nth(3, ["synchronous", "first", "deadline", "queue", "buffered", "safa"], first=1))
def test_a_message_that_is_sent_again_moves_the_end_once_for_each_sending(name: str) -> None:
    again = {"max_resends": 3, "resend_after_s": 0.17}
    lossy = {"channel": {"kind": "bernoulli", "success": 0.5}} | again
    tables = WORLDS[name] | {"payload": {"down_bytes": 1, "up_bytes": 1}}
    tables |= {"downlink": tables["downlink"] | lossy, "uplink": tables["uplink"] | lossy}
    run = played(tables)
    path, was_s = critical_path(run_records(run)), end_s(tables)
    assert path["exact"].all()
    attempts = run.clients.set_index("number")
    numbers = path.dropna(subset="attempt").drop_duplicates(["phase", "attempt"])
    most_sendings = 0
    for phase, column in (("download", "bytes_down"), ("upload", "bytes_up")):
        held = attempts.loc[numbers["attempt"][numbers["phase"] == phase].astype(int)]
        most_sendings = max(most_sendings, held[column].max())
        for client, sendings in held.groupby("client")[column].sum().items():
            moved = (end_s(tables, Phase(phase, None, int(client))) - was_s) / LONGER_S
            assert moved == pytest.approx(sendings, abs=2e-3), (phase, client)
    assert most_sendings > 2


def test_the_opening_that_waits_for_a_client_is_part_of_the_path() -> None:
    path = critical_path(run_records(played(WORLDS["waits"])))
    assert set(path["phase"]) <= {"download", "compute", "upload"}
    assert path["attempt"].notna().all()


def _address(phase: str, number: int, attempts: Any) -> Phase:
    """Return the address of the draw of a phase: an upload is drawn for the attempt, what comes before for the update."""
    attempt = attempts.loc[number]
    started = attempt["round"] if attempt["started_round"] != attempt["started_round"] else attempt["started_round"]
    return Phase(phase, int(attempt["round"] if phase == "upload" else started), int(attempt["client"]))
