"""Matching at random: the baseline of adaptive matching (Li et al., Section VI)."""

from __future__ import annotations

from models.schedulers.protocols import SlotView, State


class RandomMatching:
    """Every matching equally likely."""

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """The channel of each client."""
        shuffled: list[int] = view.rng.permutation(ranked).tolist()
        return shuffled

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass
