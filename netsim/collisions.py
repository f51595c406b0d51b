"""Check that no other `models`, `scenarios` or `analysis` is imported in place of the one that belongs to netsim."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

FOLDERS = ("models", "scenarios", "analysis")
"""Packages beside `netsim`. Their names are so short that other projects use them, too."""
_ROOT = Path(__file__).resolve().parents[1]


class NameCollisionError(ImportError):
    """Error: a module of the user has the name of a package of netsim. The message is complete and shown as it is."""


def refuse_collisions(root: Path = _ROOT) -> None:
    """Raise NameCollisionError if Python would import packages of these names from outside `root`."""
    for name in FOLDERS:
        theirs = _origin(name)
        ours = root / name / "__init__.py"
        if theirs is not None and theirs != ours and theirs != ours.parent:
            raise NameCollisionError(collision(name, theirs, ours), name=name, path=str(theirs))


def started_as_command() -> bool:
    """Return True if this process is the command `netsim`, which reports a collision in its own way."""
    return Path(sys.argv[0] if sys.argv else "").stem == "netsim"


def collision(name: str, theirs: Path, ours: Path) -> str:
    """Return the message about a collision, with its remedies."""
    return (
        f"the name {name!r} belongs to two packages: netsim's own ({ours}) and {theirs}, which hides it; rename yours (such as "
        f"my_{name}), or start Python where it is not found: from another folder, with another PYTHONPATH"
    )


def _origin(name: str) -> Path | None:
    """Return the file or folder from which `import` reads, or has read, the module `name`; None if there is no such module."""
    loaded = sys.modules.get(name)
    spec = importlib.util.find_spec(name) if loaded is None else loaded.__spec__
    if spec is None:
        file = getattr(loaded, "__file__", None)
        return Path(file).resolve() if file else None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    # A package without `__init__.py` has only folders.
    folders = spec.submodule_search_locations
    return Path(next(iter(folders))).resolve() if folders else None
