"""The public functions of `netsim`: what they return, what they write, what they refuse."""

from __future__ import annotations

import collections.abc
import subprocess
import sys
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netsim
from models.policies.random import Random
from scenarios.registry import in_process
from scenarios.runs.reading import read_file
from scenarios.runs.run import run as run_to_folder
from scenarios.schema.errors import ScenarioError
from tests.helpers.small_scenario import Shell

NAMES = ["Scenario", "Script", "World", "fit", "load", "open_run", "open_sweep", "register", "resume", "run", "sweep"]
TABLES: dict[str, Any] = {
    "name": "study",
    "rounds": 12,
    "clients": {"count": 10},
    "server": {"per_round": 3},
    "policy": {"kind": "random"},
    "uplink": {"delay": {"kind": "gaussian", "mean_s": {"from": 0.1, "to": 1.0}, "std_s": 0.05}},
}
MODULE = """
import numpy as np
from models.policies.random import Random

class Mine(Random):
    def __init__(self, *, clients: int, per_round: int, first: int = 0) -> None:
        super().__init__(clients=clients, per_round=per_round)
        self.first, self.size = first, per_round

    def select(self, view):
        return np.arange(self.first, self.first + self.size)
"""


class Failing(Random):
    """A policy with a mistake."""

    def select(self, view: Any) -> Any:
        return [][0]


