"""A file operation that fails, whichever it is: one message, what is complete stays readable, and the work can be completed."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import open_run
from netsim.records.tables import UNFINISHED
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.small_scenario import Shell, small, small_tables


def tables(folder: Path) -> dict[str, bytes]:
    found = [file for file in sorted(folder.rglob("*.parquet")) if file.parent.name != UNFINISHED]
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


class FailingFile(io.FileIO):
    """A file of which a write may fail."""

    count: Callable[[], None]

    def write(self, data: Any) -> int:
        FailingFile.count()
        return super().write(data)


@contextmanager
def failing(n: int, code: int, monkeypatch: pytest.MonkeyPatch, lasting: bool = False) -> Iterator[list[int]]:
    """The n-th operation that changes a file fails, with `lasting` also all after it; yields [how many were asked for]."""
    asked = [0]

    def count() -> None:
        asked[0] += 1
        if asked[0] == n or (lasting and asked[0] > n):
            raise OSError(code, os.strerror(code))

    def counted(function: Any) -> Any:
        def called(*arguments: Any, **settings: Any) -> Any:
            count()
            return function(*arguments, **settings)

        return called

    opened = io.open

    def to_write(file: Any, mode: str = "r", *arguments: Any, **settings: Any) -> Any:
        if "b" not in mode or not set(mode) & set("wxa"):
            return opened(file, mode, *arguments, **settings)
        count()
        raw = FailingFile(file, mode.replace("b", "").replace("t", ""))
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    with monkeypatch.context() as patch:
        FailingFile.count = staticmethod(count)  # type: ignore[method-assign]
        patch.setattr(io, "open", to_write)
        for name in ("fsync", "replace", "rename", "mkdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        yield asked


def readable(out: Path) -> int | str:
    """Rounds of an interrupted run; the remedy where its tables have just been replaced, and its summary has not."""
    try:
        return int(open_run(out).arrow("rounds").num_rows)
    except ValueError as error:
        return str(error).rpartition("make it again: ")[2]


def interrupt(simulation: Any) -> None:
    if simulation.server.round == 4:
        raise KeyboardInterrupt


MORE_FAILURES = [
    *(("run", errno.EIO, False), ("run", errno.ENOSPC, True), ("resume", errno.ENOSPC, True)),
    *(("sweep", errno.EIO, False), ("sweep", errno.ENOSPC, True)),
    *(("interrupted", errno.EIO, False), ("interrupted", errno.ENOSPC, True)),
]
"""Cases of the slow suite."""


@pytest.mark.parametrize(
    ("what", "code", "lasting"),
    [("resume", errno.EIO, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_FAILURES)],
)
def test_whichever_operation_fails_the_work_can_be_completed(
    what: str, code: int, lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsim.records.in_memory._FLUSH_ROWS", 5)
    planned = plan(small_tables() | {"sweep": {"seeds": [1, 2]}}, "small")

    def begin(out: Path) -> None:
        if what == "sweep":
            sweep(planned, out, machines=Machines(jobs=1))
        elif what == "resume":
            go_on(out, checkpoint_s=0)
        else:
            run(small(), out, checkpoint_s=0, after_round=interrupt if what == "interrupted" else None)

    def complete(out: Path) -> None:
        if what == "sweep":
            sweep(planned, out, machines=Machines(jobs=1), earlier=Earlier(resume=True))
        elif out.is_dir():
            go_on(out)
        else:
            run(small(), out)

    complete_one = tmp_path / "whole"
    complete(complete_one)
    expected = tables(complete_one)
    # Some operations, at random: all of them are those of `python -m tests.reliability.files`.
    rng = np.random.default_rng([code, len(what)])
    n = tried = 0
    while True:
        n += int(rng.integers(1, 40))
        out = tmp_path / f"{n}"
        if what == "resume":
            run(small(), out, after_round=interrupt, checkpoint_s=0)
        with failing(n, code, monkeypatch, lasting) as asked:
            try:
                begin(out)
                told = ""
            except UserError as error:
                told = str(error)
        if asked[0] < n:
            break
        tried += 1
        assert told == "" or os.strerror(code) in told, told
        assert "\n" not in told or what == "sweep"
        if what == "resume" and tables(out) != expected:
            assert readable(out) in (4, f"netsim resume {out}")
        if told or what == "interrupted":
            complete(out)
        assert tables(out) == expected
        assert not list(out.rglob("*.netsim-tmp"))
    assert tried > 1


def test_a_run_that_has_not_begun_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2, 3):
        with failing(n, errno.ENOSPC, monkeypatch, lasting=True), pytest.raises(UserError, match="No space left on device"):
            run(small(), tmp_path / "a" / "b")
        assert not (tmp_path / "a").exists()


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    with failing(18, errno.ENOSPC, monkeypatch, lasting=True):
        code, _, err = shell.run()
    assert (code, err.count("\n")) == (2, 1)
    assert "No space left on device); make room" in err
    assert f"netsim resume {shell.out}" in err
    assert shell("resume", shell.out, "--quiet")[0] == 0


def test_a_replay_whose_folder_cannot_be_written_names_a_remedy_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The folder in which a run is run again is temporary: nobody can go on with what is in it.
    run(small(), tmp_path / "run")
    shell = Shell(tmp_path, monkeypatch, capsys)
    with failing(12, errno.ENOSPC, monkeypatch, lasting=True):
        code, _, said = shell("replay", tmp_path / "run", "--quiet")
    assert (code, len(said.splitlines())) == (2, 1)
    assert "cannot be run again in" in said
    assert "No space left on device" in said
    assert "make room there, or name another folder in TMPDIR" in said
    assert "resume" not in said
    assert shell("replay", tmp_path / "run", "--quiet")[0] == 0
