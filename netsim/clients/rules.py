"""Rules for all updates of a run."""

from __future__ import annotations

from dataclasses import dataclass


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
    reports_phases: bool = False
    """True if clients report to the server how long each step of a delivered update took."""


USUAL = UpdateRules()
