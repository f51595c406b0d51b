"""Checksums of what netsim writes, so that a reader refuses a file in which anything has changed since.

A file of JSON carries the SHA-256 of its own content, a summary those of the files beside it. What an earlier version of netsim
wrote carries none, and is read as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any


class DamagedFileError(ValueError):
    """A file is not as netsim wrote it."""


KEY = "sha256"
"""The key of a file of JSON that holds the checksum of the others."""
FILES = "files"
"""The key of a summary that holds the SHA-256 of the files beside it, by name."""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content`, which JSON can hold, with its checksum."""
    return {**content, KEY: _digest(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content`, as read from a file, without its checksum; raises ValueError where that is the checksum of something else."""
    inner = {key: value for key, value in content.items() if key != KEY}
    if KEY in content and content[KEY] != _digest(inner):
        raise ValueError("its checksum is another")
    return inner


def check_file(path: Path, digest: str, remedy: str) -> None:
    """Raise DamagedFileError unless the SHA-256 of a file is `digest`; a file that stayed the same is read once only."""
    try:
        state = path.stat()
        found = _sha256(path, (state.st_ino, state.st_size, state.st_mtime_ns))
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror or error})") from error
    if found != digest:
        raise DamagedFileError(
            f"{path}: is damaged (its checksum is not the one in summary.json); restore it from a copy, "
            f"or make it again: {remedy}"
        )


def make_again(folder: Path) -> str:
    """The command that replaces the run in a folder by a new one of the same scenario."""
    return f"netsim run {folder / 'scenario.toml'} --out {folder} --overwrite"


def _digest(content: Mapping[str, Any]) -> str:
    # As a reader will find it: keys are strings then, tuples are lists.
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=100_000)
def _sha256(path: Path, state: tuple[int, int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
