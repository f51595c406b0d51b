"""What holds for every update of a run, whichever client it is of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRules:
    """When an update costs privacy, whether it is kept, and what the server is told of it."""

    charge_on: str = "upload"
    """Privacy is spent as the upload begins ("upload": a message that left the device has been released, whether it arrives or
    not; sending the same again reveals nothing new) or only on delivery ("delivery")."""
    retry: bool = False
    """Whether a client keeps an update that was finished and not delivered, for another attempt."""
    instant: bool = False
    """Whether an upload that takes no time ends within the call that began it."""
    reports_phases: bool = False
    """Whether clients tell the server how long each step of a delivered update took."""


USUAL = UpdateRules()
