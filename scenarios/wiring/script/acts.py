"""Acts of a script that it can take back, each once."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.schema.errors import UserError


class _Act:
    """An act that `undo` takes back once."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def _take_back(self, name: str) -> None:
        """Undo the act; raises UserError the second time. `name`: name of the method, for the message."""
        if self._undo is None:
            raise UserError(f"{name}: this was taken back already; do it once")
        undo, self._undo = self._undo, None
        undo()


class Change(_Act):
    """Parameters that a script has changed."""

    def restore(self) -> None:
        """Take the change back. Other changes, and change points, stay in force."""
        self._take_back("restore")


class Jamming(_Act):
    """A jammer that a script has started."""

    def stop(self) -> None:
        """Stop the jammer: its present dwell ends now, and no other follows."""
        self._take_back("stop")


class Absence(_Act):
    """Clients that a script has taken away."""

    def bring_back(self) -> None:
        """End the absence: the clients are present again if the scenario's law says so and no other absence is left."""
        self._take_back("bring_back")


class Cut(_Act):
    """Links between clients that a script has cut."""

    def heal(self) -> None:
        """End the cut: the links work again if no other cut of them is left."""
        self._take_back("heal")


class CutOff(_Act):
    """Clients that a script has cut off from the server."""

    def reconnect(self) -> None:
        """End the cut-off: transmissions that begin from now on get through; those in flight during the cut-off are lost."""
        self._take_back("reconnect")
