"""Rule by which lost messages are sent again: models, updates, probes, opinions, and messages between clients."""

from __future__ import annotations

from dataclasses import dataclass

from netsim.core.errors import ParameterError

FOREVER = 1 << 62
"""Number of resends of a message that is sent again until it arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resending:
    """Rule for lost messages: largest number of resends, and the pause before each, seconds. The pause begins when the message
    would have arrived.

    Raises ValueError for a number that is neither in 0..999 nor `FOREVER`, and a pause that is not finite and >= 0 seconds.
    With `FOREVER` the pause must be > 0: otherwise a link that is down would be tried for ever in one instant.
    """

    max_resends: int = 0
    resend_after_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_resends < 1000 and self.max_resends != FOREVER:
            raise ParameterError("max_resends", self.max_resends, "must be between 0 and 999")
        if not 0 <= self.resend_after_s < float("inf"):
            raise ParameterError("resend_after_s", self.resend_after_s, "must be >= 0 seconds and finite")
        if self.max_resends == FOREVER and not self.resend_after_s:
            raise ParameterError("resend_after_s", self.resend_after_s, "must be > 0 seconds where there is no limit of resends")


NEVER_AGAIN = Resending()
"""Rule without resends: a lost message stays lost."""
