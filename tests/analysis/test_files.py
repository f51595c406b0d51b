"""What is written with `--out` is there whole, or as it was before, whatever fails on the way."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis import open_sweep, write_comparison, write_trace
from analysis.figures.style import save_figure
from analysis.perfetto import write
from analysis.report.write import write_report
from scenarios.cli.main import app
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Machines
from scenarios.sweeps.plan import plan
from scenarios.sweeps.sweep import sweep
from tests.helpers.result_folders import PARTS, ROUNDS, write_run, write_table
from tests.helpers.small_scenario import small_tables


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    sweep(plan(small_tables() | {"sweep": {"seeds": [1]}}, "small"), folder, machines=Machines(jobs=1))
    return open_sweep(folder)


def figure(done: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    save_figure(Figure(), path)


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "trace.json": lambda done, path: write_trace(next(iter(done)), path),
    "trace.json.gz": lambda done, path: write_trace(next(iter(done)), path),
    "comparison.csv": lambda done, path: write_comparison(done, path),
    "comparison.parquet": lambda done, path: write_comparison(done, path),
    "figure.png": figure,
    "report.md": lambda done, path: write_report(done.path, path),
}


def broken(self: Path, data: bytes) -> int:
    with self.open("wb") as file:
        file.write(data[: len(data) // 2])
    raise OSError(errno.ENOSPC, "no space left")


def some(run: Any, first: int, last: int | None) -> Iterator[str]:
    yield "{}"
    raise OSError(errno.ENOSPC, "no space left")


def half(table: Any, path: Path) -> None:
    broken(path, b"half")


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_there_stays_where_a_write_fails(name: str, swept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    WRITERS[name](swept, path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert path in before
    monkeypatch.setattr(Path, "write_bytes", broken)
    monkeypatch.setattr(write, "_event_lines", some)
    monkeypatch.setattr("pyarrow.csv.write_csv", half)
    monkeypatch.setattr("pyarrow.parquet.write_table", half)
    with pytest.raises(OSError, match="no space left"):
        WRITERS[name](swept, path)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    path.unlink()
    with pytest.raises(OSError, match="no space left"):
        WRITERS[name](swept, path)
    assert not path.exists()


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_file_is_not_replaced(name: str, swept: Any, tmp_path: Path) -> None:
    place = tmp_path / name
    os.mkfifo(place)
    with pytest.raises(OSError, match="it is not a regular file"):
        WRITERS[name](swept, place)
    assert place.is_fifo()
    assert list(tmp_path.glob(".*")) == []


def refusal(arguments: list[str]) -> str:
    """Return the message with which a command refuses its arguments."""
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


@pytest.mark.parametrize(("table", "column"), [("rounds", "start_s"), ("rounds", "delivered"), ("clients", "selected_s")])
def test_a_report_of_forged_tables_names_what_is_missing(tmp_path: Path, table: str, column: str) -> None:
    run = write_run(tmp_path / "run", ROUNDS, PARTS)
    columns = dict(ROUNDS if table == "rounds" else PARTS)
    columns[column] = [None, *columns[column][1:]]
    write_table(run / f"{table}.parquet", table, columns)
    message = refusal(["report", str(run)])
    assert f"{table}.parquet: 1 of {len(columns['round'])} values of the column {column} are missing" in message
    assert "the file was changed" in message


def test_a_report_and_a_figure_do_not_follow_links_in_the_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "report.html").write_text("mine", encoding="utf-8")
    run = write_run(tmp_path / "run", ROUNDS, PARTS)
    (run / "report").symlink_to(home, target_is_directory=True)
    for arguments in (["report", str(run)], ["report", str(run), "--tables"], ["figure", str(run), "latency"]):
        assert "run/report: is a symbolic link, which is not followed" in refusal(arguments)
    assert [path.name for path in home.iterdir()] == ["report.html"]
    assert (home / "report.html").read_text(encoding="utf-8") == "mine"
    # A folder elsewhere that the user names may be a link.
    assert "symbolic link" in refusal(["report", str(run), "--out", str(run / "report" / "r.html")])
    (tmp_path / "elsewhere").symlink_to(home, target_is_directory=True)
    assert CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "elsewhere")]).exit_code == 0


def test_a_link_in_the_place_of_the_folder_of_tables_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ROUNDS, PARTS)
    (tmp_path / "home").mkdir()
    (run / "report").mkdir()
    (run / "report" / "report-tables").symlink_to(tmp_path / "home", target_is_directory=True)
    assert "run/report/report-tables: is a symbolic link" in refusal(["report", str(run), "--tables"])
    assert not list((tmp_path / "home").iterdir())
