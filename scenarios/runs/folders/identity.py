"""Identity of a run: a digest of its scenario, seed, version and code. Runs of one identity have the same tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from models.laws.bandwidth.files import CLIENT
from netsim.records.tables import sha256_of
from scenarios.flower.app import app_files
from scenarios.runs.folders.own_code import Fingerprint
from scenarios.runs.unfinished import version
from scenarios.schema.scenario import Scenario
from scenarios.wiring.data_files import data_file

_EXCLUDED_KEYS = {"name", "description", "seed", "sweep"}
"""Keys that do not affect the tables of a run, and the seed, which `run_id` adds."""
_FILE_KEYS = ("path", "devices")
"""Keys whose values are names of files."""


def study_digest(scenario: Scenario, code: Fingerprint) -> str:
    """Return the SHA-256 of all that the seeds of a scenario share: keys, version of netsim, data files and user's code.

    `code`: fingerprint of the user's components (`own_code`).
    """
    tables = scenario.model_dump(mode="json", exclude=_EXCLUDED_KEYS, exclude_none=True, by_alias=True)
    return _digest({"scenario": tables, "version": version(), "files": named_files(scenario), "own_code": code})


def named_files(scenario: Scenario) -> dict[str, str]:
    """Return the SHA-256 of every data file that a scenario names, by its name there."""
    tables = scenario.model_dump(mode="json", exclude=_EXCLUDED_KEYS, exclude_none=True, by_alias=True)
    digests = {name: sha256_of(file) for name, file in sorted(_files(tables, scenario.clients.count))}
    if scenario.flower is not None:
        digests |= {str(file): sha256_of(file) for file in app_files(scenario.flower.app)}
    return digests


def changed_files(state: Mapping[str, Any], scenario: Scenario) -> list[str]:
    """Return the data files of a scenario that have changed since the run of the checkpoint `state` began."""
    before, now = state["data_files"], named_files(scenario)
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def run_id(study: str, seed: int) -> str:
    """Return the identity of the run of a seed. `study`: `study_digest` of its scenario."""
    return _digest({"study": study, "seed": seed})[:32]


def _digest(content: Mapping[str, object]) -> str:
    """Return the SHA-256 of plain data, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _files(value: object, clients: int, key: str = "") -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the data files that `value`, the value of `key` in a scenario, names.

    Such a name is a text that looks like a path, or any text of a key in `_FILE_KEYS`, of which the file exists. A name with
    the placeholder `CLIENT` stands for a file for each of the `clients`.
    """
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            yield from _files(inner, clients, inner_key)
    elif isinstance(value, list):
        for inner in value:
            yield from _files(inner, clients, key)
    elif isinstance(value, str):
        # A text that no path can be would raise an error below.
        may_be_path = (Path(value).suffix or key in _FILE_KEYS) and "\0" not in value and len(value) < 4096
        if not may_be_path:
            return
        names = [value.replace(CLIENT, str(client)) for client in range(clients)] if CLIENT in value else [value]
        for name in names:
            file = data_file(name)
            if file.is_file():
                yield name, file
