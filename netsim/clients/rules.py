"""Rules for all updates of a run, as the life of an update (`netsim.clients.lifecycle`) obeys them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netsim.clients.update import Update


class Load(NamedTuple):
    """Work of a client on a message of an application, and the size of its reply."""

    bytes_up: int
    samples: int | None = None
    """Samples that the client processes, for the record."""
    weighted_samples: float = 0.0
    """Samples in units of the time that training takes for one."""
    besides_s: float = 0.0
    """Additional seconds of the work, such as a pause of the application."""
    look_s: float = 0.0
    """Polling interval in seconds: the end of the work is noticed at a multiple of it after the beginning; 0: at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRules:
    """Rules of privacy, of sending again, and of reports to the server."""

    charge_on: str = "upload"
    """Event that spends privacy: "upload", the beginning of the upload, or "delivery". An upload releases the message even if it
    is lost on the way; sending the same message again reveals nothing new, so it costs nothing."""
    retry: bool = False
    """True if a client keeps a finished update that was not delivered, for another attempt."""
    instant: bool = False
    """True if an upload that takes no time ends within the call that began it."""
    on_work: Callable[[Update], Load | None] | None = None
    """Callback that returns the work of an update when its client begins to work, or None if the caller ends the work itself,
    later. Without a callback the work is planned when the update begins.
    """
    reports_phases: bool = False
    """True if clients report to the server how long each step of a delivered update took."""


USUAL = UpdateRules()
"""The default rules."""
