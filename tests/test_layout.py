"""How the files of the project hang together: sizes, and who imports whom. The import checker keeps the directions."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENGINE = sorted((ROOT / "netsim").rglob("*.py"))
CHECKED = [*ENGINE, *sorted((ROOT / "scenarios").rglob("*.py"))]
SHIPPED = [*CHECKED, *(path for top in ("models", "analysis") for path in sorted((ROOT / top).rglob("*.py")))]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(module: ast.Module) -> set[str]:
    """The modules that are imported, by full name; of `from a import b` both `a` and `a.b`."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def at_run_time(module: ast.Module) -> ast.Module:
    """The module without what only type checkers read."""
    kept = [node for node in module.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(kept, module.type_ignores)


def too_long(module: ast.Module, lines: int) -> list[str]:
    """Return the functions of more than so many lines; docstrings of a function and of attributes do not count."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if _length(node) - _length_of_docstrings(node) > lines]


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _length_of_docstrings(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    texts = [part for part in node.body if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
    return sum(_length(text) for text in texts if isinstance(text.value.value, str))


MANY_ARGUMENTS = {
    # Their arguments are the options of a command,
    "scenarios.cli.main.run",
    "scenarios.cli.main.sweep",
    "scenarios.cli.overlays.overlays",
    "scenarios.cli.papers.reproduce",
    "scenarios.cli.results.compare",
    "scenarios.cli.results.report",
    # those of a function of the Python API,
    "scenarios.api.run",
    "scenarios.api.sweep",
    # or the keys of a component in a scenario.
    "models.laws.bandwidth.traces.Trace.__init__",
}


def arguments(module: ast.Module) -> dict[str, int]:
    """How many arguments each function takes, by its name within the module; `self` and `cls` do not count."""
    found: dict[str, int] = {}

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{within}.{child.name}"
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = child.args
                each = [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
                found[name] = len(each) - (each[:1] in (["self"], ["cls"]))
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # no other node holds a function
                visit(child, name)

    visit(module, "")
    return found


def test_functions_take_few_arguments() -> None:
    many = {f"{dotted(path)}{name}" for path in SHIPPED for name, count in arguments(tree(path)).items() if count > 8}
    assert not many - MANY_ARGUMENTS, "put what belongs together into a frozen dataclass with a name of the field"


def test_no_test_imports_another_test() -> None:
    tests = {dotted(path) for path in (ROOT / "tests").rglob("test_*.py")}
    assert "tests.test_layout" in tests
    # By the words of the line: to parse all tests takes seconds.
    line = re.compile(r"^\s*(?:from|import) (tests\.[\w.]*\btest_\w+)|^\s*from (tests[\w.]*) import (test_\w+)", re.MULTILINE)
    borrowed = {
        str(path): {".".join(filter(None, found)) for found in line.findall(path.read_text(encoding="utf-8"))} & tests
        - {dotted(path)}  # named in its own docstring
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert not {path: names for path, names in borrowed.items() if names}, "move what tests share to tests/helpers/"


def test_functions_are_short() -> None:
    assert len(CHECKED) > 80
    assert not {dotted(path): names for path in SHIPPED if (names := too_long(tree(path), 60))}


def test_files_of_the_engine_need_few_others_at_run_time() -> None:
    modules = {dotted(path): at_run_time(tree(path)) for path in ENGINE}
    edges = [(name, other) for name, module in modules.items() for other in imported(module) & modules.keys() if other != name]
    assert len(edges) > 60
    # The ground floor is there to be imported: it holds what all files share.
    above = [other for _, other in edges if not other.startswith("netsim.core")]
    assert len(above) < 1.6 * len(modules)


def test_files_do_not_import_each_other_in_circles() -> None:
    engine = {dotted(path): tree(path) for path in ENGINE}
    # Sections of the scenario file name the whole scenario in annotations.
    scenarios = {dotted(path): at_run_time(tree(path)) for path in CHECKED if path not in ENGINE}
    analysis = {dotted(path): tree(path) for path in SHIPPED if dotted(path).startswith("analysis.")}
    for modules in (engine, scenarios, analysis):
        graph = {name: imported(module) & modules.keys() - {name} for name, module in modules.items()}
        # The package of a file is imported before it.
        TopologicalSorter({n: {o for o in others if not n.startswith(f"{o}.")} for n, others in graph.items()}).prepare()
