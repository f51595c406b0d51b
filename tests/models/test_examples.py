"""Examples in the docstrings of models run and print what they show, and every registered component has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from scenarios.registry.kinds import BUILT_IN, resolve

ROOT = Path(__file__).parents[2]
FINDER = doctest.DocTestFinder(exclude_empty=True)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "models").rglob("*.py"))
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
