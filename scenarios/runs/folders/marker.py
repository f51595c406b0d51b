"""The marker of a folder of results: the list of files there that netsim wrote. Other files are never replaced or removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from analysis.results.checksums import KEY, add_checksum, remove_checksum
from netsim.records import atomic
from scenarios.schema.errors import UserError

MARKER = "netsim.json"
FORMAT = 1
_REMEDY = "name another folder, or remove this one yourself"


@dataclass
class Marker:
    """The list of netsim's files in `folder`, stored on disk.

    A file is listed before it is written, so that a killed process leaves no unlisted file. Paths are relative to `folder`.
    `runs`: folders of a sweep's runs, which have their own markers.
    """

    folder: Path
    kind: Literal["run", "sweep"]
    files: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Marker | None:
        """Return the marker in `folder`, or None; raises UserError if it is damaged."""
        path = folder / MARKER
        if path.is_symlink():
            raise UserError(f"{path}: is a symbolic link, which netsim does not follow; {_REMEDY}")
        try:
            stored = json.loads(path.read_bytes())
            content = remove_checksum(stored)
            if KEY not in stored or content["format"] != FORMAT:
                raise ValueError("it has no checksum, or its format is another")
            if not all(isinstance(name, str) and "\0" not in name for name in (*content["files"], *content["runs"])):
                raise ValueError("it lists something else than files")
            return cls(folder, content["kind"], content["files"], content["runs"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path}: is damaged, or not of this version of netsim, so that its files cannot be told from yours; {_REMEDY}"
            ) from error

    def write(self) -> None:
        """Put the list on disk."""
        content = {"format": FORMAT, "kind": self.kind, "files": self.files, "runs": self.runs}
        text = json.dumps(add_checksum(content), indent=1) + "\n"
        atomic.write(self.folder / MARKER, text.encode())

    def claim(self, files: Iterable[str] = (), runs: Iterable[str] = ()) -> None:
        """Add files that netsim is about to write, and folders of runs, to the list.

        Raises UserError if one of them exists and is not netsim's, or would be reached through a symbolic link.
        """
        more = [name for name in dict.fromkeys(files) if name not in self.files]
        more_runs = [name for name in dict.fromkeys(runs) if name not in self.runs]
        self.check_free(more, more_runs)
        if more or more_runs:
            self.files += more
            self.runs += more_runs
            self.write()

    def check_free(self, files: Iterable[str], runs: Iterable[str] = ()) -> None:
        """Raise UserError as `claim` does; writes nothing."""
        for name in files:
            self._check_path(name)
            if name not in self.files and os.path.lexists(self.folder / name):
                raise UserError(f"{self.folder / name}: was not written by netsim, which needs that name; move it elsewhere")
        for name in runs:
            self._check_path(name)

    def check(self) -> None:
        """Raise UserError where a listed file is something else by now, or lies behind a symbolic link."""
        for name in [*self.files, *self.runs]:
            self._check_path(name)
        for name in self.files:
            if (self.folder / name).is_dir():
                raise UserError(f"{self.folder / name}: is a folder, and netsim wrote a file there; {_REMEDY}")

    def remove(self, below: str = "") -> None:
        """Remove the listed files, or those in the folder `below`, and the folder if it is then empty."""
        removed = [name for name in self.files if not below or name.startswith(f"{below}/")]
        for name in removed:
            self._check_path(name)
        # Remove the summary first: a folder without one is no complete run, even if the process is killed during the removal.
        for name in sorted(removed, key=lambda name: name != "summary.json"):
            (self.folder / name).unlink(missing_ok=True)
            atomic.temporary(self.folder / name).unlink(missing_ok=True)
        above = {parent for name in removed for parent in PurePosixPath(name).parents[:-1]}
        for parent in sorted(above, key=lambda parent: len(parent.parts), reverse=True):
            with suppress(OSError):  # it holds files of the user, or does not exist
                (self.folder / parent).rmdir()
        if removed:
            self.files = [name for name in self.files if name not in removed]
            self.write()

    def present(self) -> list[str]:
        """Return the listed files that exist."""
        return [name for name in self.files if (self.folder / name).is_file()]

    def foreign(self) -> list[str]:
        """Return the names directly in the folder that are neither listed nor folders of listed files, but for empty folders."""
        listed = {PurePosixPath(name).parts[0] for name in [*self.files, *self.runs]} | {MARKER}
        listed |= {atomic.temporary(self.folder / name).name for name in listed}
        # Ignore empty folders: netsim leaves one where it cannot remove it.
        return sorted(entry.name for entry in self.folder.iterdir() if entry.name not in listed and not _empty_folder(entry))

    def _check_path(self, name: str) -> None:
        """Raise UserError for a path that leads out of the folder, or through a symbolic link."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UserError(f"{self.folder / MARKER}: lists {name!r}, which is outside of the folder; {_REMEDY}")
        for part in [path, *path.parents[:-1]]:
            if (self.folder / part).is_symlink():
                raise UserError(f"{self.folder / part}: is a symbolic link, which netsim does not follow; {_REMEDY}")


def _empty_folder(path: Path) -> bool:
    """Return True for an empty folder that is no symbolic link."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())
