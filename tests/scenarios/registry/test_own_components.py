"""Policies and laws of the user's own: found by name or entry point, checked like the built-in ones, and told what they lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.registry.components import component_model
from tests.helpers.small_scenario import TEXT, Shell

ROOT = Path(__file__).parents[3]
MODULE = '''
from typing import Annotated

import numpy as np
from annotated_doc import Doc
from models.errors import ParameterError
from models.laws.delays import PerClient

First = Annotated[int, Doc("The lowest of all.")]


class Lowest:
    """The lowest numbers. `first` is the lowest of all, and `mode` does nothing."""

    needs_updates = False

    def __init__(self, *, clients: int, per_round: int, first: First = 0, scale: float = 1.0, mode: str = "a"):
        self._choice = np.arange(first, first + per_round)

    def select(self, view):
        return self._choice

    def observe(self, outcome):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Positional(Lowest):
    def __init__(self, clients, per_round, alpha=1.0):
        pass


class Keywords(Lowest):
    def __init__(self, **keywords):
        pass


class Raises(Lowest):
    def __init__(self, *, clients: int):
        raise RuntimeError("no luck")


class Refuses(Lowest):
    def __init__(self, *, clients: int, alpha: float = 1.0):
        raise ParameterError("alpha", alpha, "must be less")


class RefusesPlainly(Lowest):
    def __init__(self, *, clients: int, alpha: float = 1.0):
        raise ValueError(f"alpha = {alpha}: must be less")


class RefusesThePopulation(Lowest):
    def __init__(self, *, clients: int):
        raise ParameterError("clients", clients, "must be even more")


class Lacks:
    def __init__(self, *, clients: int):
        pass

    def select(self, view):
        return np.arange(2)


class Array(Lowest):
    def __init__(self, *, weights: np.ndarray):
        pass


class Nowhere(Lowest):
    def __init__(self, *, weights: "NoSuchType"):
        pass


class Kind(Lowest):
    def __init__(self, *, clients: int, kind: str = "x"):
        pass


class Bug(Lowest):
    def select(self, view):
        return {}["a bug"]


def returning(answer):
    class Later(Lowest):
        def __init__(self, *, clients: int, per_round: int):
            super().__init__(clients=clients, per_round=per_round)

        def select(self, view):
            return answer if view.round > 3 else super().select(view)

    return Later


Nothing, Text, Twice, Far = returning(None), returning(["a"]), returning([1, 1]), returning([99])
number = 3


class Uniform:
    """Between 0 and `upper_s`."""

    def __init__(self, *, upper_s: PerClient, scale: float = 1.0):
        self._upper = np.asarray(upper_s, float) * scale

    def quantile(self, u, entities):
        return u * (self._upper if self._upper.ndim == 0 else self._upper[entities])

    def mean_s(self, entities):
        return self.quantile(np.full(len(entities), 0.5), entities)


class Negative(Uniform):
    def quantile(self, u, entities):
        return -1.0 - u


class Scalar(Uniform):
    def quantile(self, u, entities):
        return 0.5
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder for PYTHONPATH. The modules in it are imported once for all tests of this file."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / "lab"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "parts.py").write_text(MODULE, encoding="utf-8")
    (package / "broken.py").write_text("raise RuntimeError('boom')", encoding="utf-8")
    (package / "needy.py").write_text("import no_such_thing", encoding="utf-8")
    return folder


@pytest.fixture
def shell(tmp_path, site, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(site))
    return Shell(tmp_path, monkeypatch, capsys)


def policy(shell: Shell, name: str, **parameters: object) -> tuple[int, str, str]:
    table = {"kind": name, **parameters}
    return shell.run("--set", "policy={" + ", ".join(f"{key} = {value!r}" for key, value in table.items()) + "}")


def test_a_policy_of_ones_own_selects(shell):
    code, _, err = policy(shell, "lab.parts:Lowest", first=2)
    assert (code, err) == (0, "")
    from analysis import open_run

    run = open_run(shell.out)
    assert run.policy == "lab.parts:Lowest"
    assert set(run.clients["client"]) == {2, 3}
    assert run.scenario["policy"] == {"kind": "lab.parts:Lowest", "first": 2, "scale": 1.0, "mode": "a"}


@pytest.mark.parametrize(
    ("parameters", "fragment"),
    [
        ({"frist": 3}, "policy.frist = 3: unknown key; did you mean 'first'?"),
        ({"first": 1.5}, "policy.first = 1.5: must be a whole number"),
        ({"mode": 3}, "policy.mode = 3: must be a string"),
        ({"clients": 3}, "policy.clients = 3: is no key: netsim supplies this argument of a policy"),
    ],
)
def test_its_parameters_are_checked_like_built_in_ones(shell, parameters, fragment):
    code, _, err = policy(shell, "lab.parts:Lowest", **parameters)
    assert code == 2
    assert fragment in err
    assert not shell.out.exists()


def test_its_parameters_are_described_by_its_docstring(shell):
    fields = component_model("policy", "lab.parts:Lowest").model_fields
    assert fields["first"].description == "The lowest of all."
    assert fields["scale"].description is None
    assert fields["mode"].description is None, "a docstring is not searched for sentences"


@pytest.mark.each_nth(2)
@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("lab.parts:Highest", "module 'lab.parts' has no 'Highest'; known: Annotated, Array,"),
        ("lab.parts:Lowst", "module 'lab.parts' has no 'Lowst'; did you mean 'Lowest'?"),
        ("nolab.parts:Lowest", "'nolab.parts:Lowest' cannot be imported: No module named 'nolab'; check that the package is"),
        ("lab.nothing:Lowest", "cannot be imported: No module named 'lab.nothing'"),
        ("lab.needy:Lowest", "cannot be imported: No module named 'no_such_thing'"),
        ("lab.broken:Lowest", "cannot be imported: RuntimeError: boom ("),
        ("lab.parts:", "'lab.parts:' is not of the form 'package.module:Class'"),
        (":Lowest", "':Lowest' is not of the form 'package.module:Class'"),
        (".parts:Lowest", "is not of the form 'package.module:Class'"),
        ("lab.parts:number", "'lab.parts:number' is int 3, not a class"),
        ("lab.parts:returning", "is function <function returning"),
        ("lab.parts:Positional", "argument 'alpha' of its constructor must be keyword-only; put it after a '*'"),
        ("lab.parts:Keywords", "argument 'keywords' of its constructor must be keyword-only; write each of its keywords out"),
        ("lab.parts:Raises", "policy: 'lab.parts:Raises' cannot be built: RuntimeError: no luck ("),
        ("lab.parts:Refuses", "policy.alpha = 1.0: must be less"),
        ("lab.parts:RefusesPlainly", "policy: 'lab.parts:RefusesPlainly' refuses: ValueError: alpha = 1.0: must be less ("),
        ("lab.parts:RefusesThePopulation", "small.toml: clients.count = 6: must be even more"),
        (
            "lab.parts:Lacks",
            "'lab.parts:Lacks' lacks observe, needs_updates, state_dict, load_state_dict; see Sel",
        ),
        ("lab.parts:Array", "argument 'weights' of its constructor is annotated ndarray, which a file cannot hold; annotate"),
        ("lab.parts:Nowhere", "is annotated 'NoSuchType', which cannot be read (NameError: name 'NoSuchType' is not defined)"),
        ("lab.parts:Kind", "argument 'kind' of its constructor has a name that a key cannot have; rename it"),
    ],
)
def test_a_class_that_will_not_do_is_refused(shell, name, fragment):
    code, out, err = policy(shell, name)
    assert code == 2
    assert fragment in err
    assert (out, err.count("\n")) == ("", 1)
    assert not shell.out.exists()


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        (
            "Nothing",
            "policy.kind = 'lab.parts:Nothing': select returned array(None, dtype=object); expected a non-empty 1-d",
        ),
        ("Text", "select returned array(['a']"),
        ("Twice", "select returned array([1, 1]); no client may be named twice; fix its select"),
        ("Far", "select returned array([99]); every client must be selectable now"),
    ],
)
def test_a_policy_that_returns_nonsense_in_mid_run_ends_it_with_one_message(shell, name, fragment):
    code, out, err = policy(shell, f"lab.parts:{name}")
    assert code == 2
    assert fragment in err
    assert (out, err.count("\n")) == ("", 1)
    import pyarrow.parquet as pq

    # The files are closed, and hold the rounds before.
    assert pq.read_table(shell.out / "rounds.parquet")["round"].to_pylist() == [1, 2, 3]
    assert not (shell.out / "summary.json").exists()


def test_a_bug_in_a_policy_shows_where_it_is(shell):
    code, out, err = policy(shell, "lab.parts:Bug")
    assert (code, out) == (2, "")
    assert "policy.kind = 'lab.parts:Bug': KeyError: 'a bug', " in err
    assert "parts.py, line " in err
    assert "(round 1, 0 s, seed " in err


@pytest.mark.parametrize(
    ("delay", "fragment"),
    [
        (
            "{kind='lab.parts:Negative',upper_s=1.0}",
            "'lab.parts:Negative': quantile(0) returns array([-1., -1., -1., -1., -1., -1.])",
        ),
        ("{kind='lab.parts:Scalar',upper_s=1.0}", "quantile(0) returns 0.5; must be an array of 6 numbers, each finite and >= 0"),
        ("{kind='lab.parts:Lowest'}", "uplink.delay.per_round is missing; add it"),
        ("{kind='lab.parts:Lacks'}", "uplink.delay: 'lab.parts:Lacks' lacks quantile, mean_s; see DelayLaw in"),
        ("{kind='lab.parts:Uniform'}", "uplink.delay.upper_s is missing; add it"),
    ],
)
def test_a_law_that_will_not_do_is_refused(shell, delay, fragment):
    code, _, err = shell.run("--set", f"uplink.delay={delay}", "--set", "uplink.changes=[]")
    assert code == 2
    assert fragment in err
    assert not shell.out.exists()


def test_a_law_of_ones_own_takes_values_per_client_and_changes(shell):
    settings = (
        "uplink.delay={kind='lab.parts:Uniform',upper_s={by_group={fast=1.0,slow={from=2.0,to=5.0}}}}",
        "uplink.changes=[{at_round=2,clients='fast',delay={upper_s=9.0}},{at_round=3,delay={scale=2.0}}]",
    )
    from scenarios.wiring.simulation import build
    from tests.helpers.small_scenario import small

    truth = build(small(*settings)).truth
    assert truth.mean_latency_s(1, 0.0).tolist() == [0.5, 0.5, 0.5, 1.5, 2.0, 2.5]
    assert truth.mean_latency_s(2, 0.0).tolist() == [4.5, 4.5, 4.5, 1.5, 2.0, 2.5]
    assert truth.mean_latency_s(3, 0.0).tolist() == [9.0, 9.0, 9.0, 3.0, 4.0, 5.0]
    for change, fragment in (
        ("clients='fast',delay={scale=2.0}", "is the same for all clients"),
        ("delay={scale='x'}", "scale = 'x'"),
    ):
        code, _, err = shell.run("--set", settings[0], "--set", f"uplink.changes=[{{at_round=2,{change}}}]")
        assert (code, fragment in err) == (2, True)


COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from scenarios.cli.main import main
said = {}
for name, words in json.loads(sys.argv[1]).items():
    sys.argv[1:] = words
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
        try:
            main()
        except SystemExit as ended:
            said[name] = [ended.code or 0, out.getvalue(), error.getvalue()]
print(json.dumps(said))
"""
"""Program that runs each command of a JSON object in turn and prints exit codes, outputs and messages by name."""


def test_an_installed_package_registers_a_policy_by_an_entry_point(shell, site):
    info = site / "lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[netsim.policy]\nlowest = lab.parts:Lowest\nlost = lab.parts:Lost\n", encoding="utf-8"
    )

    shell.file.write_text(TEXT.replace('kind = "pause"', 'kind = "lowest"\nfirst = 3'), encoding="utf-8")
    commands = {
        "run": ["run", "small.toml", "--out", "out", "--quiet"],
        "list": ["list"],
        **{setting: ["check", "small.toml", "--set", f"policy.{setting}"] for setting in ("frist=1", "kind=lost", "kind=lowst")},
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=True,
        cwd=shell.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
    )
    said = json.loads(done.stdout)
    assert (said["run"][0], said["run"][2]) == (0, "")
    assert "lowest" in said["list"][1]
    for setting, words in {
        "frist=1": "policy.frist = 1: unknown key; did you mean 'first'?",
        "kind=lost": "module 'lab.parts' has no 'Lost'",
        "kind=lowst": "did you mean 'lowest'?",
    }.items():
        code, _, error = said[setting]
        assert (code, words in error) == (2, True), setting
