"""Versions of Python and of the packages that results depend on, and the refusal of workers that have others."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from functools import cache

from scenarios.schema.errors import UserError

_PACKAGES = ("netsim", "numpy", "scipy", "simpy", "pyarrow", "torch")


def versions() -> dict[str, str | None]:
    """Return the versions of Python, netsim and the packages that results depend on; None for one that is not installed."""
    return dict(_versions())


@cache
def _versions() -> tuple[tuple[str, str | None], ...]:
    return (("python", platform.python_version()), *((name, _version(name)) for name in _PACKAGES))


def _version(package: str) -> str | None:
    """Return the version of an installed package, or None; equal to `importlib.metadata.version`, but faster."""
    try:
        about = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    # `importlib.metadata.version` parses the whole file of metadata as an e-mail, to read one line of it.
    text = about.read_text("METADATA") or about.read_text("PKG-INFO") or ""
    found = re.search(r"^Version: *(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else about.version


def refuse_versions(key: str, who: str, wanted: dict[str, str | None], found: dict[str, str | None]) -> None:
    """Raise UserError about `key` if the worker `who` has other versions (`found`) than `wanted`, those of this process."""
    different = [f"{name} {found.get(name)} (here {version})" for name, version in wanted.items() if found.get(name) != version]
    if different:
        raise UserError(f"{key}: {who} has {', '.join(different)}; install the same, for results depend on them")
