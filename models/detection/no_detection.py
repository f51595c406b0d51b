"""No detection: a detector that never declares a change."""

from __future__ import annotations

from models.detection.protocols import State


class NoDetection:
    """Declares nothing and remembers nothing."""

    def update(self, x: float) -> bool:
        """False."""
        return False

    def reset(self) -> None:
        """Nothing to forget."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass
