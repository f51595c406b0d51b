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
    """A file has changed since netsim wrote it."""


KEY = "sha256"
"""Key of a JSON file under which the checksum of its other keys stands."""
FILES = "files"
"""Key of a summary under which the SHA-256 of each file beside it stands, by file name."""


def add_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `content`, which JSON can hold, with its checksum under `KEY`."""
    return {**content, KEY: _digest(content)}


def remove_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Check the checksum of `content`, as read from a file, and return the content without it.

    Content without a checksum, as earlier versions wrote it, is accepted. ValueError: the checksum does not fit.
    """
    inner = {key: value for key, value in content.items() if key != KEY}
    if KEY in content and content[KEY] != _digest(inner):
        raise ValueError("its checksum is another")
    return inner


def check_file(path: Path, digest: str, remedy: str) -> None:
    """Raise DamagedFileError unless the SHA-256 of the file at `path` is `digest`; `remedy`: the command that restores the file.

    The digest of a file is kept and computed again only if the file's identity, size or time of change is another.
    """
    try:
        state = path.stat()
        actual = _sha256(path, (state.st_ino, state.st_size, state.st_mtime_ns))
    except FileNotFoundError:
        raise missing_file(path, remedy) from None
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror or error})") from error
    if actual != digest:
        raise DamagedFileError(
            f"{path}: is damaged (its checksum is not the one in summary.json); restore it from a copy, "
            f"or make it again: {remedy}"
        )


def missing_file(path: Path, remedy: str) -> DamagedFileError:
    """Return the error of a file that the summary lists, but that is not at `path`; `remedy`: the command that restores it."""
    return DamagedFileError(
        f"{path}: is missing, though summary.json lists it; restore it from a copy, or make it again: {remedy}"
    )


def rerun_command(folder: Path) -> str:
    """Return the command that simulates the scenario of a run folder again and replaces the run there."""
    return f"netsim run {folder / 'scenario.toml'} --out {folder} --overwrite"


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of JSON content, in hexadecimal; the order of its keys does not matter."""
    # Write and read once first: JSON turns keys into strings and tuples into lists, and a reader sees only the result.
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=100_000)
def _sha256(path: Path, state: tuple[int, int, int]) -> str:
    """Return the SHA-256 of a file in hexadecimal. `state` is part of the cache key only: a changed file is read again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
