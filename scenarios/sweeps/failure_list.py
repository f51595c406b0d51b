"""List of a sweep's failed runs with their errors: the file `failures.json` beside the list of complete runs."""

from __future__ import annotations

from pathlib import Path

from netsim.core.protocols import Notes
from netsim.core.user_warnings import warn_user
from scenarios.runs.folders.marker import Marker
from scenarios.runs.folders.replacement import FAILURES, write_json, writing
from scenarios.schema.errors import DefectError, UserError
from scenarios.sweeps.plan import PlannedRun

_SHOWN = 10
"""Largest number of failed runs in the message of the error; the file has all."""


class Failures:
    """Failed runs of one sweep. The file appears with the first of them, and is removed when the sweep begins or goes on."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: folder of the sweep; None: in memory."""
        self._folder = folder
        self._entries: list[Notes] = []
        self._texts: list[str] = []
        self._defect = False
        self.paths: set[str] = set()
        """Paths of the runs that failed and are not simulated again."""

    def remove_file(self) -> None:
        """Remove the file of an earlier attempt of the sweep."""
        if self._folder is not None:
            (self._folder / FAILURES).unlink(missing_ok=True)

    def add(self, planned: PlannedRun, text: str, *, trace: str = "", defect: bool = False) -> None:
        """Note a failed run with the message of its error.

        `trace`: traceback of a defect of netsim. `defect`: True if the error is not a mistake of the user's.
        """
        self._texts.append(text)
        self._defect |= defect
        self.paths.add(planned.path)
        self._write_entry(planned, text, again=False, trace=trace)

    def on_loss(self, planned: PlannedRun, reason: str, again: bool) -> None:
        """Note that the worker of a run was killed. Warn if the run is simulated `again`; otherwise it has failed."""
        text = f"variant {planned.variant}, seed {planned.seed}: {reason}"
        if not again:
            self.add(planned, f"{text}; see that its worker has memory enough, and go on with --resume")
            return
        warn_user(f"{text}; it is simulated again")
        self._write_entry(planned, text, again=True)

    def texts(self) -> list[str]:
        """Return the message of each failed run."""
        return list(self._texts)

    def raise_if_any(self, others: str) -> None:
        """Raise UserError with the messages of the failed runs, if there are any; DefectError if one is a defect of netsim.

        `others`: end of the message, on the runs that did not fail.
        """
        if not self._texts:
            return
        number = len(self._texts)
        lines = self._texts[:_SHOWN]
        if number > _SHOWN:
            more = f"and {number - _SHOWN} more"
            lines.append(more if self._folder is None else f"{more}, see {self._folder / FAILURES}")
        lines.append(f"{number} {'run' if number == 1 else 'runs'} failed; {others}")
        text = "\n".join(lines)
        if self._defect:
            raise DefectError(text)
        raise UserError(text)

    def _write_entry(self, planned: PlannedRun, text: str, *, again: bool, trace: str = "") -> None:
        """Add an entry to the list, and write the file if the sweep has a folder."""
        entry: Notes = {"variant": planned.variant, "label": planned.label, "seed": planned.seed, "error": text, "again": again}
        if trace:
            entry["traceback"] = trace
        self._entries.append(entry)
        if self._folder is not None:
            marker = Marker.read(self._folder)
            if marker is not None:
                marker.claim([FAILURES])
            with writing(self._folder):
                write_json(self._folder / FAILURES, {"format": 1, "failures": self._entries})
