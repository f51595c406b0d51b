"""A run in memory leaves the same tables and the same summary as one that writes them, and the same objects read both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import Run, draw, open_run, write_trace
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import load
from scenarios.runs.run import run
from scenarios.schema.errors import BooksError, UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.simulation import build

STUDIES = {
    "unreliable": ["rounds=30"],
    "jammed": ["rounds=20"],
    "bp_ucb_timing_loss": ["rounds=2", "output.messages_table=true"],
    "quickstart": ["rounds=2", "time_limit_s=2.0"],
}
TABLES = {
    "unreliable": ["rounds", "clients"],
    "jammed": ["rounds", "clients", "jams", "detections"],
    "bp_ucb_timing_loss": ["rounds", "messages"],
    "quickstart": ["rounds", "clients", "partition"],
}


def in_memory(study: Scenario) -> Run:
    return Run(run_in_memory(build(study), study))


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", STUDIES)
def test_the_tables_and_the_summary_are_those_of_a_folder(name: str, tmp_path: Path) -> None:
    study = load(name, STUDIES[name])
    held = in_memory(study)
    run(study, tmp_path / "run")
    written = open_run(tmp_path / "run")
    assert set(held.tables) == set(written.tables) == set(TABLES[name])
    for table in held.tables:
        ours, theirs = held.arrow(table), written.arrow(table)
        assert ours.schema.metadata == theirs.schema.metadata
        assert ours.to_pylist() == theirs.to_pylist()
        assert [str(field.type) for field in ours.schema] == [str(field.type) for field in theirs.schema]
    left_out = {"wall_time_s", "machine", "files"}
    assert {k: v for k, v in held.summary.items() if k not in left_out} == {
        k: v for k, v in written.summary.items() if k not in left_out
    }
    assert held.scenario == written.scenario
    assert held.path is None
    assert written.path == tmp_path / "run"


def test_rows_of_many_flushes_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = in_memory(load("unreliable", ["rounds=10"])).arrow("clients").to_pylist()
    monkeypatch.setattr("netsim.records.in_memory._FLUSH_ROWS", 7)
    assert in_memory(load("unreliable", ["rounds=10"])).arrow("clients").to_pylist() == whole


def test_figures_and_traces_take_runs_in_memory(tmp_path: Path) -> None:
    first, second = (in_memory(load("unreliable", ["rounds=10", f"policy.kind={kind!r}"])) for kind in ("random", "all"))
    assert first.plot("latency")._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]
    assert [text.get_text() for text in draw([first, second], "latency").legends[0].get_texts()] == ["random", "all"]
    assert write_trace(first, tmp_path / "trace.json") > 0
    with pytest.raises(ValueError, match=r"'accuracy': these runs have no data for it; they have for .*latency"):
        first.plot("accuracy")
    with pytest.raises(ValueError, match="figure = 'nothing': there is no such figure; known: accuracy, "):
        first.plot("nothing")
    with pytest.raises(ValueError, match=r"in memory .*table jams: expected the jams table of a run, but there is no such table"):
        first.arrow("jams")


def test_runs_of_one_policy_and_seed_are_told_apart() -> None:
    runs = [in_memory(load("unreliable", ["rounds=5"])) for _ in range(2)]
    labels = [text.get_text() for text in draw(runs, "latency").legends[0].get_texts()]
    assert len(set(labels)) == 2


def test_books_that_do_not_balance_end_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.runs.summary.running_sums.Totals.add", lambda totals, row, names, counts: None)
    with pytest.raises(BooksError, match=r"unreliable, seed 1: the books .* Nothing is kept"):
        in_memory(load("unreliable", ["rounds=5"]))


def test_what_a_policy_of_the_users_returns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from models.policies.random import Random\nclass Twice(Random):\n    def select(self, view): return [0, 0]\n"
    (tmp_path / "twice_selected.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings: list[Any] = ["rounds=5", 'policy={kind = "twice_selected:Twice"}']
    with pytest.raises(UserError, match=r"policy\.kind = 'twice_selected:Twice': "):
        in_memory(load("unreliable", settings))
