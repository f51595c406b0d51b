"""Components of the user's own that were edited between two attempts: told apart by their code, and refused unless allowed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from scenarios.runs.folders.own_code import own_code
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.small_scenario import Shell, small, small_tables

POLICY = """
from lab.helper import first
from models.policies.random import Random

class Own(Random):
    def __init__(self, *, clients: int, per_round: int):
        super().__init__(clients=clients, per_round=per_round)
        self.clients = clients

    def select(self, view):
        import lab_common
        return [first(self.clients), lab_common.LAST]
"""
FILES = {
    "lab/__init__.py": "",
    "lab/policy.py": POLICY,
    "lab/helper.py": "from . import deeper\n\ndef first(clients):\n    return 0\n",
    "lab/deeper.py": "import numpy\n",
    "lab/unrelated.py": "",
    "lab_common.py": "LAST = 1\n",
}
OWN = "policy={kind='lab.policy:Own'}"


class Lab:
    """The user's folder of code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    def edit(self, name: str) -> None:
        (self.folder / name).write_text(FILES[name] + "\n# edited\n", encoding="utf-8")

    def new_process(self) -> None:
        """Forget what was imported."""
        for name in [name for name in sys.modules if name.partition(".")[0] in ("lab", "lab_common")]:
            del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = Lab(tmp_path / "site")
    found.new_process()
    yield found
    found.new_process()


def cut(simulation):
    if simulation.server.round == 3:
        raise KeyboardInterrupt


def test_a_fingerprint_covers_what_the_module_imports_from_its_folder(lab):
    found = own_code(small(OWN))
    assert set(found) == {"lab.policy:Own"}
    assert set(found["lab.policy:Own"]) == {"lab", "lab.policy", "lab.helper", "lab.deeper", "lab_common"}
    assert own_code(small()) == {}
    assert own_code(small("sweep.variants.1.set={policy={kind='lab.policy:Own'}}")) == {}, "another variant's"


def test_the_summary_says_which_code_a_run_used(lab, tmp_path):
    summary = run(small(OWN), tmp_path / "out")
    assert summary["own_code"] == [{"from_round": 1, "components": own_code(small(OWN))}]
    assert run(small(), tmp_path / "none")["own_code"] == []


@pytest.mark.parametrize("name", ["lab/__init__.py", "lab/policy.py", "lab/deeper.py", "lab_common.py"])
def test_a_run_does_not_go_on_with_other_code(lab, tmp_path, name):
    out = tmp_path / "out"
    run(small(OWN), out, after_round=cut)
    before = own_code(small(OWN))
    lab.edit(name)
    lab.new_process()
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    with pytest.raises(UserError, match=rf"the code of 'lab\.policy:Own' \({module}\) has changed since; undo .*--allow-changed"):
        go_on(out)
    assert json.loads((out / "summary.json").read_text())["ended"] == "interrupted"
    summary = go_on(out, allow_changed_code=True)
    assert summary["own_code"] == [
        {"from_round": 1, "components": before},
        {"from_round": 4, "components": own_code(small(OWN))},
    ]


def test_a_run_goes_on_with_the_same_code(lab, tmp_path):
    for number, name in enumerate(["lab/unrelated.py", "lab/policy.py"]):
        out = tmp_path / str(number)
        run(small(OWN), out, after_round=cut)
        lab.edit(name)
        if number == 0:
            lab.new_process()
        # The second time this process still has the old code.
        assert go_on(out)["ended"] == "rounds"


def test_a_sweep_does_not_mix_runs_of_old_and_new_code(lab, tmp_path):
    tables = small_tables("sweep.variants.1.set={policy={kind='lab.policy:Own'}}")
    out = tmp_path / "out"
    planned = plan(tables, "small")
    sweep(planned, out, machines=Machines(jobs=1))
    runs = {p.path: (out / p.path / "summary.json") for p in planned.runs}
    (out / "random" / "seed-2" / "summary.json").unlink()
    before = {path: file.read_bytes() for path, file in runs.items() if file.exists()}
    lab.edit("lab/helper.py")
    lab.new_process()
    with pytest.raises(UserError, match=r"random/seed-1: the code of 'lab\.policy:Own' \(lab\.helper\) has changed since"):
        sweep(plan(tables, "small"), out, machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert {path: file.read_bytes() for path, file in runs.items() if file.exists()} == before
    with pytest.warns(UserWarning, match=r"random/seed-1: .* \(allowed: this sweep mixes them\)"):
        sweep(plan(tables, "small"), out, machines=Machines(jobs=1), earlier=Earlier(resume=True, allow_changed_code=True))
    assert {path: file.read_bytes() for path, file in runs.items() if path in before} == before
    old, new = (json.loads(runs[f"random/seed-{seed}"].read_text())["own_code"] for seed in (1, 2))
    assert old[0]["components"] != new[0]["components"] == own_code(planned.runs[2].scenario)
    # Begun again from the start there is nothing to mix.
    sweep(plan(tables, "small"), out, machines=Machines(jobs=1), earlier=Earlier(overwrite=True))


def test_the_command_line_offers_the_way_out(lab, tmp_path, monkeypatch, capsys):
    shell = Shell(tmp_path, monkeypatch, capsys)
    run(small(OWN), shell.out, after_round=cut)
    lab.edit("lab/policy.py")
    lab.new_process()
    code, _, err = shell("resume", shell.out, "--quiet")
    assert (code, "'lab.policy:Own' (lab.policy)" in err, "--allow-changed-code" in err) == (2, True, True)
    assert err.count(f"{shell.out}:") == 1
    assert shell("resume", shell.out, "--quiet", "--allow-changed-code")[0] == 0
    settings = ("--set", "sweep.variants=[]", "--set", OWN, "--seeds", "1")
    shell.out = tmp_path / "sweep"
    assert shell.sweep(*settings)[0] == 0
    lab.edit("lab_common.py")
    lab.new_process()
    assert shell.sweep(*settings, "--resume")[0] == 2
    assert shell.sweep(*settings, "--resume", "--allow-changed-code")[0] == 0
