"""Tests and the functions that they call; a function's code replaced where it stands; a test run by itself in a process."""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[2]
PACKAGES = ("netsim", "models", "scenarios", "analysis", "tests")
Name = tuple[str, str, int]
"""Of a function: its file from the root of the project, its qualified name, and which of that name it is in the file."""


class Function(NamedTuple):
    """A function at the top of a module, or of a class: what it says, and its code."""

    body: str
    code: CodeType
    defaults: tuple[ast.expr, ...]


class Trace(NamedTuple):
    """What is known of a test: whether it passes, how long it takes, and which functions it calls."""

    passed: bool
    seconds: float
    called: frozenset[Name]


Traced = dict[str, Trace]


def functions(text: str, path: Path) -> dict[Name, Function]:
    """The functions and methods of a file's text, `path` from the root of the project."""
    tree = ast.parse(text)
    codes = _codes(compile(tree, str(ROOT / path), "exec"))
    found: dict[Name, Function] = {}
    _collect(tree.body, "", str(path), codes, found)
    return found


def _collect(
    body: Sequence[ast.stmt], above: str, path: str, codes: dict[str, list[CodeType]], found: dict[Name, Function]
) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef):
            _collect(node.body, f"{above}{node.name}.", path, codes, found)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{above}{node.name}"
            number = sum(key[1] == name for key in found)
            defaults = (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None))
            found[path, name, number] = Function(ast.dump(node), codes[name][number], tuple(defaults))


def _codes(module: CodeType) -> dict[str, list[CodeType]]:
    """The code objects below a module's, by qualified name, in the order of the text."""
    found: dict[str, list[CodeType]] = {}
    for constant in module.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault(constant.co_qualname, []).append(constant)
            if not constant.co_flags & 0x02:  # the body of a class: no CO_NEWLOCALS
                for name, codes in _codes(constant).items():
                    found.setdefault(name, []).extend(codes)
    return found


def replace(before: Function, after: Function) -> None:
    """Give the code of `after` to every function of this process that has that of `before`, wherever it is referred to."""
    replaced = 0
    # The suite sets modules aside from garbage collection, and what is set aside is not among the objects.
    gc.unfreeze()
    for one in [one for one in gc.get_objects() if type(one) is FunctionType]:
        code = one.__code__
        if (code.co_filename, code.co_qualname, code.co_firstlineno) == _place(before.code):
            one.__code__ = after.code
            replaced += 1
            if [ast.dump(value) for value in before.defaults] != [ast.dump(value) for value in after.defaults]:
                _set_defaults(one, after)
    if not replaced:
        raise RuntimeError(f"{before.code.co_qualname}: no function has this code")


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _set_defaults(function: Any, after: Function) -> None:
    values = [
        eval(compile(ast.Expression(value), "<default>", "eval"), function.__globals__)  # our own text
        for value in after.defaults
    ]
    by_place = len(function.__defaults__ or ())
    function.__defaults__ = tuple(values[:by_place]) or None
    for name, value in zip(function.__kwdefaults__ or (), values[by_place:], strict=True):
        function.__kwdefaults__[name] = value


def remembered(kept: Path | None, items: list[pytest.Item], files: list[Path]) -> Traced:
    """What `traced` says, of an earlier attempt where the file `kept` has it for the same code and tests."""
    texts = [path.read_bytes() for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    digest = hashlib.sha256(b"".join(texts) + "".join(item.nodeid for item in items).encode()).hexdigest()
    if kept is not None and kept.is_file():
        before, known = pickle.loads(kept.read_bytes())  # our own file
        if before == digest:
            return known
    known = traced(items, files)
    if kept is not None:
        kept.write_bytes(pickle.dumps((digest, known)))
    return known


def traced(items: list[pytest.Item], files: list[Path]) -> Traced:
    """Run each test once, in a process that branches off, and note which functions of `files` it calls."""
    names = {_place(function.code): name for path in files for name, function in _of_file(path).items()}
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(_traced(items, names), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        known: Traced = pickle.load(pipe)
    os.waitpid(child, 0)
    return known


def _of_file(path: Path) -> dict[Name, Function]:
    return functions(path.read_text(encoding="utf-8"), path.relative_to(ROOT))


def _traced(items: list[pytest.Item], names: dict[tuple[str, str, int], Name]) -> Traced:
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        called.add(frame.f_code)

    known: Traced = {}
    _silent()
    for item, following in zip(items, [*items[1:], None], strict=True):
        called.clear()
        started = time.process_time()
        sys.settrace(note)
        try:
            passed = passes(item, following)
        finally:
            sys.settrace(None)
        held = frozenset(names[_place(code)] for code in called if _place(code) in names)
        known[item.nodeid] = Trace(passed, time.process_time() - started, held)
    return known


def _silent() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether a test passes, or is skipped; `following` decides which fixtures are kept."""
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def in_branch(work: Callable[[], int]) -> int:
    """What `work` returns in a process that branches off; where a signal ended it, the negative of that."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _silent()
        code = 1
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests have started
    return os.waitstatus_to_exitcode(status)
