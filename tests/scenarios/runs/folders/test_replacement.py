"""What netsim replaces and removes: the files that it wrote, and no other; symbolic links are not followed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netsim.records import atomic
from scenarios.runs.folders.lock import hold_lock
from scenarios.runs.folders.marker import MARKER, Marker
from scenarios.runs.folders.replacement import add_files
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from tests.helpers.small_scenario import Shell, small


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, monkeypatch, capsys)


def mine(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine", encoding="utf-8")
    return path


def everything(folder: Path) -> dict[str, bytes | str]:
    """Content of every file below a folder, and where its symbolic links lead."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def interrupt_at(number: int):
    def after_round(simulation):
        if simulation.server.round == number:
            raise KeyboardInterrupt

    return after_round


def swept_with_a_figure(shell: Shell) -> Path:
    """A sweep, and a figure that came to its folder as those of a sweep do; the figure."""
    assert shell.sweep("--seeds", "1")[0] == 0
    mine(shell.folder / "made" / "figures" / "latency.png")
    (drawn,) = add_files(shell.out, shell.folder / "made")
    return drawn


def refused(shell: Shell, *command: str | Path, because: str) -> None:
    before = everything(shell.folder)
    play = {"run": shell.run, "sweep": shell.sweep}.get(str(command[0]))
    code, _, err = shell(*command) if play is None else play(*command[1:])
    assert (code, because in err, err.count("\n")) == (2, True, 1), err
    assert everything(shell.folder) == before


@pytest.mark.parametrize("name", ["summary.json", "scenario.toml", "rounds.parquet", "netsim.json"])
def test_a_folder_with_a_file_named_like_a_runs_is_not_a_runs(shell, name):
    mine(shell.out / name)
    mine(shell.out / "unfinished" / "thesis.tex")
    because = "is damaged, or not of this version" if name == MARKER else "is a folder with other things in it"
    refused(shell, "run", "--overwrite", because=because)
    refused(shell, "sweep", "--overwrite", because=because)


def test_what_is_the_users_in_a_runs_folder_stays_there(shell):
    run(small(), shell.out, after_round=interrupt_at(3))
    kept = [mine(shell.out / name) for name in ("notes.txt", "unfinished/thesis.tex", "jams.parquet", "report/report.md")]
    assert shell.run("--overwrite", "--set", "seed=5")[0] == 0
    assert [path.read_text() for path in kept] == ["mine"] * 4
    assert json.loads((shell.out / "summary.json").read_text())["seed"] == 5
    assert [path.name for path in (shell.out / "unfinished").iterdir()] == ["thesis.tex"]


def test_a_name_that_a_run_needs_and_the_user_has_taken_is_refused(shell):
    assert shell.run("--set", "output.clients_table=false")[0] == 0
    mine(shell.out / "clients.parquet")
    because = "clients.parquet: was not written by netsim, which needs that name; move it elsewhere"
    refused(shell, "run", "--overwrite", because=because)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", ["rounds.parquet", "summary.json", "unfinished", "unfinished/checkpoint.npz", MARKER])
@pytest.mark.parametrize("command", ["run", "resume"])
def test_symbolic_links_in_a_runs_folder_are_not_followed(shell, name, command):
    run(small(), shell.out, after_round=interrupt_at(3))
    elsewhere = shell.folder / "elsewhere" / Path(name).name
    elsewhere.parent.mkdir()
    (shell.out / name).rename(elsewhere)
    (shell.out / name).symlink_to(elsewhere)
    arguments = ("run", "--overwrite") if command == "run" else ("resume", shell.out)
    refused(shell, *arguments, because=f"{Path(name).name}: is a symbolic link, which netsim does not follow")


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path):
    outside = mine(tmp_path / "outside")
    target = tmp_path / "small.json"
    atomic.temporary(target).symlink_to(outside)
    atomic.write(target, b"new")
    assert (outside.read_text(), target.read_bytes()) == ("mine", b"new")
    assert not atomic.temporary(target).is_symlink()


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    target = mine(tmp_path / "small.json")

    def broken() -> None:
        with atomic.open_replacement(target) as file:
            file.write(b"half of it")
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        broken()
    assert everything(tmp_path) == {"small.json": b"mine"}


def test_a_sweep_replaces_its_own_figures_and_runs_only(shell):
    drawn = swept_with_a_figure(shell)
    kept = [mine(shell.out / name) for name in ("figures/mine.png", "pause/seed-77/mine.txt", "notes.txt")]
    assert shell.sweep("--overwrite", "--seeds", "3")[0] == 0
    assert [path.read_text() for path in kept] == ["mine"] * 3
    assert not drawn.exists()
    assert sorted(path.name for path in shell.out.glob("*/seed-*")) == ["seed-3", "seed-3", "seed-77"]
    refused(shell, "sweep", "--overwrite", "--seeds", "77", because="seed-77 holds other things than a run")


def test_a_folder_that_could_not_be_removed_is_in_nobodys_way(shell):
    # As a run completes, its folder of checkpoints is removed if that can be done.
    assert shell.sweep("--seeds", "1")[0] == 0
    (shell.out / "pause" / "seed-1" / "unfinished").mkdir()
    assert shell("sweep", shell.file, "--out", shell.out, "--quiet", "--jobs", "1", "--seeds", "1", "--resume")[0] == 0
    mine(shell.out / "pause" / "seed-1" / "unfinished" / "mine.txt")
    refused(shell, "sweep", "--overwrite", "--seeds", "1", because="seed-1 holds other things than a run")


def test_a_figure_of_the_users_is_not_drawn_over(shell):
    assert shell.sweep("--seeds", "1")[0] == 0
    mine(shell.out / "figures" / "latency.png")
    code, _, err = shell("sweep", shell.file, "--out", shell.out, "--quiet", "--jobs", "1", "--seeds", "1", "--resume")
    assert (code, "latency.png: was not written by netsim" in err) == (2, True)
    assert (shell.out / "figures" / "latency.png").read_text() == "mine"


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", ["pause", "pause/seed-1", "figures", "sweep.json"])
def test_symbolic_links_in_a_sweeps_folder_are_not_followed(shell, name):
    swept_with_a_figure(shell)
    elsewhere = shell.folder / "elsewhere"
    (shell.out / name).rename(elsewhere)
    (shell.out / name).symlink_to(elsewhere)
    for option in ("--overwrite", "--resume"):
        refused(shell, "sweep", option, because="is a symbolic link, which netsim does not follow")


def test_results_of_an_earlier_version_are_refused_with_the_remedy(shell):
    run(small(), shell.out, after_round=interrupt_at(3))
    (shell.out / MARKER).unlink()
    because = "holds a run of a version of netsim that left no list of its files"
    refused(shell, "run", "--overwrite", because=because)
    refused(shell, "resume", shell.out, because=f"run it again: netsim run {shell.out}/scenario.toml --out FOLDER")
    shutil.rmtree(shell.out)
    assert shell.sweep("--seeds", "1")[0] == 0
    (shell.out / MARKER).unlink()
    for option in ("--overwrite", "--resume"):
        because = "holds a sweep of a version of netsim that left no list of its files"
        refused(shell, "sweep", option, because=because)


def test_a_sweep_does_not_go_on_as_a_run(shell):
    assert shell.sweep("--seeds", "1")[0] == 0
    shutil.copy(shell.file, shell.out / "scenario.toml")
    refused(shell, "resume", shell.out, because="this is a sweep: name one of its runs")


@pytest.mark.parametrize("change", ["a file more", "a file outside", "cut short", "no JSON"])
def test_a_marker_that_netsim_did_not_write_so_is_not_trusted(shell, change):
    shell.run()
    marker = shell.out / MARKER
    content = json.loads(marker.read_text())
    outside = mine(shell.folder / "thesis.tex")
    if change == "a file more":
        content["files"].append("notes.txt")
        mine(shell.out / "notes.txt")
    elif change == "a file outside":
        Marker(shell.out, "run", ["scenario.toml", "../thesis.tex"]).write()
        refused(shell, "run", "--overwrite", because="which is outside of the folder")
        assert outside.exists()
        return
    text = json.dumps(content)
    marker.write_text({"cut short": text[:-9], "no JSON": "[]"}.get(change, text))
    refused(shell, "run", "--overwrite", because="netsim.json: is damaged, or not of this version")


def test_a_folder_in_which_a_process_was_killed_as_it_began_will_do(shell):
    mine(atomic.temporary(shell.out / MARKER))
    assert shell.run()[0] == 0


def test_a_trace_goes_to_the_folder_unless_a_file_of_the_users_is_there(shell):
    shell.run()
    assert shell("trace", shell.out)[0] == 0
    assert shell("trace", shell.out)[0] == 0, "its own it may replace"
    (shell.out / "trace.json.gz").unlink()
    Marker(shell.out, "run", ["scenario.toml"]).write()
    mine(shell.out / "trace.json.gz")
    refused(shell, "trace", shell.out, because="trace.json.gz: was not written by netsim")
    assert shell.run("--overwrite")[0] == 2, "summary.json and tables are not listed any more"


HOLDER = """
import sys
from pathlib import Path
from scenarios.runs.folders.lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def start_holder(out: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock until it is killed, or until this process ends."""
    command = [sys.executable, "-c", HOLDER, str(out)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_folder_that_another_process_writes_is_left_alone(shell):
    assert shell.run("--set", "rounds=3")[0] == 0
    process = start_holder(shell.out)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        refused(shell, "run", "--overwrite", because="another process writes there; wait until it has ended")
    finally:
        process.kill()
        process.communicate()
    # The lock went with its process.
    assert shell.run("--overwrite")[0] == 0


def test_one_run_goes_on_twice_at_once_but_for_the_second(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    run(small(), whole)
    run(small(), out, after_round=interrupt_at(3))

    def again(simulation):
        with pytest.raises(UserError, match="another process writes there"):
            go_on(out)

    assert go_on(out, after_round=again)["ended"] == "rounds"
    assert (out / "rounds.parquet").read_bytes() == (whole / "rounds.parquet").read_bytes()


def test_a_sweep_that_is_under_way_is_left_alone(shell):
    assert shell.sweep("--seeds", "1")[0] == 0
    with hold_lock(shell.out):
        for option in ("--overwrite", "--resume"):
            refused(shell, "sweep", option, because="another process writes there")
