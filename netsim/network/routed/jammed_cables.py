"""Cables of a network as jammers see them: sub-channels that they can be told to jam."""

from __future__ import annotations

from collections.abc import Callable

from netsim.core.state import StateFields
from netsim.network.jammable import Jammable
from netsim.network.routed.journeys import Hops, Journey


class JammedCables(Jammable[Journey], StateFields):
    """Cables of a network for `netsim.network.jamming.Jammers`: every cable is a sub-channel, in both directions at once.

    A transfer is on all cables of its route from its beginning to its end, its delay included. `hops`: the route between two
    ends; `is_ending`: True for a transfer under way that ends in this very instant.
    """

    state_fields = ("begun", "delivered", "hit", "_jams_begun")

    def __init__(self, cables: int, *, hops: Callable[[int, int], Hops], is_ending: Callable[[Journey], bool]) -> None:
        super().__init__(cables)
        self._hops = hops
        self._is_ending = is_ending

    def begin(self, journey: Journey) -> None:
        """Let a transfer set out."""
        for cable in self._cables(journey):
            self._enter(journey, cable)

    def end(self, journey: Journey, *, delivered: bool) -> None:
        """Let a transfer come to its end."""
        for cable in self._cables(journey):
            self._leave(journey, cable, delivered=delivered)

    def resume(self, journey: Journey) -> None:
        """Take back a transfer that was under way as the state was saved."""
        for cable in self._cables(journey):
            self.under_way[cable].append(journey)

    def _cables(self, journey: Journey) -> list[int]:
        return [n for n, _ in self._hops(journey.source, journey.target)]

    def _is_there(self, sent: Journey, time_s: float) -> bool:
        return sent.sent_s == time_s or not self._is_ending(sent)
