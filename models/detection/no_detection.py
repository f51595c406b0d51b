"""No detection: a detector that never declares a change."""

from __future__ import annotations

from models.detection.protocols import State


class NoDetection:
    """Detector that declares nothing and remembers nothing.

    Example:
        >>> any(NoDetection().update(x) for x in [0.0, 1.0, 1.0])
        False
    """

    def update(self, x: float) -> bool:
        return False

    def reset(self) -> None:
        pass

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass
