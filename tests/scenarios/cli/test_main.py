"""The command line: its commands, where results go, what is replaced, and how a run is stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis import open_run
from scenarios.runs.folders.marker import Marker
from scenarios.runs.reading import load
from scenarios.runs.run import run
from scenarios.sweeps import sweep as sweeps
from scenarios.workers.interrupts import stop_requests
from tests.helpers.commands import LONG, contents, start, tables
from tests.helpers.small_scenario import TEXT, Shell, small


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    yield Shell(tmp_path, monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def test_the_list_of_commands_cuts_no_sentence_short(shell):
    code, out, _ = shell("--help")
    commands = out.split("Commands:")[1]
    assert (code, "what-if" in commands, "..." in commands) == (0, True, False)


def test_a_run_leaves_its_folder_and_a_summary_on_the_screen(shell):
    code, out, err = shell.run()
    assert (code, err) == (0, "")
    assert set(contents(shell.out)) == {"netsim.json", "scenario.toml", "rounds.parquet", "clients.parquet", "summary.json"}
    summary = json.loads((shell.out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["rounds"], summary["ended"], summary["seed"]) == (6, "rounds", 1)
    assert "6 (rounds)" in out
    assert f"results: {shell.out}" in out


def test_without_out_results_go_below_runs(shell):
    assert shell("run", shell.file, "--quiet")[0] == 0
    assert open_run(shell.folder / "runs" / "small").name == "small"


def test_the_seed_option_is_the_seed(shell):
    shell.run("--seed", "7")
    assert open_run(shell.out).seed == 7
    assert load(shell.out / "scenario.toml").seed == 7
    by_option = tables(shell.out)
    shell.run("--set", "seed=7", "--overwrite")
    assert tables(shell.out) == by_option
    shell.run("--overwrite")
    assert tables(shell.out) != by_option


def test_a_run_is_repeated_from_its_own_scenario_byte_for_byte(shell):
    shell.run("--set", "uplink.random_changes={count=2,parameter='delay.std_s'}", "--set", "server.deadline_s=0.8")
    first = tables(shell.out)
    again = shell.folder / "again"
    assert shell("run", shell.out / "scenario.toml", "--out", again, "--quiet")[0] == 0
    assert tables(again) == first


@pytest.mark.parametrize("name", ["unreliable", "scripted_latency"])
def test_a_shipped_scenario_is_repeated_from_what_it_wrote(name, tmp_path):
    run(load(name, ["rounds=20"]), tmp_path / "a")
    run(load(tmp_path / "a" / "scenario.toml"), tmp_path / "b")
    assert tables(tmp_path / "a") == tables(tmp_path / "b")


def test_a_run_that_is_there_is_kept_unless_it_is_to_be_replaced(shell):
    shell.run()
    before = contents(shell.out)
    code, _, err = shell.run()
    assert code == 2
    assert err == (
        f"--out {str(shell.out)!r}: already holds a run (scenario.toml, rounds.parquet, clients.parquet, summary.json); "
        "give --overwrite or another folder\n"
    )
    # Nor does --overwrite touch it as long as anything is wrong.
    for mistake in ("policy.alpha=-1", "server.per_round=7", "uplink.delay.std_s=-1"):
        assert shell.run("--overwrite", "--set", mistake)[0] == 2
        assert contents(shell.out) == before
    assert shell.run("--overwrite", "--set", "output.clients_table=false", "--set", "seed=2")[0] == 0
    assert set(contents(shell.out)) == {"netsim.json", "scenario.toml", "rounds.parquet", "summary.json"}
    assert open_run(shell.out).seed == 2


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("options", [[], ["--overwrite"]], ids=["keep", "overwrite"])
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_folder_that_will_not_do_is_refused_and_left_alone(shell, command, options):
    (shell.folder / "file").write_text("mine", encoding="utf-8")
    (shell.folder / "full").mkdir()
    (shell.folder / "full" / "thesis.tex").write_text("mine", encoding="utf-8")
    before = contents(shell.folder)
    for out, fragment in {
        shell.folder / "file": "file is a file; name a folder",
        shell.folder / "file" / "below": "file is a file; name a folder",
        shell.folder / "full": "is a folder with other things in it; name a new or an empty folder",
        shell.folder / ("x" * 300): "cannot be written (File name too long); name another folder",
        Path("/proc/nowhere/x"): "name another folder",
    }.items():
        code, printed, err = shell(command, shell.file, "--quiet", "--out", out, *options)
        assert (code, printed) == (2, "")
        assert err.startswith(f"--out {str(out)!r}: ")
        assert fragment in err
        assert err.count("\n") == 1
    assert contents(shell.folder) == before


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("trace", "RUN"), "file"),
        (("figure", "RUN", "gantt"), "file"),
        (("report", "RUN"), "place"),
        (("compare", "RUN"), "folder"),
        (("breakpoints", "RUN", "--window", "1"), "folder"),
        (("fit", "RUN", "--seeds", "0"), "folder"),
        (("reproduce", "flow_cases"), "folder"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_results_that_cannot_be_written_are_told_with_path_reason_and_remedy(shell, command, kind):
    shell.run()
    before = contents(shell.folder)
    out = Path("/proc/nowhere/x.png")
    code, _, err = shell(*(shell.out if word == "RUN" else word for word in command), "--out", out)
    last = err.splitlines()[-1]  # below warnings
    assert (code, "cannot be written (" in last) == (2, True)
    assert last.startswith(f"--out '{out}': ")
    assert last.endswith(f"; name another {kind}")
    assert contents(shell.folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_folder_that_may_not_be_written_is_refused(shell):
    closed = shell.folder / "closed"
    closed.mkdir(mode=0o500)
    code, _, err = shell("run", shell.file, "--quiet", "--out", closed / "run")
    assert (code, "cannot be written (permission denied)" in err) == (2, True)


def test_an_empty_folder_will_do(shell):
    shell.out.mkdir()
    assert shell.run()[0] == 0


def test_a_run_does_not_replace_a_sweep_nor_a_sweep_a_run(shell):
    assert shell.sweep("--seeds", "1")[0] == 0
    before = contents(shell.out)
    code, _, err = shell.run("--overwrite")
    assert (code, "holds a sweep; name a new or an empty folder" in err) == (2, True)
    assert contents(shell.out) == before
    single = shell.folder / "single"
    shell("run", shell.file, "--out", single, "--quiet")
    code, _, err = shell("sweep", shell.file, "--out", single, "--quiet", "--overwrite")
    assert (code, "holds a run; name a new or an empty folder" in err) == (2, True)
    assert open_run(single).seed == 1


def test_check_reads_and_builds_and_writes_nothing(shell):
    before = contents(shell.folder)
    code, out, _ = shell("check", shell.file)
    assert code == 0
    assert out == f"{shell.file}: good. 6 clients, 2 a round, 6 rounds; 2 variants (pause, random), 4 runs in a sweep.\n"
    assert contents(shell.folder) == before


def test_a_sweep_names_the_runs_that_a_warning_is_about(shell):
    # Rounds close before anything can arrive, of one policy alone.
    late = 'sweep.variants=[{name="pause"},{name="random",set={"policy.kind"="random","server.deadline_s"=0.001}}]'
    folder = shell.folder / "s"
    options = ("--seeds", "1..3", "--out", folder, "--quiet", "--no-figures", "--jobs", "1")
    code, _, err = shell("sweep", shell.file, "--set", late, *options)
    told = "warning: random, seeds 1..3: clients: no update of any client was ever delivered\n"
    assert (code, err.count(told)) == (0, 1)


def test_a_sweep_that_is_interrupted_as_its_folder_is_cleared_can_go_on(shell, monkeypatch):
    clears = sweeps.clear_sweep

    def interrupted(*given):
        os.kill(os.getpid(), signal.SIGINT)
        clears(*given)

    monkeypatch.setattr(sweeps, "clear_sweep", interrupted)
    code, _, err = shell.sweep()
    assert (code, "interrupted; 0 of 4 runs are complete" in err) == (130, True)
    monkeypatch.setattr(sweeps, "clear_sweep", clears)
    assert shell.sweep("--resume")[0] == 0


def test_check_counts_one_run_in_words(shell):
    _, out, _ = shell("check", shell.file, "--set", "sweep={}")
    assert "; 1 variant (pause), 1 run in a sweep." in out


def test_check_warns_of_changes_that_a_run_does_not_reach(shell):
    code, _, err = shell("check", shell.file, "--set", "rounds=2")
    assert code == 0
    assert err == "warning: uplink.changes.0.at_round = 3: comes after the last of 2 rounds\n"


@pytest.mark.parametrize("name", ["quickstart", "unreliable", "latency_scale"])
def test_check_of_shipped_scenarios(shell, name):
    assert shell("check", name)[0] == 0


def test_list_shows_scenarios_and_kinds(shell):
    code, out, _ = shell("list")
    assert code == 0
    for word in ("quickstart", "sa-pause", "gilbert-elliott", "by-group", "cifar-10"):
        assert word in out


def test_report_of_a_run_and_of_a_folder_that_is_none(shell):
    shell.run()
    code, out, _ = shell("report", shell.out)
    assert (code, f"report: {shell.out / 'report' / 'report.html'}" in out) == (0, True)
    assert contents(shell.out / "report").keys() == {"report.html"}
    code, out, _ = shell("report", shell.out, "--format", "md", "--tables", "--out", shell.folder / "text")
    assert (code, f"report: {shell.folder / 'text' / 'report.md'}" in out) == (0, True)
    assert (shell.folder / "text" / "report-tables" / "figures.tex").is_file()
    for folder in (shell.folder / "nowhere", shell.file, shell.folder):
        before = contents(shell.folder)
        code, out, err = shell("report", folder)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert contents(shell.folder) == before
        assert not (shell.folder / "nowhere").exists()
    (shell.out / "rounds.parquet").write_bytes(b"no table")
    code, _, err = shell("report", shell.out)
    assert (code, "rounds.parquet: is damaged (its checksum is not the one in summary.json)" in err) == (2, True)
    code, _, err = shell("report", shell.out, "--out", shell.file / "x")
    assert code == 2


def test_brackets_in_names_are_no_markup(shell):
    shell.file.write_text(TEXT.replace('name = "pause"', 'name = "pause"\nlabel = "[/red] all [b]"'), encoding="utf-8")
    code, out, err = shell("sweep", shell.file, "--out", shell.folder / "[b]", "--jobs", "1", "--no-figures")
    assert code == 0, err
    assert "[/red]" in out
    assert f"runs: {shell.folder / '[b]'}" in out


def test_version_and_help(shell):
    code, out, _ = shell("--version")
    assert (code, out.startswith("netsim ")) == (0, True)
    for arguments in ([], ["--help"]):
        _, out, err = shell(*arguments)
        assert all(command in out + err for command in ("run", "sweep", "report", "check", "list", "schema"))
        assert "Traceback" not in err
    assert shell("rum")[0] == 2


def test_quiet_means_no_progress(shell):
    code, out, err = shell("run", "scripted_latency", "--set", "rounds=5", "--quiet")
    assert (code, err) == (0, "")
    assert "5 (rounds)" in out
    assert open_run(shell.folder / "runs" / "scripted_latency").name == "scripted_latency"
    code, _, err = shell("run", "scripted_latency", "--set", "rounds=5", "--overwrite")
    assert (code, "5/5 rounds" in err) == (0, True)


def test_a_mistake_is_one_line_and_code_2(shell):
    (shell.folder / "bad.toml").write_text(TEXT.replace("per_round = 2", "per_round = 20"), encoding="utf-8")
    told = "bad.toml: server.per_round = 20: must be at most the 6 clients of clients.count\n"
    assert shell("run", "bad.toml") == (2, "", told)
    assert not (shell.folder / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_is_readable_up_to_a_round(tmp_path, number):
    (tmp_path / "long.toml").write_text(LONG, encoding="utf-8")
    started = start(tmp_path, "run", "long.toml", "--out", "out", "--quiet")
    deadline = time.monotonic() + 60
    # Tables get their names as the run ends; a checkpoint comes after 2 s of rounds.
    while not (tmp_path / "out" / "unfinished" / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(number)
    _, err = started.communicate(timeout=60)
    done = open_run(tmp_path / "out")
    rounds = done.summary["rounds"]
    assert started.returncode == 130
    assert err == f"interrupted after {rounds} rounds; the files hold these. To go on: netsim resume out\n"
    assert done.summary["ended"] == "interrupted"
    assert done.rounds["round"].tolist() == list(range(1, rounds + 1))
    # Stopped between two rounds: every update has ended, and the tables agree.
    assert len(done.clients) == 3 * rounds
    assert set(done.clients["outcome"]) == {"delivered"}
    assert done.summary["totals"]["in_flight"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_at_the_close_of_its_round(tmp_path, number):
    def fifth(simulation):
        if simulation.server.round == 5:
            signal.raise_signal(number)

    summary = run(small("rounds=50"), tmp_path / "out", after_round=fifth)
    assert (summary["ended"], summary["rounds"], summary["totals"]["in_flight"]) == ("interrupted", 5, 0)


def test_the_first_signal_waits_for_the_round_and_the_second_does_not():
    with stop_requests() as stop:
        assert not stop.asked
        stop.check()
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_round_that_does_not_close_is_cut_off_after_a_while(monkeypatch):
    monkeypatch.setattr("scenarios.workers.interrupts.GRACE_S", 0.1)
    before = time.monotonic()
    with stop_requests():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)
    assert time.monotonic() - before < 20


def test_an_interrupt_in_mid_round_leaves_readable_files(tmp_path, monkeypatch):
    def interrupt(self, row, names, counts):
        if row.round == 4:
            raise KeyboardInterrupt
        add(self, row, names, counts)

    from scenarios.runs.summary.running_sums import Totals

    add = Totals.add
    monkeypatch.setattr(Totals, "add", interrupt)
    summary = run(small(), tmp_path / "out")
    assert (summary["ended"], summary["rounds"]) == ("interrupted", 3)
    assert pq.read_table(tmp_path / "out" / "rounds.parquet")["round"].to_pylist() == [1, 2, 3]
    assert set(pq.read_table(tmp_path / "out" / "clients.parquet")["round"].to_pylist()) >= {1, 2, 3}


@pytest.mark.parametrize("name", ["quickstart", "jammed"])
def test_every_file_of_a_run_is_one_that_its_marker_lists(name, tmp_path):
    run(load(name, ["rounds=2"]), tmp_path / "out")
    found = Marker.read(tmp_path / "out")
    assert found is not None
    assert {file.name for file in (tmp_path / "out").iterdir()} == {*found.files, "netsim.json"}
