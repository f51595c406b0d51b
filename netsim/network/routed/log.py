"""Records of a network: a row for each transfer, with the links that limited it, and a row for each link and round."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from netsim.core.rows import LinkRow, TransferRow
from netsim.records.sinks import NoRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from netsim.core.protocols import State
    from netsim.network.routed.journeys import Journey
    from netsim.network.routed.network import RoutedNetwork
    from netsim.records.sinks import Recorder


class TransferLog:
    """Rows of all transfers of `network`, and of the bytes on its links; `node`: the name of an end, by its number."""

    def __init__(self, network: RoutedNetwork, node: Callable[[int], str]) -> None:
        self._network, self._node = network, node
        self._recorder: Recorder = NoRecorder()
        self._usage = network.transfers.flows.keep_account()
        """Account of the bytes on links, and of the links that limit flows."""
        self._since_s = network.clock.now
        """Time at which the present round began."""
        self._before: dict[str, float] = {}
        """Bytes that had crossed each link when the round opened."""
        network.keep_log(self)

    def record_to(self, recorder: Recorder) -> None:
        """Send all rows to `recorder` from now on."""
        self._recorder = recorder

    def end(self, number: int, journey: Journey, outcome: str, cause: str | None, *, passed: bool) -> None:
        """Record a transfer that has ended, or that the end of the run cuts off. `passed`: True if all its bytes have passed."""
        network, now = self._network, self._network.clock.now
        limited_s = network.transfers.limited_s(number)
        # The table names the link that limited the transfer for the longest time.
        limit = max(limited_s, key=lambda link: limited_s[link], default=None)
        cables = [network.cables[n].name for n, _ in network.hops(journey.source, journey.target)]
        flowed_s = now - journey.begin_s
        mean_bytes_per_s = None
        if passed and flowed_s > 0.0:
            mean_bytes_per_s = journey.size_bytes / flowed_s
        _, number_of_kind = journey.key
        row = TransferRow(
            round=journey.round,
            kind=_kind(journey),
            source=self._node(journey.source),
            target=self._node(journey.target),
            number=number_of_kind,
            size_bytes=None if journey.endless else int(journey.size_bytes),
            sent_s=journey.sent_s,
            begin_s=min(journey.begin_s, now),
            end_s=now,
            outcome=outcome,
            cause=cause,
            route=">".join(cables),
            mean_bytes_per_s=mean_bytes_per_s,
            limit=limit,
            limited_s=0.0 if limit is None else limited_s[limit],
            limits=json.dumps(limited_s),
        )
        self._recorder.transfer(row)

    def close_round(self, round: int, time_s: float) -> None:
        """Record the bytes that have crossed each link in `round`, which ends at `time_s`. A round that takes no time has no
        rows.
        """
        if time_s <= self._since_s:
            return
        self._usage.advance(time_s)
        for name, link in self._network.transfers.flows.links.items():
            carried_bytes = self._usage.bytes.get(name, 0.0) - self._before.get(name, 0.0)
            if carried_bytes > 0.0:
                row = LinkRow(
                    round=round,
                    link=name,
                    start_s=self._since_s,
                    end_s=time_s,
                    carried_bytes=carried_bytes,
                    bytes_per_s=self._usage.mean_capacity(link, time_s),
                )
                self._recorder.link(row)
        self._since_s, self._before = time_s, dict(self._usage.bytes)
        self._usage.begin_period(time_s)

    def record_unfinished(self) -> None:
        """Record the transfers in progress at the end of the run."""
        for number, journey in self._network.under_way.items():
            self.end(number, journey, "in_flight", None, passed=False)
        self.close_round(self._network.round, self._network.clock.now)

    def state_dict(self) -> State:
        """Return the beginning of the round, and the bytes up to it."""
        return {"since_s": self._since_s, "before": dict(self._before)}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""
        self._since_s, self._before = state["since_s"], dict(state["before"])


def _kind(journey: Journey) -> str:
    """Return the kind of a transfer as tables name it. Keys do not tell models from updates; their carriers do."""
    if journey.owner.startswith("background"):
        return journey.owner
    kind, _ = journey.key
    if kind == "update" and journey.owner in ("down", "edges down"):
        return "model"
    return kind
