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

    A replay brings a new generator up to a checkpoint. It compares the script's acts with the entries, and adds none.
    """

    def __init__(self) -> None:
        self.entries: list[list[object]] = []
        self._next: int | None = None
        self._diverged: DivergedError | None = None

    @property
    def replaying(self) -> bool:
        """True during a replay."""
        return self._next is not None

    def replay(self, entries: list[list[object]]) -> None:
        """Compare the following acts with `entries`, up to the last one."""
        self.entries = entries
        self._next = 0

    def note(self, *entry: object) -> bool:
        """Note an act. Return True if it is new, False if it repeats a noted one; raises DivergedError."""
        if self._next is None:
            self.entries.append(list(entry))
            return True
        self._compare(list(entry))
        return False

    def act(self, entry: list[object], do: Callable[[], None]) -> bool:
        """Note an act and call `do` if it is new; return True if it is. Raises UserError if the act is, or was, refused."""
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

    def read(self, name: str, value: Callable[[], object]) -> object:
        """Note a value that the script reads; return it, or the value noted before during a replay."""
        if self._next is None:
            present = value()
            self.entries.append(["read", name, present])
            return present
        index = self._next
        self._compare(["read", name], 2)
        return self.entries[index][2]

    def woken(self) -> list[Any] | None:
        """Return the next entry "woken" of a replay, or None if the script still waits at the checkpoint."""
        assert self._next is not None
        if self._next == len(self.entries):
            self._next = None
            return None
        entry = self.entries[self._next]
        if entry[0] != "woken":
            self._refuse(f"it waits, where it did {_entry_text(entry)}")
        self._next += 1
        return entry

    def finish(self) -> None:
        """Note the end of the script; raises DivergedError if the journal has further entries."""
        if self._next is not None and self._next < len(self.entries):
            self._refuse(f"it is over, where it did {_entry_text(self.entries[self._next])}")
        self._next = None

    def raise_if_diverged(self) -> None:
        """Raise an earlier DivergedError again, because an `except` in the script may have caught it."""
        if self._diverged is not None:
            raise self._diverged

    def _compare(self, entry: list[object], length: int | None = None) -> None:
        """Compare `entry` with the next one of the replay, up to `length` items; raises DivergedError."""
        assert self._next is not None
        if self._next == len(self.entries):
            self._refuse(f"it does {_entry_text(entry)} where it did no more")
        earlier = self.entries[self._next]
        if earlier[:length] != entry:
            self._refuse(f"it does {_entry_text(entry)}, where it did {_entry_text(earlier)}")
        self._next += 1

    def _refuse(self, problem: str) -> None:
        """Raise a DivergedError, and keep it for `raise_if_diverged`."""
        self._diverged = DivergedError(problem)
        raise self._diverged


def _entry_text(entry: list[object]) -> str:
    """Return an entry as text for messages, such as "wait for until_round 3"."""
    kind, *rest = entry
    return f"{'wait for' if kind == 'wait' else kind} {' '.join(str(word) for word in rest if word is not None)}"
