"""Journal of a script's acts and answers, in order.

It suffices to bring a fresh generator to the same point after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netsim.core.errors import ParameterError
from scenarios.schema.errors import UserError


class DivergedError(UserError):
    """A replayed script acts differently than before the checkpoint."""


class Journal:
    """List of entries. Each is a list of plain data that begins with its kind: "act", "refused", "read", "wait" or "woken".

    "refused" follows an act that raised an error; "woken" follows a wait that has ended. A replay brings a new generator up to a
    checkpoint: it compares what the script does with the entries, and adds none.
    """

    def __init__(self) -> None:
        self.entries: list[list[object]] = []
        self._next: int | None = None
        """Index of the next entry of a replay; None outside of a replay."""
        self._diverged: DivergedError | None = None
        """Error about the first entry that differs, if one did."""

    @property
    def replaying(self) -> bool:
        """True during a replay."""
        return self._next is not None

    def replay(self, entries: list[list[object]]) -> None:
        """Compare the following acts with `entries`, up to the last one."""
        self.entries = entries
        self._next = 0

    def note(self, *entry: object) -> bool:
        """Add an entry and return True; in a replay compare it with the noted one and return False, or raise DivergedError."""
        if self._next is None:
            self.entries.append(list(entry))
            return True
        self._compare(list(entry))
        return False

    def act(self, entry: list[object], do: Callable[[], None]) -> bool:
        """Note an act, and call `do` unless this is a replay, which does not repeat it; return True if `do` was called.

        Raises UserError if `do` refuses the act by a UserError or a ParameterError, or did so before the replay.
        """
        if not self.note("act", *entry):
            assert self._next is not None
            if self._next < len(self.entries) and self.entries[self._next][0] == "refused":
                self._next += 1
                raise UserError(str(self.entries[self._next - 1][1]))
            return False
        try:
            do()
        except (UserError, ParameterError) as error:
            self.entries.append(["refused", str(error)])
            raise UserError(str(error)) from error
        return True

    def read(self, name: str, read_present: Callable[[], object]) -> object:
        """Note a value that the script reads, and return it. A replay returns the noted value, not the present one."""
        if self._next is None:
            value = read_present()
            self.entries.append(["read", name, value])
            return value
        index = self._next
        self._compare(["read", name], length=2)
        return self.entries[index][2]

    def next_woken(self) -> list[Any] | None:
        """Return the next entry of a replay, which must be of kind "woken"; None, and end the replay, after the last entry.

        After the last entry the script still waits, as it did at the checkpoint.
        """
        assert self._next is not None
        if self._next == len(self.entries):
            self._next = None
            return None
        entry = self.entries[self._next]
        if entry[0] != "woken":
            self._raise_diverged(f"it waits, where it did {_entry_text(entry)}")
        self._next += 1
        return entry

    def finish(self) -> None:
        """Note the end of the script; raises DivergedError if the journal has further entries."""
        if self._next is not None and self._next < len(self.entries):
            self._raise_diverged(f"it is over, where it did {_entry_text(self.entries[self._next])}")
        self._next = None

    def raise_if_diverged(self) -> None:
        """Raise an earlier DivergedError again, because an `except` in the script may have caught it."""
        if self._diverged is not None:
            raise self._diverged

    def _compare(self, entry: list[object], length: int | None = None) -> None:
        """Compare `entry` with the first `length` items (None: all) of the next entry of the replay; raises DivergedError."""
        assert self._next is not None
        if self._next == len(self.entries):
            self._raise_diverged(f"it does {_entry_text(entry)} where it did no more")
        earlier = self.entries[self._next]
        if earlier[:length] != entry:
            self._raise_diverged(f"it does {_entry_text(entry)}, where it did {_entry_text(earlier)}")
        self._next += 1

    def _raise_diverged(self, problem: str) -> None:
        """Raise a DivergedError, and keep it for `raise_if_diverged`."""
        self._diverged = DivergedError(problem)
        raise self._diverged


def _entry_text(entry: list[object]) -> str:
    """Return an entry as text for messages, such as "wait for until_round 3"."""
    kind, *rest = entry
    return f"{'wait for' if kind == 'wait' else kind} {' '.join(str(word) for word in rest if word is not None)}"
