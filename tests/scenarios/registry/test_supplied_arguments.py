"""Arguments that the builder supplies to one kind of component are keys of every other."""

from __future__ import annotations

import inspect
import sys

import pytest

from scenarios.registry.kinds import POSITIONAL, SUPPLIED, supplied_arguments
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.own_of_every_kind import CASES, FUNCTIONS, MODULE, name_of, tables

pytest.importorskip("torch", reason="needs torch, which is not installed: pip install 'netsim[fl]'")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Own components of every kind, in a module that a test may add to."""
    (tmp_path / "own_names.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("own_names")
    sys.modules.pop("own_names", None)


def define(module, group):
    """Add the component "Named" with an argument of every name in `SUPPLIED`; return the names that should be keys."""
    base = getattr(module, name_of(group))
    supplied = supplied_arguments(group)
    by_place = list(inspect.signature(base).parameters)[: POSITIONAL.get(group, 0)]
    keys = sorted(SUPPLIED.keys() - supplied)
    arguments = ", ".join([*sorted(supplied - {*by_place}), *(f"{key}: int" for key in keys)])
    passed = ", ".join(f"{name}={name}" for name in inspect.signature(base).parameters if name in supplied - {*by_place})
    keeps = f"SEEN.append({{{', '.join(f'{key!r}: {key}' for key in keys)}}})"
    if group in FUNCTIONS:
        head = ", ".join([*by_place, f"*, {arguments}"])
        last = "yield world.until_round(2)" if group == "script" else f"return {base.__name__}({', '.join([*by_place, passed])})"
        text = f"def Named({head}):\n    {keeps}\n    {last}\n"
    else:
        text = f"class Named({base.__name__}):\n    def __init__(self, *, {arguments}):\n        {keeps}\n"
        text += f"        super().__init__({passed})\n"
    exec(compile(text, module.__file__, "exec"), vars(module))
    return keys


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("group", CASES)
def test_a_name_is_a_key_unless_its_value_is_supplied(group, module, tmp_path):
    keys = dict.fromkeys(define(module, group), 7)
    summary = run(parse(tables(group, "own_names:Named", **keys)), tmp_path / "run")
    assert summary["ended"] == "rounds"
    assert keys in module.SEEN


@pytest.mark.parametrize("group", CASES)
def test_a_key_that_names_a_supplied_argument_is_refused(group, module):
    keys = dict.fromkeys(define(module, group), 7)
    for name in supplied_arguments(group):
        with pytest.raises(UserError) as refusal:
            parse(tables(group, "own_names:Named", **keys, **{name: 3}))
        told = f"{CASES[group][1]}.{name} = 3: is no key: netsim supplies this argument of a {group}, {SUPPLIED[name]}; leave"
        assert told in str(refusal.value)


def test_a_refusal_of_a_key_with_the_name_of_a_supplied_argument_names_the_key(module):
    text = "class Strict(Schedule):\n    def __init__(self, *, clients: int):\n"
    text += "        from models.errors import ParameterError\n        raise ParameterError('clients', clients, 'must be more')\n"
    exec(compile(text, module.__file__, "exec"), vars(module))
    with pytest.raises(UserError, match=r"privacy\.schedule\.clients = 3: must be more"):
        build(parse(tables("schedule", "own_names:Strict", clients=3)))