def unnamed() -> Any:
    """A class that no file can name."""

    class Hidden(Random):
        pass

    return Hidden


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "_OBJECTS", {})
    monkeypatch.setattr(in_process, "_REGISTERED", {})


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A policy in a module that can be imported."""
    (tmp_path / "api_policies.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "api_policies", raising=False)
    import api_policies

    return api_policies.Mine


def test_dir_lists_exactly_what_there_is() -> None:
    assert dir(netsim) == NAMES == netsim.__all__
    for name in NAMES:
        if name == "Script":
            continue  # the type of a generator, for annotations
        assert getattr(netsim, name).__name__ == name
        assert getattr(netsim, name).__doc__
    assert typing.get_origin(netsim.Script) is collections.abc.Generator
    with pytest.raises(AttributeError, match="no attribute 'simulate'"):
        _ = netsim.simulate  # type: ignore[attr-defined]


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, netsim; dir(netsim); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "netsim" in found
    assert not {"torch", "pandas", "matplotlib", "simpy", "pydantic", "numpy", "scenarios", "models", "analysis"} & found


@pytest.mark.parametrize("source", ["name", "file", "path", "dict"])
def test_a_scenario_is_loaded_from_all_it_may_be(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(['name = "study"', "rounds = 12", "clients.count = 10", "server.per_round = 3", 'policy.kind = "random"'])
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    given: Any = {"name": "unreliable", "file": "study.toml", "path": tmp_path / "study.toml", "dict": TABLES}[source]
    scenario = netsim.load(given, {"rounds": 5, "server.deadline_s": 2.0})
    assert isinstance(scenario, netsim.Scenario)
    assert (scenario.rounds, scenario.server.deadline_s) == (5, 2.0)
    assert netsim.load(scenario) == scenario
    assert netsim.load(scenario, {"seed": 7}).seed == 7


def test_a_run_in_memory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[int, int]] = []
    done = netsim.run(TABLES, seed=3, progress=lambda rounds, most: seen.append((rounds, most)))
    assert list(tmp_path.iterdir()) == []
    assert len(done.rounds) == done.summary["rounds"] == done.arrow("rounds").num_rows == 12
    assert len(done.clients) == 36
    assert done.seed == done.scenario["seed"] == 3
    assert seen == [(i, 12) for i in range(1, 13)]
    assert TABLES["rounds"] == 12


def test_out_writes_what_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    assert shell.run()[0] == 0
    done = netsim.run(shell.file, out=tmp_path / "python")
    assert done.path == tmp_path / "python"
    names = sorted(path.name for path in shell.out.iterdir())
    assert sorted(path.name for path in done.path.iterdir()) == names
    for name in names:
        if name.endswith((".parquet", ".toml")):
            assert (done.path / name).read_bytes() == (shell.out / name).read_bytes(), name
    assert netsim.open_run(done.path).rounds.equals(netsim.run(shell.file).rounds)
    with pytest.raises(ScenarioError, match="already holds a run"):
        netsim.run(shell.file, out=done.path)
    assert netsim.run(shell.file, out=done.path, overwrite=True).summary["rounds"] == done.summary["rounds"]


def test_a_sweep_in_memory_is_the_one_in_a_folder(tmp_path: Path) -> None:
    grid = {"policy.kind": ["random", "all"], "server.deadline_s": [0.6, 2.0]}
    seen: list[tuple[int, int]] = []
    held = netsim.sweep(TABLES, grid=grid, seeds=range(2), jobs=1, progress=lambda done, most: seen.append((done, most)))
    written = netsim.sweep(TABLES, grid=grid, seeds=range(2), jobs=1, out=tmp_path / "sweep", figures=False)
    assert held.variants == written.variants == netsim.open_sweep(tmp_path / "sweep").variants
    assert len(held.variants) == 4
    assert held.seeds == (0, 1)
    assert seen[-1] == (8 * 12, 8 * 12)
    assert held.rounds.equals(written.rounds)
    assert list(held.clients.columns[:3]) == ["variant", "label", "seed"]
    assert held.comparison.equals(written.comparison)
    assert [row.label for row in held.compare().rows] == list(held.labels.values())
    assert held.run("kind=all+deadline_s=2.0", 1).summary["totals"]["selected"] == 120
    assert len(held.plot("latency").legends[0].get_texts()) == 4
    assert (tmp_path / "sweep" / "comparison.parquet").is_file()
    with pytest.raises(ScenarioError, match="already holds a sweep"):
        netsim.sweep(TABLES, grid=grid, seeds=range(2), jobs=1, out=tmp_path / "sweep")
    again = netsim.sweep(TABLES, grid=grid, seeds=range(2), jobs=1, out=tmp_path / "sweep", resume=True, figures=False)
    assert again.rounds.equals(written.rounds)


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    def interrupt(rounds: int, most: int) -> None:
        if rounds == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"after 5 rounds; to go on: netsim\.resume\("):
        netsim.run(TABLES, out=tmp_path / "run", progress=interrupt)
    done = netsim.resume(tmp_path / "run")
    assert done.rounds.equals(netsim.run(TABLES).rounds)
    with pytest.raises(ScenarioError, match="the run has come to its end"):
        netsim.resume(tmp_path / "run")
    netsim.sweep(TABLES, seeds=[1], out=tmp_path / "sweep", jobs=1, figures=False)
    with pytest.raises(ScenarioError, match=r"holds a sweep; go on with it by sweep\(scenario, .*resume=True"):
        netsim.resume(tmp_path / "sweep")


def test_mistakes_are_told_as_the_command_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    shell.file.write_text(shell.file.read_text(encoding="utf-8").replace("rounds", "rouds"), encoding="utf-8")
    code, _, told = shell.run()
    assert code == 2
    for call in (netsim.load, netsim.run, netsim.sweep):
        with pytest.raises(ScenarioError) as error:
            call(shell.file)  # type: ignore[operator]
        assert isinstance(error.value, ValueError)
        assert str(error.value) == told.rstrip("\n")
        assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: netsim.Scenario(**{**TABLES, "rounds": 0}), "scenario: rounds = 0: must be >= 1"),
        (lambda: netsim.load("no-such-study"), "'no-such-study' does not exist"),
        (lambda: netsim.load(7), "scenario = 7: must be a file, the name of a scenario, a dictionary or a netsim.Scenario"),
        (lambda: netsim.load(TABLES, {"policy.kind": "rondom"}), "did you mean 'random'"),
        (lambda: netsim.sweep(TABLES, grid={"policy.kind": ["random", "rondom"]}), "did you mean 'random'"),
        (lambda: netsim.sweep(TABLES, resume=True), "give it as out"),
        (lambda: netsim.load(TABLES, ["rounds=3"]), "changes = ['rounds=3']: must be a dictionary of dotted keys"),
        (lambda: netsim.load(TABLES, {3: 1}), "changes = {3: 1}: must be a dictionary"),
        (lambda: netsim.sweep(TABLES, seeds=3), "seeds = 3: must be a list, such as range(10)"),
        (lambda: netsim.sweep(TABLES, seeds="12"), "seeds = '12': must be a list, such as range(10)"),
        (lambda: netsim.sweep(TABLES, seeds=[1.5]), "seeds = 1.5: must be a whole number"),
        (lambda: netsim.sweep(TABLES, seeds=[True]), "seeds = True: must be a whole number"),
        (lambda: netsim.sweep(TABLES, grid=["rounds"]), "grid = ['rounds']: must be a dictionary"),
        (lambda: netsim.sweep(TABLES, grid={"policy.kind": "random"}), "grid['policy.kind'] = 'random': must be a list"),
        (lambda: netsim.sweep(TABLES, variants="random"), "variants = 'random': must be a list"),
        (lambda: netsim.sweep(TABLES, tables="rounds"), "tables = 'rounds': must be a list"),
        (lambda: netsim.sweep(TABLES, cluster=3), "cluster = 3: must be a text"),
        (lambda: netsim.sweep(TABLES, jobs="2"), "jobs = '2': must be a whole number"),
        (lambda: netsim.sweep(TABLES, event_limit=0), "event_limit = 0: must be a whole number >= 1"),
        (lambda: netsim.run(TABLES, event_limit=-1), "event_limit = -1: must be a whole number >= 1"),
        (lambda: netsim.run(TABLES, wall_limit_s="a"), "wall_limit_s = 'a': must be a number of seconds"),
        (lambda: netsim.run(TABLES, wall_limit_s=True), "wall_limit_s = True: must be a number of seconds"),
        (lambda: netsim.run(TABLES, out=3), "out = 3: must be the path of a folder"),
        (lambda: netsim.resume("nowhere", event_limit=2.5), "event_limit = 2.5: must be a whole number >= 1"),
        (lambda: netsim.sweep(TABLES, jobs=-1), "--jobs -1: must be >= 1; leave it out for all cores"),
        (lambda: netsim.sweep(TABLES, retries=-1), "--retries -1: must be >= 0"),
        (lambda: netsim.register("policy", "mine", dict), "builtins:dict lacks needs_losses, and nothing can be added to it"),
        (lambda: netsim.sweep("unreliable", variants=[]), "variants: names none; name some of sweep.variants of unreliable"),
        (lambda: netsim.open_run("nowhere"), "nowhere: expected a run folder, but there is no such folder"),
        (lambda: netsim.open_sweep("nowhere"), "nowhere: expected a sweep folder, but there is no such folder"),
        (lambda: netsim.resume("nowhere"), "nowhere: is not the folder of a run"),
        (lambda: netsim.register("policy", "random", Random), "name = 'random': is the policy of netsim"),
        (lambda: netsim.register("polcy", "mine", Random), "did you mean 'policy'"),
        (lambda: netsim.register("policy", "my policy", Random), "must be a word of letters"),
        (lambda: netsim.register("policy", "mine", 3), "must be a class"),
        (
            lambda: netsim.load(TABLES, {"policy": {"kind": Random(clients=9, per_round=3)}}),
            'its arguments as keys beside it: {"kind": Random',
        ),
    ],
)
def test_what_is_refused(call: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError) as error:
        call()
    assert told in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_seeds_may_be_whole_numbers_of_numpy() -> None:
    assert netsim.run(TABLES, seed=np.int64(3)).seed == 3  # type: ignore[arg-type]
    assert netsim.sweep(TABLES, seeds=np.arange(2, 4), jobs=1).seeds == (2, 3)


def test_what_is_doubtful_is_warned_of() -> None:
    doubtful = netsim.load(TABLES, {"uplink.delay": {"kind": "constant", "value_s": 0.5}, "server.deadline_s": 0.1})
    with pytest.warns(UserWarning, match=r"^(server|clients)") as told:
        done = netsim.run(doubtful)
    assert [str(one.message) for one in told] == [one["text"] for one in done.summary["warnings"]]
    assert len(told) == 2  # of which one is known before the run
    with pytest.warns(UserWarning, match="deadline"):
        netsim.sweep(doubtful, jobs=1)
    with pytest.raises(ScenarioError, match="--strict"):
        netsim.run(doubtful, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        netsim.run(TABLES)


def test_a_warning_names_the_line_that_called_netsim(tmp_path: Path) -> None:
    doubtful = netsim.load(TABLES, {"uplink.delay": {"kind": "constant", "value_s": 0.5}, "server.deadline_s": 0.1})

    def interrupt(done: int, most: int) -> None:
        raise KeyboardInterrupt

    def interrupted() -> netsim.Run:
        with pytest.raises(KeyboardInterrupt):
            netsim.run(doubtful, out=tmp_path / "cut", progress=interrupt)
        return netsim.resume(tmp_path / "cut")

    calls: dict[str, Callable[[], object]] = {
        "run": lambda: netsim.run(doubtful),
        "run in a folder": lambda: netsim.run(doubtful, out=tmp_path / "run"),
        "resume": interrupted,
        "sweep": lambda: netsim.sweep(doubtful, seeds=[1], jobs=1),
        "sweep in a folder": lambda: netsim.sweep(doubtful, seeds=[1], jobs=1, out=tmp_path / "sweep", figures=False),
        "a run fails": lambda: netsim.sweep(TABLES, grid={"policy.kind": ["random", f"{__name__}:Failing"]}, jobs=1),
    }
    named = {}
    for name, call in calls.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        named[name] = {warning.filename for warning in caught}
    assert named == {name: {__file__} for name in calls}


def test_a_class_stands_where_a_kind_does(mine: Any, tmp_path: Path) -> None:
    tables = TABLES | {"policy": {"kind": mine, "first": 4}}
    held = netsim.run(tables)
    assert set(held.clients["client"]) == {4, 5, 6}
    assert held.policy == held.scenario["policy"]["kind"] == "api_policies:Mine"
    written = netsim.run(tables, out=tmp_path / "run")
    assert read_file(tmp_path / "run" / "scenario.toml")["policy"] == {"kind": "api_policies:Mine", "first": 4}
    assert written.rounds.equals(held.rounds)
    with pytest.raises(ScenarioError, match=r"policy\.frist = 4: unknown key; did you mean 'first'"):
        netsim.run(TABLES | {"policy": {"kind": mine, "frist": 4}})


def test_a_registered_name_is_an_abbreviation(mine: Any, tmp_path: Path) -> None:
    netsim.register("policy", "mine", mine)
    netsim.register("policy", "mine", mine)  # a cell of a notebook runs twice
    netsim.run(TABLES | {"policy": {"kind": "mine", "first": 2}}, out=tmp_path / "run")
    assert read_file(tmp_path / "run" / "scenario.toml")["policy"] == {"kind": "api_policies:Mine", "first": 2}
    with pytest.raises(ScenarioError, match="did you mean 'mine'"):
        netsim.load(TABLES | {"policy": {"kind": "mien"}})
    with pytest.raises(ScenarioError, match="keyword-only"):
        netsim.register("policy", "loose", type("Loose", (Random,), {"__init__": lambda self, size: None}))


def test_a_class_of_a_notebook_runs_in_memory_and_is_not_written(tmp_path: Path) -> None:
    hidden = unnamed()
    tables = TABLES | {"policy": {"kind": hidden}}
    assert netsim.run(tables).rounds.equals(netsim.run(TABLES).rounds)
    for write in (netsim.run, netsim.sweep):
        with pytest.raises(ScenarioError, match=r"policy\.kind = Hidden: .* no scenario\.toml can name; move it to a module"):
            write(tables, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_another_class_of_the_same_name_is_another() -> None:
    first, second = unnamed(), unnamed()
    kinds = [netsim.load(TABLES | {"policy": {"kind": one}}).policy.kind for one in (first, second, first)]
    assert kinds == ["in_memory:Hidden", "in_memory:Hidden_2", "in_memory:Hidden"]


def test_processes_of_a_sweep_know_the_classes_of_a_notebook() -> None:
    swept = netsim.sweep(TABLES, grid={"policy.kind": [unnamed(), "random"]}, seeds=[1, 2], jobs=2)
    assert swept.variants == ("kind=Hidden", "kind=random")
    for seed in (1, 2):
        assert swept.run("kind=Hidden", seed).rounds.equals(swept.run("kind=random", seed).rounds)


def test_functions_and_data_sets_may_be_given_too() -> None:
    pytest.importorskip("torch", reason="trains")
    import numpy as np

    def alternating(labels: Any, *, clients: int, generator: Any) -> list[Any]:
        return [np.arange(len(labels))[client::clients] for client in range(clients)]

    learner = {
        "data": {"kind": "digits"},
        "partition": {"kind": alternating},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    }
    done = netsim.run(TABLES | {"rounds": 2, "learner": learner})
    assert done.scenario["learner"]["partition"]["kind"] == "in_memory:alternating"
    assert done.partition.groupby("client")["samples"].sum().max() - done.partition.groupby("client")["samples"].sum().min() <= 1


def test_a_scenario_of_the_schema_is_a_scenario_too(tmp_path: Path) -> None:
    scenario = netsim.load(TABLES)
    assert scenario.tables() == TABLES
    assert netsim.run(scenario.model_copy(update={"rounds": 3})).summary["rounds"] == 3
    assert run_to_folder(scenario, tmp_path / "run")["rounds"] == 12
