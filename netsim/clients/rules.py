"""Rules for all updates of a run."""

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
    """Additional seconds, such as a pause of the application."""
    look_s: float = 0.0
    """Polling interval in seconds: the end of the work is noticed at a multiple of it after the beginning; 0: at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRules:
    """Rules of privacy, of sending again, and of reports to the server."""

    charge_on: str = "upload"
    """Privacy is spent as the upload begins ("upload": a message that left the device has been released, whether it arrives or
    not; sending the same again reveals nothing new) or only on delivery ("delivery")."""
    retry: bool = False
    """True if a client keeps an update that was finished and not delivered, for another attempt."""
    instant: bool = False
    """True if an upload that takes no time ends within the call that began it."""
    on_work: Callable[[Update], Load | None] | None = None
    """Callback that returns the work when a client begins to work on an update; a returned None means that the callback ends
    the work itself, later. Without a callback the work is planned when the update begins.
    """
    reports_phases: bool = False
    """True if clients report to the server how long each step of a delivered update took."""


USUAL = UpdateRules()
