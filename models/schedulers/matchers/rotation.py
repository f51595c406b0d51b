"""Matching by rotation: client j takes the ((j + t) mod K)-th best channel (Li et al., Algorithm 2, line 10), all from 0."""

from __future__ import annotations

from models.schedulers.protocols import SlotView, State


class Rotation:
    """Everyone's turn at every rank, whatever the ages."""

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """The channel of each client."""
        shift = view.round % len(ranked)
        return ranked[shift:] + ranked[:shift]

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


def turn(round: int, clients: int) -> list[int]:
    """The clients in the order of the ranks that rotation gives them in `round`: an order of ties that favours nobody."""
    return [(rank - round) % clients for rank in range(clients)]
