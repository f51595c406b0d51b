"""What a run is: its scenario, seed, version and code, in one word. Two runs of one identity have the same tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from netsim.records.tables import sha256_of
from scenarios.build.files import data_file
from scenarios.runs.own_code import Fingerprint
from scenarios.runs.unfinished import version
from scenarios.schema.scenario import Scenario

_NAMES = {"name", "description", "seed", "sweep"}
"""Keys that a run's tables do not depend on, and the seed, which comes in afterwards."""


def study_digest(scenario: Scenario, code: Fingerprint) -> str:
    """SHA-256 of what all seeds of a scenario share: its keys but for names, netsim's version, the files it names, its code.

    `code`: the fingerprint of the components that are the user's own (`own_code`).
    """
    tables = scenario.model_dump(mode="json", exclude=_NAMES, exclude_none=True, by_alias=True)
    files = {name: sha256_of(file) for name, file in sorted(_files(tables))}
    return _digest({"scenario": tables, "version": version(), "files": files, "own_code": code})


def run_id(study: str, seed: int) -> str:
    """The identity of the run of a seed; `study`: its scenario's `study_digest`."""
    return _digest({"study": study, "seed": seed})[:32]


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _files(value: Any) -> Iterator[tuple[str, Path]]:
    """The data files that the keys of a scenario name: values that look like a file, and are one."""
    if isinstance(value, str):
        file = data_file(value) if Path(value).suffix and "\0" not in value and len(value) < 4096 else None
        if file is not None and file.is_file():
            yield value, file
        return
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _files(inner)
