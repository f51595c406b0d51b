"""Sweeps: which runs they plan, that each is the run it would be alone, and what is kept, replaced and listed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from analysis import open_run, open_sweep
from scenarios.cli.main import main
from scenarios.cli.output import summary_table, sweep_progress
from scenarios.runs.reading import parse, read_file, shipped_files
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import add_grid, choose_variants, plan, sweep
from scenarios.sweeps.workers import SweepProgress
from tests.helpers.commands import LONG, contents, living, start, tables
from tests.helpers.small_scenario import Shell, small, small_tables


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    yield Shell(tmp_path, monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def planned(*settings, grid=None, seeds=None):
    return plan(add_grid(small_tables(*settings), grid or {}, seeds), "small.toml")


def paths(found):
    return [run.path for run in found.runs]


def listed(folder: Path) -> list[str]:
    return [run["path"] for run in json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["runs"]]


def test_every_variant_has_the_same_seeds():
    found = planned()
    assert paths(found) == ["pause/seed-1", "pause/seed-2", "random/seed-1", "random/seed-2"]
    assert [(p.variant, p.label, p.seed, p.scenario.seed, p.scenario.policy.kind) for p in found.runs[1:3]] == [
        ("pause", "pause", 2, 2, "pause"),
        ("random", "random", 1, 1, "random"),
    ]
    assert found.baseline == "pause"


def test_a_grid_is_crossed_with_the_variants():
    found = planned(
        "sweep.variants=[{name='a'},{name='b',label='B',set={'server.per_round'=3}}]", grid={"rounds": [2, 3]}, seeds=[5]
    )
    assert paths(found) == ["a+rounds=2/seed-5", "a+rounds=3/seed-5", "b+rounds=2/seed-5", "b+rounds=3/seed-5"]
    assert [p.label for p in found.runs] == ["a, rounds=2", "a, rounds=3", "B, rounds=2", "B, rounds=3"]
    assert [(p.scenario.server.per_round, p.scenario.rounds) for p in found.runs] == [(2, 2), (2, 3), (3, 2), (3, 3)]


def test_some_of_the_variants_are_what_they_are_among_all():
    every = add_grid(small_tables("sweep.baseline=pause"), {"rounds": [2, 3]}, [5])
    tables = {**every, "sweep": {**every["sweep"], "baseline": "pause+rounds=3"}}
    among_all = plan(tables, "small.toml")
    for names in (["pause"], ["random"], ["random", "pause"]):
        found = plan(choose_variants(tables, names, "small.toml"), "small.toml")
        assert found.runs == [p for p in among_all.runs if p.variant.split("+")[0] in names]
        assert found.baseline == ("pause+rounds=3" if "pause" in names else "random+rounds=2")
    assert plan(choose_variants(tables, None, "small.toml"), "small.toml") == among_all


def test_variants_are_named_on_the_command_line(shell):
    assert shell.sweep("--variants", "random", "--seeds", "3")[0] == 0
    assert listed(shell.out) == ["random/seed-3"]
    before = contents(shell.out)
    refused = {
        ("--variants", "randon"): "small.toml; did you mean 'random'?",
        ("--variants", "random,"): "variants: '' is none of sweep.variants",
        ("--variants", "random", "--set", "sweep.variants=[]"): "small.toml has no sweep.variants to choose from",
    }
    for given, told in refused.items():
        code, _, err = shell.sweep("--overwrite", *given)
        assert (code, told in err, err.startswith("variants")) == (2, True, True), err
        assert contents(shell.out) == before


def test_a_new_kind_drops_nothing_that_a_variant_or_the_grid_sets_beside_it():
    alphas, kinds = {"policy.alpha": [1.0, 2.0]}, {"policy.kind": ["pause", "sa-pause"]}
    for grid in (alphas | kinds, kinds | alphas):
        found = planned("sweep.variants=[]", grid=grid, seeds=[1])
        told = {(p.scenario.policy.kind, p.scenario.policy.alpha) for p in found.runs}
        assert told == {(kind, alpha) for kind in kinds["policy.kind"] for alpha in alphas["policy.alpha"]}
    within = "sweep.variants=[{name='a',set={'policy.alpha'=3.0,rounds=2,'policy.kind'='sa-pause'}}]"
    (first,) = planned(within, seeds=[1]).runs
    assert (first.scenario.policy.kind, first.scenario.policy.alpha) == ("sa-pause", 3.0)
    with pytest.raises(UserError, match=r"policy.alpha = 1.0: unknown key"):
        planned("sweep.variants=[]", grid={"policy.alpha": [1.0], "policy.kind": ["random"]})


def tried() -> list[str]:
    """The commands that comments of the library's scenarios propose."""
    texts = [file.read_text(encoding="utf-8") for file in shipped_files()]
    return [line for text in texts for line in re.findall(r"^# Try:  netsim sweep (.+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("line", tried())
def test_the_commands_that_comments_propose_can_be_planned(line):
    name, *options = line.split()
    given = dict(zip(options[::2], options[1::2], strict=True))
    key, values = given.pop("--grid").split("=")
    tables = add_grid(read_file(name), {key: [float(value) for value in values.split(",")]}, [1])
    found = plan(choose_variants(tables, given.pop("--variants").split(","), name), name)
    assert not given
    assert len(found.variants) == 6
    assert len({repr(p.scenario) for p in found.runs}) == 6


@pytest.mark.parametrize("key", ["policy.kind", "policy"])
def test_a_variant_may_not_set_what_the_grid_varies(key):
    grid = {key: ["random"] if key == "policy.kind" else [{"kind": "random"}]}
    told = r"sweep.variants: 'random' sets policy.kind, which sweep.grid varies as well; leave it out of one of them"
    with pytest.raises(UserError, match=told):
        planned(grid=grid)


def test_a_table_in_a_grid_drops_no_key_within_it_that_varies_too():
    tables, numbers = {"server": [{"per_round": 2, "first": 1}]}, {"server.per_round": [1, 2]}
    for grid in (numbers | tables, tables | numbers):
        servers = [p.scenario.server for p in planned("sweep.variants=[]", grid=grid, seeds=[1]).runs]
        assert [(server.per_round, server.first) for server in servers] == [(1, 1), (2, 1)]


def test_variants_whose_names_no_folder_can_have_are_refused_before_any_runs():
    grid = {"description": ["x" * 40], "name": ["y" * 40]}
    found = planned(f"sweep.variants=[{{name='{'z' * 100}'}}]", grid=grid, seeds=[1])
    assert len(found.variants[0]) == 100 + len("+description=+name=") + 80
    with pytest.raises(UserError, match=r"a variant of 231 letters, z{60}\.\., is too long for the name of a folder"):
        planned(f"sweep.variants=[{{name='{'z' * 100}'}}]", grid=grid | {"time_limit_s": [123456789.123456789]}, seeds=[1])


def test_values_of_a_grid_on_the_command_line_need_no_quotes(shell):
    none = ("--set", "sweep.variants=[]", "--set", "rounds=2", "--seeds", "1")
    for given in ("pause,random", "[pause, random]", '["pause", random]'):
        assert shell.sweep(*none, "--overwrite", "--grid", f"policy.kind={given}")[0] == 0
        assert listed(shell.out) == ["kind=pause/seed-1", "kind=random/seed-1"]
    code, _, err = shell.sweep(*none, "--overwrite", "--grid", "server.per_round=1", "--grid", "server.per_round=2")
    assert (code, "--grid 'server.per_round=2': server.per_round is given twice; list all of its values" in err) == (2, True)


def test_a_grid_alone_makes_the_variants():
    found = planned("sweep.variants=[]", grid={"policy.kind": ["pause", "random"], "server.per_round": [1]}, seeds=[1])
    assert paths(found) == ["kind=pause+per_round=1/seed-1", "kind=random+per_round=1/seed-1"]


def test_keys_with_the_same_last_part_are_told_apart():
    found = planned("sweep.variants=[]", grid={"policy.tau_min_s": [0.1], "metrics.reward.tau_min_s": [0.1]}, seeds=[1])
    assert paths(found) == ["policy.tau_min_s=0.1+metrics.reward.tau_min_s=0.1/seed-1"]


def test_values_that_are_no_words_go_by_their_position():
    ramps = [{"from": 0.1, "to": 0.2}, {"from": 0.3, "to": 0.4}]
    found = planned("sweep.variants=[]", "uplink.changes=[]", grid={"uplink.delay.mean_s": [*ramps, 0.5]}, seeds=[1])
    assert paths(found) == ["mean_s=no1/seed-1", "mean_s=no2/seed-1", "mean_s=0.5/seed-1"]
    assert found.runs[1].scenario.uplink.delay.mean_s.to == 0.4


def test_without_seeds_the_scenarios_own_is_run():
    tables = small_tables("seed=9", "sweep={}")
    assert [(p.seed, p.path) for p in plan(tables, "small.toml").runs] == [(9, "pause/seed-9")]


def test_a_grid_on_the_command_line_is_crossed_with_seeds(shell):
    grid = ("--grid", "policy.alpha=1,10", "--grid", "server.per_round=[3]")
    code, out, err = shell.sweep("--set", "sweep.variants=[]", *grid, "--seeds", "1..3")
    assert (code, err) == (0, "")
    assert listed(shell.out) == [f"alpha={alpha}+per_round=3/seed-{seed}" for alpha in (1, 10) for seed in (1, 2, 3)]
    assert open_sweep(shell.out).seeds == (1, 2, 3)
    assert open_run(shell.out / "alpha=10+per_round=3" / "seed-2").scenario["policy"]["alpha"] == 10.0
    assert "alpha=10, per_round=3" in out


def test_a_run_of_a_sweep_is_the_run_it_would_be_alone(tmp_path):
    sweep(planned(), tmp_path / "sweep", machines=Machines(jobs=1))
    run(small("policy.kind=random", "seed=2", "sweep={}"), tmp_path / "alone")
    assert tables(tmp_path / "alone") == tables(tmp_path / "sweep" / "random" / "seed-2")


def test_one_process_and_two_give_the_same_tables(tmp_path):
    seen: list[SweepProgress] = []
    sweep(planned(), tmp_path / "one", machines=Machines(jobs=1))
    sweep(planned(), tmp_path / "two", machines=Machines(jobs=2), progress=seen.append)
    assert tables(tmp_path / "one") == tables(tmp_path / "two")
    assert (tmp_path / "one" / "sweep.json").read_bytes() == (tmp_path / "two" / "sweep.json").read_bytes()
    assert len(tables(tmp_path / "two")) == 4 * 3
    assert seen[-1] == ([6, 6, 6, 6], {})


def test_a_sweep_that_is_there_is_kept_unless_it_is_to_be_replaced(shell):
    shell.sweep()
    before = contents(shell.out)
    code, _, err = shell.sweep()
    assert (code, "already holds a sweep; give --overwrite or another folder" in err) == (2, True)
    for mistake in ("policy.alpha=-1", "sweep.baseline=best", "sweep.variants.1.set={'policy.kind'='pose'}"):
        assert shell.sweep("--overwrite", "--set", mistake)[0] == 2
        assert contents(shell.out) == before


def test_a_sweep_cannot_be_replaced_and_gone_on_with_at_once(shell):
    shell.sweep("--seeds", "1")
    before = contents(shell.out)
    code, _, err = shell.sweep("--seeds", "1", "--overwrite", "--resume")
    told = "overwrite and resume: one replaces the earlier sweep, the other goes on with it; give one of them\n"
    assert (code, err) == (2, told)
    assert contents(shell.out) == before


def test_overwriting_with_other_variants_leaves_nothing_of_the_old_ones(shell):
    assert shell("sweep", shell.file, "--out", shell.out, "--quiet", "--jobs", "1")[0] == 0
    assert (shell.out / "figures" / "latency.png").exists()
    assert shell.sweep("--overwrite", "--set", "sweep.variants=[{name='new'}]", "--seeds", "4")[0] == 0
    left = {"new", "netsim.json", "sweep.json", "comparison.parquet", "dataset"}
    assert {Path(name).parts[0] for name in contents(shell.out)} == left
    assert not (shell.out / "pause").exists()
    assert listed(shell.out) == ["new/seed-4"]
    assert len(open_sweep(shell.out)) == 1


def test_overwriting_keeps_hands_off_what_is_no_run(shell):
    shell.sweep("--seeds", "1")
    note = shell.out / "pause" / "seed-1" / "note.txt"
    note.write_text("mine", encoding="utf-8")
    before = contents(shell.out)
    code, _, err = shell.sweep("--overwrite")
    assert (code, "pause/seed-1 holds other things than a run; name another folder" in err) == (2, True)
    assert contents(shell.out) == before


@pytest.mark.needs_torch
def test_a_learner_that_cannot_be_built_is_found_before_anything_is_replaced(shell):
    shell.sweep()
    before = contents(shell.out)
    # A network that does not fit the images: that tells only once both are there.
    learner = "learner={network={kind='tests.helpers.own_learning:Narrow'},optimizer={kind='sgd',learning_rate=0.1}}"
    code, _, err = shell.sweep("--overwrite", "--set", learner)
    assert code == 2
    assert "(variant pause): learner.network: does not fit input of shape (1, 8, 8)" in err
    assert contents(shell.out) == before


def test_a_policy_that_fails_in_mid_run_ends_the_sweep_and_the_complete_runs_are_listed(tmp_path, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    (site / "failing.py").write_text(
        "from models.policies.random import Random\n"
        "class Failing(Random):\n"
        "    def __init__(self, *, clients: int, per_round: int):\n"
        "        super().__init__(clients=clients, per_round=per_round)\n"
        "    def select(self, view):\n"
        "        return [99] if view.round > 3 else super().select(view)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(site))
    found = planned("sweep.variants.1.set={'policy.kind'='failing:Failing'}")
    with pytest.raises(UserError, match="variant random, seed 1: policy"):
        sweep(found, tmp_path / "out", machines=Machines(jobs=1))
    assert listed(tmp_path / "out") == ["pause/seed-1", "pause/seed-2"]
    assert len(open_sweep(tmp_path / "out")) == 2


def test_an_interrupt_between_runs_stops_the_runs_that_follow_which_every_reader_is_told(tmp_path, monkeypatch, capsys):
    from netsim.simulation import Simulation

    plain = Simulation.run

    def run_slowly(self, until_round=None, after_round=None):
        played.append(self)

        def slow(simulation):
            if len(played) == 2 and simulation.server.round == 3:
                signal.raise_signal(signal.SIGINT)
            after_round(simulation)

        plain(self, until_round, slow)

    played: list[Simulation] = []
    monkeypatch.setattr(Simulation, "run", run_slowly)
    with pytest.raises(KeyboardInterrupt):
        sweep(planned(), tmp_path / "out", machines=Machines(jobs=1))
    assert len(played) == 2
    assert listed(tmp_path / "out") == ["pause/seed-1"]
    assert open_run(tmp_path / "out" / "pause" / "seed-2").summary["ended"] == "interrupted"
    assert open_sweep(tmp_path / "out").missing == (("pause", 2), ("random", 1), ("random", 2))
    words = "3 of 4 planned runs are not complete: pause, seed 2; random, seeds 1, 2."
    for command in ("report", "compare"):
        monkeypatch.setattr(sys, "argv", ["netsim", command, str(tmp_path / "out")])
        with pytest.raises(SystemExit, match="0"):
            main()
        assert f"warning: {words}" in " ".join(capsys.readouterr().err.split())
        monkeypatch.setattr(sys, "argv", ["netsim", command, str(tmp_path / "out"), "--strict"])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert f"--strict: {words}" in " ".join(capsys.readouterr().err.split())
    assert words in (tmp_path / "out" / "report" / "report.html").read_text(encoding="utf-8")
    monkeypatch.setattr(Simulation, "run", plain)
    sweep(planned(), tmp_path / "out", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert open_sweep(tmp_path / "out").missing == ()


def test_a_run_without_privacy_is_not_told_of_it(tmp_path):
    without = ("privacy", "metrics", "sweep")
    tables = {key: value for key, value in small_tables("policy={kind='random'}").items() if key not in without}
    for place, (changes, private) in enumerate([({}, False), ({"privacy": small_tables()["privacy"]}, True)]):
        summary = run(parse(tables | changes), tmp_path / str(place))
        console = Console(record=True, file=io.StringIO())
        console.print(summary_table(summary))
        text = console.export_text()
        assert (summary["privacy"]["guarantee"] is not None) == private
        assert [("largest leak" in text), ("guarantee" in text)] == [private] * 2


SWEEP = """
[sweep]
seeds = [1, 2]
[[sweep.variants]]
name = "short"
set = { rounds = 20 }
[[sweep.variants]]
name = "long"
"""


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "process"])
def test_an_interrupted_sweep_keeps_the_complete_runs(tmp_path, whole_group):
    (tmp_path / "long.toml").write_text(LONG + SWEEP, encoding="utf-8")
    started = start(tmp_path, "sweep", "long.toml", "--out", "out", "--quiet", "--jobs", "2")
    deadline = time.monotonic() + 60
    long_runs = [tmp_path / "out" / "long" / f"seed-{seed}" / "unfinished" / "checkpoint.npz" for seed in (1, 2)]
    while not all(file.exists() for file in long_runs) and time.monotonic() < deadline:
        time.sleep(0.05)
    if whole_group:  # as Ctrl-C does
        os.killpg(started.pid, signal.SIGINT)
    else:
        started.send_signal(signal.SIGTERM)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert err == "interrupted; 2 of 4 runs are complete: out. To go on: the same command with --resume\n"
    assert listed(tmp_path / "out") == ["short/seed-1", "short/seed-2"]
    assert [run.summary["rounds"] for run in open_sweep(tmp_path / "out")] == [20, 20]
    for seed in (1, 2):
        broken_off = open_run(tmp_path / "out" / "long" / f"seed-{seed}")
        assert broken_off.summary["ended"] == "interrupted"
        assert len(broken_off.rounds) == broken_off.summary["rounds"]
    for _ in range(50):
        if not living(started.pid):
            break
        time.sleep(0.1)
    assert living(started.pid) == []


def test_the_progress_display_has_a_line_for_every_variant_and_one_for_all(shell):
    code, _, err = shell("sweep", shell.file, "--jobs", "1", "--no-figures")
    assert code == 0
    assert (err.count("12/12 rounds"), err.count("24/24 rounds")) == (2, 1)


def test_the_progress_of_many_variants_is_one_line(capsys):
    found = planned("sweep.variants=[]", grid={"policy.alpha": list(range(1, 15))}, seeds=[1])
    with sweep_progress(found, quiet=False) as show:
        show(SweepProgress([6] * 13 + [3], {}))
    err = capsys.readouterr().err
    assert err.count("rounds") == err.count("81/84 rounds") == 1


def test_the_progress_display_says_what_runs_wait_for_now_and_then(capsys):
    found = planned()
    waits = {1: "round 3 has taken 12 s; it waits for 2 updates", 2: "round 1 has taken 11 s; it waits for 1 updates"}
    with sweep_progress(found, quiet=False) as show:
        for _ in range(3):
            show(SweepProgress([2, 2, 2, 0], waits))
    lines = [line for line in capsys.readouterr().err.splitlines() if "waits for" in line]
    assert lines == ["pause, seed 2: round 3 has taken 12 s; it waits for 2 updates (1 more run has such a round)"]
    with sweep_progress(found, quiet=True) as show:
        show(SweepProgress([2, 2, 2, 0], waits))
    assert capsys.readouterr().err == ""
