"""Examples in docstrings run and print what they show; every public name and every registered component has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import netsim
from scenarios.registry.kinds import BUILT_IN, resolve

ROOT = Path(__file__).parents[1]
FINDER = doctest.DocTestFinder(exclude_empty=True)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("netsim", "models", "scenarios", "analysis")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
COMPONENTS = [(group, kind) for group, kinds in BUILT_IN.items() for kind, place in kinds.items() if place.startswith("models.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for example in FINDER.find(importlib.import_module(name)):
        runner.run(example)
    assert runner.tries
    assert not runner.failures


@pytest.mark.parametrize(("group", "kind"), COMPONENTS)
def test_every_registered_component_shows_an_example(group: str, kind: str) -> None:
    assert "    >>> " in (resolve(group, kind).__doc__ or ""), f"show a short example in the docstring of {group} {kind!r}"


@pytest.mark.parametrize("name", sorted(set(netsim.__all__) - {"Script"}))
def test_every_public_name_shows_an_example(name: str) -> None:
    # `Script` is the type of a generator; the example of `World` shows one.
    public = getattr(netsim, name)
    members = (public.__doc__, public.__init__.__doc__) if isinstance(public, type) else (public.__doc__,)
    assert any(">>> " in (text or "") for text in members), f"show a short example in the docstring of netsim.{name}"
