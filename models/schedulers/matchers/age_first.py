"""Matching by age: the client of greatest age gets the best channel, and so on down."""

from __future__ import annotations

from models.schedulers.matchers.rotation import turn
from models.schedulers.protocols import SlotView, State


class AgeFirst:
    """The oldest first; clients of equal age in the order of rotation."""

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """The channel of each client."""
        ages: list[int] = view.ages.tolist()
        order = sorted(turn(view.round, len(ranked)), key=ages.__getitem__, reverse=True)
        return by_client(order, ranked)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


def by_client(order: list[int], ranked: list[int]) -> list[int]:
    """The channel of each client where client `order[r]` takes `ranked[r]`."""
    matched = [0] * len(ranked)
    for client, channel in zip(order, ranked, strict=True):
        matched[client] = channel
    return matched
