"""Checksums of written files, so that readers refuse a file that has changed since.

A JSON file carries the SHA-256 of its own content, and a summary those of the files beside it. Files of earlier versions of
netsim carry none, and are read without a check.
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
"""Key of a JSON file that holds the checksum of the other keys."""
FILES = "files"
"""The key of a summary that holds the SHA-256 of the files beside it, by name."""


def add_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return `content`, which JSON can hold, with its checksum."""
    return {**content, KEY: _digest(content)}


def remove_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return `content`, as read from a file, without its checksum. ValueError: the checksum does not fit the content."""
    inner = {key: value for key, value in content.items() if key != KEY}
    if KEY in content and content[KEY] != _digest(inner):
        raise ValueError("its checksum is another")
    return inner


def check_file(path: Path, digest: str, remedy: str) -> None:
    """Raise DamagedFileError unless the SHA-256 of a file is `digest`; a file that stayed the same is read once only."""
    try:
        state = path.stat()
        actual = _sha256(path, (state.st_ino, state.st_size, state.st_mtime_ns))
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror or error})") from error
    if actual != digest:
        raise DamagedFileError(
            f"{path}: is damaged (its checksum is not the one in summary.json); restore it from a copy, "
            f"or make it again: {remedy}"
        )


def make_again(folder: Path) -> str:
    """Return the command that replaces the run in a folder by a new one of the same scenario."""
    return f"netsim run {folder / 'scenario.toml'} --out {folder} --overwrite"


def _digest(content: Mapping[str, Any]) -> str:
    # The digest is of the content as read back: JSON makes strings of keys and lists of tuples.
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=100_000)
def _sha256(path: Path, state: tuple[int, int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
