"""The interface of a step, and what steps ask of the executor that runs them by events."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.clients.vectorised.forecast import Forecast


class Executor(Protocol):
    """Runs the steps of an update one after the other, by events (`netsim.clients.lifecycle.UpdateLifecycle`)."""

    def run(self, update: Update, step: Step, ends_s: float, now: float) -> None:
        """Run `step` until `ends_s`, or until the client leaves if that is earlier."""

    def wait(self, update: Update, power: int, now: float) -> None:
        """Wait until other code ends the present step, or the client leaves."""

    def replan(self, update: Update, ends_s: float) -> None:
        """Move the end of the present step to another time."""

    def proceed(self, update: Update, now: float) -> None:
        """End the present step and begin the one that follows."""

    def end(self, update: Update, outcome: str, now: float, cause: str | None = None) -> None:
        """End the attempt within the present step."""

    def leave(self, update: Update, now: float) -> None:
        """End the attempt as aborted, since the client leaves or its battery is empty."""

    def charge(self, update: Update) -> None:
        """Spend privacy on the update."""


class Hold(Protocol):
    """A resource that an update holds while later steps run."""

    def release(self, update: Update, now: float) -> None:
        """Give the resource back. Called for every outcome of the attempt."""


class Step(Protocol):
    """A step of an update, stated twice: by events and, for all attempts of a round at once, as arrays.

    By events, the executor calls `begin`; a step of known length ends with `finish`, and `close` records the end. As arrays,
    `foresee` does all of it. Both forms give the same columns to the last bit.
    """

    phase: str
    """Phase of an update in this step."""
    power: int
    """State of the client in this step (`netsim.clients.power.power_integral`)."""
    foreseeable: bool
    """True if `foresee` may be called, because the step of one attempt does not depend on other attempts."""
    finished: bool = False
    """True if the update is complete in this step, so that its client may keep it if the attempt ends here."""
    hold: Hold | None = None
    """Resource that the update holds while it is in this step."""
    following: Step | None = None
    """Next step of the recipe; None for the last."""

    @abstractmethod
    def begin(self, update: Update, now: float) -> None:
        """Begin the step of `update`."""

    def finish(self, update: Update, now: float) -> None:
        """Handle the end of the step's own duration. Not called for steps that only wait."""
        return

    @abstractmethod
    def close(self, update: Update, now: float) -> None:
        """Record that the step ends now, and release resources that only this step holds."""

    def resume(self, update: Update) -> None:
        """Take over an update that was restored in this step."""
        return

    def recall(self, update: Update) -> None:
        """Set the attributes that `begin` would have set, other than columns, of an update that was simulated as arrays and goes
        on by events.
        """
        return

    def drop(self, update: Update) -> None:
        """Release resources that only this step holds, without a record: the update is discarded."""
        return

    @abstractmethod
    def foresee(self, forecast: Forecast) -> bool:
        """Compute the step for all attempts of `forecast` and return True, or return False if it cannot be known now."""
