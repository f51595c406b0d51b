"""Fingerprints of users' components, which tell if a run would be resumed with other code than it began with.

A fingerprint covers the file of the module that the scenario names, the packages above it, and every module of the same folder
that the `import` statements in their text lead to, one after the other. What it does not see is said in docs/reliability.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from netsim.core.protocols import Notes
from netsim.records.tables import sha256_of
from scenarios.registry.in_process import IN_MEMORY
from scenarios.registry.kinds import load_own
from scenarios.schema.errors import UserError
from scenarios.schema.own_components import own_components
from scenarios.schema.scenario import Scenario

Fingerprint = dict[str, dict[str, str]]
"""Component, as the scenario names it -> module -> SHA-256 of its file."""

_NETSIM_PACKAGES = ("analysis", "models", "netsim", "scenarios")
_FINGERPRINTS: dict[str, tuple[ModuleSpec | None, dict[str, str]]] = {}
"""Spec of the import and fingerprint of each module, by its name.

A process runs the code that it has imported, even if the file changes later. So a fingerprint is taken once, and again only if
the module is imported again, which gives it another spec.
"""


def own_code(scenario: Scenario) -> Fingerprint:
    """Return the fingerprint of every component of `scenario` that is not netsim's; empty without any."""
    places = {own.kind: own.place for own in own_components(scenario)}
    return {kind: _modules(place) for kind, place in sorted(places.items())}


def learner_code(scenario: Scenario) -> Fingerprint:
    """Return the fingerprint of the components that train: by place, where there is a file to look at."""
    places = sorted(own.place for own in own_components(scenario) if own.path.startswith("learner."))
    digests_of = {place: _modules(place) for place in places}
    return {place: digests for place, digests in digests_of.items() if digests}


def refuse_other_code(expected: Fingerprint) -> None:
    """Raise UserError where this process finds other code than `expected`, a result of `learner_code`."""
    changed = changes(expected, {place: _modules(place) for place in expected})
    if changed:
        raise UserError(f"the code of {', '.join(changed)} is other than that of the run; give it the same files")


def note_code(before: list[Notes], now: Fingerprint, round: int) -> list[Notes]:
    """Return the notes `before` on the code that a run used, with `now` added from `round` on if it differs from the last.

    A note is a fingerprint with the first round that used it.
    """
    return before if now == latest(before) else [*before, {"from_round": round, "components": now}]


def latest(noted: list[Notes]) -> Fingerprint:
    """Return the fingerprint that a run has used last."""
    return noted[-1]["components"] if noted else {}


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return the components whose code differs, each with the modules that differ."""
    changed = []
    for kind in sorted({*before, *now}):
        old, new = before.get(kind, {}), now.get(kind, {})
        different = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        if different:
            changed.append(f"{kind!r} ({', '.join(different)})")
    return changed


def refuse_changed(where: str, before: Fingerprint, now: Fingerprint) -> None:
    """Raise UserError where the code of a component is another than before."""
    changed = changes(before, now)
    if changed:
        raise UserError(
            f"{where}: the code of {', '.join(changed)} has changed since; undo the change, begin again with --overwrite, or "
            "allow results of both with --allow-changed-code"
        )


def _modules(place: str) -> dict[str, str]:
    """Return the fingerprint of a component: SHA-256 of its module's file and of those that it imports."""
    load_own(place)
    name = place.partition(":")[0]
    if name == IN_MEMORY:
        return {}  # made in a notebook or a script: there is no file to look at
    spec = sys.modules[name].__spec__
    cached = _FINGERPRINTS.get(name)
    if cached is None or cached[0] is not spec:
        cached = _FINGERPRINTS[name] = (spec, _fingerprint(name, spec))
    return cached[1]


def _fingerprint(name: str, spec: ModuleSpec | None) -> dict[str, str]:
    """Return the SHA-256 of the file of a module and of the user's modules that it imports, by name."""
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return {}  # made in a notebook, or built in: there is no file to look at
    origin = Path(spec.origin)
    depth = name.count(".") + (spec.submodule_search_locations is not None)
    root = origin.parents[depth]
    # The folder of an installed package contains all other packages, which are not the user's code.
    within = name.partition(".")[0] if "site-packages" in root.parts else None
    return {module: sha256_of(file) for module, file in sorted(_reachable(name, root, within).items())}


def _reachable(name: str, root: Path, within: str | None) -> dict[str, Path]:
    """Return the modules below `root` that importing `name` may import, itself included, and their files."""
    files: dict[str, Path] = {}
    pending = [name]
    while pending:
        module = pending.pop()
        top, _, above = module.partition(".")
        if module in files or top in _NETSIM_PACKAGES or within not in (None, top):
            continue
        file = _module_file(module, root)
        if file is None:
            continue
        files[module] = file
        if above:
            pending.append(module.rpartition(".")[0])
        if file.suffix == ".py":
            pending += _imports(module, file)
    return files


def _module_file(module: str, root: Path) -> Path | None:
    """Return the file of a module below `root`, or None."""
    base = root.joinpath(*module.split("."))
    candidates = [base / "__init__.py", base.with_name(f"{base.name}.py"), *sorted(base.parent.glob(f"{base.name}.*.so"))]
    return next((file for file in candidates if file.is_file()), None)


def _imports(module: str, file: Path) -> Iterator[str]:
    """Yield the names of modules that the import statements anywhere in the file of `module` may import.

    `from a import b` may import `a` and a module `a.b`; names that are no modules are yielded as well.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base_parts = [node.module] if node.module else []
            if node.level:
                # A relative import: one dot stands for the package itself, each further dot for the one above.
                package_parts = package.split(".")
                base_parts = [*package_parts[: len(package_parts) - node.level + 1], *base_parts]
            if base_parts:
                yield ".".join(base_parts)
            yield from (".".join([*base_parts, alias.name]) for alias in node.names)
