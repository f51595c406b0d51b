"""No detection: a detector that never declares a change."""

from __future__ import annotations

from netsim.core.state import StateFields


class NoDetection(StateFields):
    """Detector that declares nothing and remembers nothing.

    Example:
        >>> any(NoDetection().update(x) for x in [0.0, 1.0, 1.0])
        False
    """

    def update(self, x: float) -> bool:
        """Return False: no change is declared."""
        return False

    def reset(self) -> None:
        """Do nothing: there are no observations to forget."""
