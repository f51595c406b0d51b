"""The tables of a run as files: streamed, typed, nulls for what was not reached, complete once closed."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from netsim.core.rows import FORMAT, DetectionRow, JamRow, RoundRow, UpdateRow
from netsim.records.in_memory import ArrowRecorder
from netsim.records.sinks import NoRecorder, ParquetRecorder
from netsim.records.wanted import WantedTables
from tests.helpers.memory_recorder import MemoryRecorder

NAN = math.nan


def round_row(number: int, accuracy: float = NAN) -> RoundRow:
    return RoundRow(number, number - 1.0, float(number), 3, 1, 1, 0, 0, 1, 2.5, number, accuracy, NAN, NAN, NAN, 30, 20)


def update_row(number: int, outcome: str = "delivered", upload_s: float = 0.5) -> UpdateRow:
    return UpdateRow(number, 7, outcome, 0.0, 0.0, 0.0, 0.0, 0.25, 0.25, upload_s, 0.5, False, 4, 2, 1.5, 3.5)


def test_columns_and_types_are_those_of_the_rows(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path, WantedTables(jams=True, detections=True))
    recorder.close()
    rows = (("rounds", RoundRow), ("clients", UpdateRow), ("jams", JamRow), ("detections", DetectionRow))
    for name, row in rows:
        schema = pq.read_schema(tmp_path / f"{name}.parquet")
        assert tuple(schema.names) == row._fields
        assert schema.metadata[b"netsim.table"] == name.encode()
        assert schema.metadata[b"netsim.format"] == str(FORMAT).encode()
        for field in schema:
            if field.name.endswith("_s"):
                assert field.type == pa.float64()
            if field.name.endswith("_bytes"):
                assert field.type == pa.int64()


def test_what_was_not_reached_is_null_and_zero_stays_zero(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path)
    recorder.round(round_row(1))
    recorder.round(round_row(2, accuracy=0.0))
    recorder.attempts(UpdateRow._fields).append(update_row(1, "lost", NAN))
    recorder.close()
    rounds = pq.read_table(tmp_path / "rounds.parquet").to_pylist()
    assert [row["accuracy"] for row in rounds] == [None, 0.0]
    assert [row["round"] for row in rounds] == [1, 2]
    (client,) = pq.read_table(tmp_path / "clients.parquet").to_pylist()
    assert client == update_row(1, "lost")._asdict() | {"upload_end_s": None}
    assert set(client) == set(UpdateRow._fields)


def test_rows_are_written_as_they_come_and_none_is_lost(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("netsim.records.in_memory._FLUSH_ROWS", 100)
    recorder = ParquetRecorder(tmp_path)
    path, sizes = tmp_path / "clients.parquet", []
    growing = lambda: sum(file.stat().st_size for file in tmp_path.iterdir() if "clients.parquet" in file.name)  # noqa: E731
    for number in range(1, 1051):
        recorder.attempts(UpdateRow._fields).append(update_row(number, ("delivered", "late", "lost")[number % 3]))
        sizes.append(growing())
    # A file has grown all along, under another name until it is whole: rows do not wait in memory for the end.
    assert sizes[-1] > sizes[500] > 0 == sizes[50]
    recorder.close()
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [100] * 10 + [50]
    table = file.read()
    assert table["round"].to_pylist() == list(range(1, 1051))
    assert table["outcome"].to_pylist() == [("delivered", "late", "lost")[number % 3] for number in range(1, 1051)]


def test_tables_that_are_not_wanted_are_not_there(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path, WantedTables(clients=False))
    recorder.attempts(UpdateRow._fields).append(update_row(1))
    recorder.jam(JamRow(1, "j", 0, 0.0, 1.0, 0, 0))
    recorder.detection(DetectionRow(1, 1.0, 0, "glr-exact", 9, 0))
    recorder.round(round_row(1))
    recorder.close()
    assert [path.name for path in tmp_path.iterdir()] == ["rounds.parquet"]
    assert pq.read_table(tmp_path / "rounds.parquet").num_rows == 1


def test_in_memory_too_only_what_is_wanted_is_kept() -> None:
    recorder = ArrowRecorder(WantedTables(clients=False))
    recorder.attempts(UpdateRow._fields).append(update_row(1))
    recorder.round(round_row(1))
    recorder.close()
    assert {name: table.num_rows for name, table in recorder.tables.items()} == {"rounds": 1}


def test_a_run_without_rows_leaves_readable_tables(tmp_path: Path) -> None:
    ParquetRecorder(tmp_path).close()
    assert pq.read_table(tmp_path / "clients.parquet").num_rows == 0


def test_recorders_in_memory_and_none_take_the_same_calls() -> None:
    for recorder in (MemoryRecorder(), NoRecorder()):
        recorder.round(round_row(1))
        recorder.attempts(UpdateRow._fields).append(update_row(1))
        recorder.jam(JamRow(1, "j", 0, 0.0, 1.0, 0, 0))
        recorder.detection(DetectionRow(1, 1.0, 0, "glr-exact", 9, 0))
        recorder.close()
    kept = MemoryRecorder()
    kept.attempts(UpdateRow._fields).append(update_row(3))
    assert kept.updates == [update_row(3)]


def test_outages_and_jammers_may_be_as_many_as_a_scenario_names(tmp_path: Path) -> None:
    names = [f"number {i}" for i in range(300)]
    wanted = WantedTables(jams=True)
    recorder = ParquetRecorder(tmp_path, wanted)
    table = recorder.attempts(UpdateRow._fields)
    for number, name in enumerate(names):
        table.append(update_row(number, "lost")._replace(cause=name))
        recorder.jam(JamRow(number, name, 0, 0.0, 1.0, 1, 1))
        if number == 200:
            state = recorder.state_dict()
            recorder = ParquetRecorder(tmp_path, wanted)
            recorder.load_state_dict(state)
            table = recorder.attempts(UpdateRow._fields)
    recorder.close()
    assert pq.read_table(tmp_path / "clients.parquet")["cause"].to_pylist() == names
    assert pq.read_table(tmp_path / "jams.parquet")["jammer"].to_pylist() == names
