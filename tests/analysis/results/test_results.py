"""Opening run and sweep folders: what is read, what is refused, what is imported."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.api import open_run, open_sweep
from analysis.results import sources
from analysis.results.folders import is_run, is_sweep
from analysis.results.run import COLUMNS, Run
from netsim.records.sinks import ParquetRecorder
from tests.helpers.result_folders import ROUNDS, write_run, write_sweep, write_table


def test_a_run_gives_its_tables_summary_and_scenario(tmp_path: Path) -> None:
    clients = {"round": [1, 1], "client": [4, 7], "outcome": ["delivered", "lost"], "upload_end_s": [2.0, None]}
    rounds = {"round": [1, 2], "start_s": [0.0, 2.0], "end_s": [2.0, 5.0], "accuracy": [None, 0.5]}
    run = open_run(write_run(tmp_path / "run", rounds, clients, seed=3))
    assert (run.name, run.policy, run.seed, run.variant, run.label) == ("study", "pause", 3, "pause", "pause")
    assert run.rounds["end_s"].tolist() == [2.0, 5.0]
    np.testing.assert_array_equal(run.rounds["accuracy"], [np.nan, 0.5])
    assert run.clients["outcome"].tolist() == ["delivered", "lost"]
    np.testing.assert_array_equal(run.clients["upload_end_s"], [2.0, np.nan])
    assert run.rounds is run.rounds
    assert run.arrow("rounds", ["round", "end_s"]).to_pydict() == {"round": [1, 2], "end_s": [2.0, 5.0]}
    assert run.scenario == {"name": "study", "seed": 3, "policy": {"kind": "pause"}}
    assert run.summary["ended"] == "all rounds done"
    assert run.has_clients


def test_the_summary_states_what_jammers_jam_and_the_scenario_of_an_earlier_version_shows_it(tmp_path: Path) -> None:
    stated = write_run(tmp_path / "stated", jammed={"van": "uplink"})
    earlier = write_run(tmp_path / "earlier")
    for path in (stated, earlier):
        jammers = '[peers]\nspeed_km_per_s = 1.0\n[[jammers]]\nname = "van"\n[[jammers]]\nname = "truck"\ncables = "all"\n'
        with (path / "scenario.toml").open("a", encoding="utf-8") as file:
            file.write(jammers)
    assert open_run(stated).jammed == {"van": "uplink"}
    assert open_run(earlier).jammed == {"van": "peers", "truck": "network"}


def test_a_run_without_client_records_says_so(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run"))
    assert not run.has_clients
    with pytest.raises(ValueError, match=r"clients\.parquet: expected the clients table.*may not record"):
        _ = run.clients
    with pytest.raises(ValueError, match="table = 'letters'"):
        run.arrow("letters")  # type: ignore[arg-type]


def test_a_sweep_lists_and_opens_its_runs(tmp_path: Path) -> None:
    one = {"round": [1], "start_s": [0.0], "end_s": [1.0]}
    path = write_sweep(tmp_path / "s", {"pause": {1: one, 2: one}, "random": {1: one, 2: one}}, baseline="random", pause="PAUSE")
    sweep = open_sweep(path)
    assert sweep.variants == ("pause", "random")
    assert sweep.labels == {"pause": "PAUSE", "random": "random"}
    assert sweep.seeds == (1, 2)
    assert len(sweep) == 4
    assert sweep.target_accuracy is None
    assert [(run.variant, run.seed) for run in sweep] == [("pause", 1), ("pause", 2), ("random", 1), ("random", 2)]
    assert (sweep.run("pause", 2).label, sweep.run("pause", 2).seed) == ("PAUSE", 2)
    assert [run.seed for run in sweep.runs("random")] == [1, 2]
    with pytest.raises(ValueError, match="no run of variant 'fastest' at seed 1"):
        sweep.run("fastest", 1)


def test_folders_are_told_apart(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    sweep = write_sweep(tmp_path / "sweep", {}, baseline="x")
    assert (is_run(run), is_sweep(run)) == (True, False)
    assert (is_run(sweep), is_sweep(sweep)) == (False, True)
    assert not is_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"summary\.json is missing; this is a sweep"):
        open_run(sweep)
    with pytest.raises(ValueError, match=r"sweep\.json is missing; this is a single run"):
        open_sweep(run)
    with pytest.raises(ValueError, match=r"nowhere: expected a run folder, but there is no such folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"nowhere: expected a sweep folder, but there is no such folder"):
        open_sweep(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "no key 'format'"),
        ('{"name": "x"}', "no key 'format'"),
        ('{"format": 4, "name": "x", "policy": "p", "seed": 1}', "format 4 is newer than format 3"),
        ('{"format": "1", "name": "x", "policy": "p", "seed": 1}', "its format is '1', which is no whole number"),
        ('{"format": "one", "name": "x", "policy": "p", "seed": 1}', "its format is 'one', which is no whole number"),
        ('{"format": 0, "name": "x", "policy": "p", "seed": 1}', "expected format 3, but found 0"),
        ('{"format": 1, "name": "x", "policy": "p"}', "key 'seed' is missing"),
    ],
)
def test_a_foreign_summary_is_refused(tmp_path: Path, text: str, message: str) -> None:
    run = write_run(tmp_path / "run")
    (run / "summary.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        open_run(run)
    assert "summary.json" in str(caught.value)


def test_foreign_tables_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    file = run / "rounds.parquet"
    columns = {"round": [1]}
    write_table(file, "rounds", columns, format="4")
    with pytest.raises(ValueError, match=r"rounds\.parquet: format 4 is newer"):
        _ = open_run(run).rounds
    write_table(file, "rounds", columns, drop=("end_s", "bytes_up", "reward"))
    with pytest.raises(ValueError, match=r"rounds\.parquet: .*columns are missing: end_s, bytes_up"):
        _ = open_run(run).rounds
    write_table(file, "clients", columns)
    with pytest.raises(ValueError, match="says it is table 'clients'"):
        _ = open_run(run).rounds
    pq.write_table(pa.table({"round": [1]}), file)
    with pytest.raises(ValueError, match="carries no table name"):
        _ = open_run(run).rounds
    file.write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"rounds\.parquet: expected a Parquet file"):
        _ = open_run(run).rounds
    file.unlink()
    with pytest.raises(ValueError, match=r"rounds\.parquet is missing"):
        open_run(run)


def test_a_column_that_a_file_lacks_is_read_as_null_of_its_type(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"round": [1, 2]})
    write_table(run / "rounds.parquet", "rounds", {"round": [1, 2]}, drop=("consensus_s", "jammed"))
    opened = open_run(run)
    assert set(opened.rounds.columns) == set(COLUMNS["rounds"])
    assert opened.rounds["consensus_s"].isna().all()
    types = {name: str(opened.arrow("rounds", [name]).schema.field(name).type) for name in ("consensus_s", "jammed")}
    assert types == {"consensus_s": "double", "jammed": "int64"}
    (piece,) = opened.pieces("rounds", ["jammed"])
    assert piece.to_pydict() == {"jammed": [None, None]}
    assert opened.arrow("rounds", ["jammed", "round"]).to_pydict() == {"jammed": [None, None], "round": [1, 2]}
    write_table(run / "probes.parquet", "probes", {"round": [1]}, drop=("accuracy",))
    assert opened.probes["accuracy"].isna().all()


def test_a_broken_scenario_is_refused_when_asked_for(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "scenario.toml").write_text("a = ", encoding="utf-8")
    with pytest.raises(ValueError, match=r"scenario\.toml: .*not TOML"):
        _ = open_run(run).scenario
    (run / "scenario.toml").unlink()
    with pytest.raises(ValueError, match=r"scenario\.toml: .*no such file"):
        _ = open_run(run).scenario


def test_a_malformed_sweep_is_refused(tmp_path: Path) -> None:
    one = {"round": [1], "start_s": [0.0], "end_s": [1.0]}
    path = write_sweep(tmp_path / "s", {"pause": {1: one}}, baseline="pause")
    file = path / "sweep.json"
    content = json.loads(file.read_text())
    for change, message in (
        ({"baseline": "random"}, "baseline = 'random': must be one of the variants pause"),
        ({"runs": [{"variant": "pause"}]}, "missing or malformed: 'label'"),
        ({"runs": content["runs"] * 2}, "listed twice"),
        ({"format": 7}, "format 7 is newer"),
    ):
        file.write_text(json.dumps(content | change))
        with pytest.raises(ValueError, match=message):
            open_sweep(path)
    file.write_text(json.dumps(content))
    (path / "pause/seed-1/summary.json").unlink()
    with pytest.raises(ValueError, match="expected the run folder of variant 'pause', seed 1"):
        list(open_sweep(path))


def test_importing_loads_no_heavy_library() -> None:
    code = (
        "import sys, analysis, analysis.results.run;"
        "heavy = {'matplotlib', 'pandas', 'pyarrow', 'scipy', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy; analysis.open_run; assert 'matplotlib' not in sys.modules;"
        "import analysis.report.write; assert 'matplotlib' not in sys.modules and 'pandas' not in sys.modules;"
        "analysis.draw_all; assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_every_export_resolves() -> None:
    import analysis

    for name in analysis.__all__:
        assert getattr(analysis, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = analysis.nothing


def test_a_run_without_rounds_has_empty_tables(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    ParquetRecorder(run).close()
    opened = open_run(run)
    assert (len(opened.rounds), len(opened.clients)) == (0, 0)


def test_columns_are_read_once_and_dropped_where_room_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (open_run(write_run(tmp_path / name, ROUNDS)) for name in ("first", "second"))
    opened: list[str] = []
    arrow = Run.arrow
    monkeypatch.setattr(Run, "arrow", lambda self, *arguments: (opened.append(self.source.place), arrow(self, *arguments))[1])
    assert first.columns(["end_s", "accuracy"])["end_s"].tolist() == ROUNDS["end_s"]
    assert np.isnan(first.columns(["opinion"])["opinion"]).all()
    assert len(opened) == 1
    with pytest.raises(ValueError, match="read-only"):
        first.columns(["end_s"])["end_s"][0] = 5.0
    # Room for one run alone: that which was asked longest ago is read again.
    monkeypatch.setattr(sources, "KEPT_BYTES", 1)
    second.columns(["end_s"])
    first.columns(["end_s"])
    assert opened == [first.source.place, second.source.place, first.source.place]
    before = sources.KeptColumns._bytes
    assert before > 0
    del first
    gc.collect()
    assert sources.KeptColumns._bytes < before
