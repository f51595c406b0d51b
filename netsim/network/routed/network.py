"""Transfers of all kinds over the links of one network: models, updates, probes, opinions, messages between clients.

A transfer crosses the links of its route from client to server, from server to client or from client to client. It takes the
delays of the cables, then its bytes flow at the max-min fair rate (`netsim.network.flows`). Each cable may lose it by a law of
its own, decided as the transfer is sent. An outage, or a jammer, loses what crosses the cable while it is on; this shows at the
end of the transfer. A loss has one cause: an outage, jamming, a trace that has ended, or the law of a cable, in this order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.core.protocols import Stateful
from netsim.network.bandwidth.carriers import TRACE_END, Key
from netsim.network.flows.transfers import LinkData, Transfers
from netsim.network.jammable import JammedRoutes
from netsim.network.losses import cause_of_loss
from netsim.network.outages import ClientOutages
from netsim.network.routed.cables import Cable, Capacity
from netsim.network.routed.journeys import Hops, Journey

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import FloatArray, IntArray, State
    from netsim.core.streams import Streams
    from netsim.network.flows.corrections import Corrections
    from netsim.network.flows.transfers import Route
    from netsim.network.jamming import Jammers
    from netsim.records.sinks import Recorder

_NEVER = float("inf")
_CABLE: IntArray = np.zeros(1, np.int64)
_ENDS = 1 << 31
"""Offset that turns numbers of ends, which may be negative, into addresses of draws."""
LOST_BY_LINK = "link"
"""Cause of a loss by the law of a cable."""

_SAVED = tuple(field.name for field in dataclasses.fields(Journey) if field.name not in ("owner", "key"))
"""Fields of `Journey` after owner and key in a saved state, in the order of its constructor."""


class Traffic(Stateful, Protocol):
    """Background traffic on the network."""

    def begin(self) -> None:
        """Start the traffic, as the first round opens."""


class Log(Stateful, Protocol):
    """Records of what crosses the network."""

    def end(self, number: int, journey: Journey, outcome: str, cause: str | None, *, passed: bool) -> None:
        """Record the end of a transfer. `passed`: True if all its bytes have passed."""

    def close_round(self, round: int, time_s: float) -> None:
        """Record the end of a round."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all rows to `recorder` from now on."""

    def record_unfinished(self) -> None:
        """Record what is in progress at the end of the run."""


class RoutedNetwork:
    """Transfers in progress on a network of `cables`.

    `hops`: function that returns the route between two ends, each a client's number or SERVER. The way back uses the same
    cables in reverse. `outages`: outages of cables, by number of the cable.
    """

    # Throughout, n is the number of a cable, its place in `cables`; a link is one direction of a cable, or both.

    def __init__(
        self,
        *,
        clock: Clock,
        cables: Sequence[Cable],
        hops: Callable[[int, int], Hops],
        streams: Streams,
        corrections: Corrections | None = None,
        outages: ClientOutages | None = None,
    ) -> None:
        self.clock = clock
        self.cables = cables
        self.hops = hops
        self.outages = outages or ClientOutages()
        self.round = 1
        """Round under way, whose laws are in force."""
        self._streams = streams
        self._capacities = {n: Capacity(cable.bandwidth) for n, cable in enumerate(cables) if cable.bandwidth is not None}
        """Bandwidth of each cable that has one, by number of the cable."""
        for capacity in self._capacities.values():
            capacity.update(1, clock.now)
        self.transfers = Transfers(clock=clock, links=self._links(), corrections=corrections)
        """Delays and flows of the transfers."""
        self.transfers.listen(self._on_arrival)
        self.under_way: dict[int, Journey] = {}
        """Transfers in progress, by number."""
        self._numbers: dict[tuple[str, Key], int] = {}
        """Number of each transfer in progress, by owner and key."""
        self._sent: dict[tuple[str, str, int, int], int] = {}
        """Number of transfers sent so far, by owner, kind, source and target. It addresses their draws."""
        self._due: list[tuple[float, int]] = []
        """Heap of (time, number) of cables whose bandwidth may change or end at that time."""
        self._dead: set[int] = set()
        """Cables that never carry anything again."""
        self._calls_s = _NEVER
        """Time of the scheduled change of a bandwidth."""
        self.background: list[Traffic] = []
        """Background traffic, which begins with the first round."""
        self._has_begun = False
        """True once the first round has opened."""
        self._has_states = False
        """True once cables whose losses have a memory have a state."""
        self._on_end: dict[str, Callable[[Key, str | None], None]] = {}
        self.log: Log | None = None
        """Records of transfers and links, if a table needs them."""
        self.jammed: JammedRoutes[Journey] | None = None
        """Cables as jammable channels, or None without jammers."""
        self.jammers: Jammers | None = None

    def listen(self, owner: str, on_end: Callable[[Key, str | None], None]) -> None:
        """Call `on_end` with the key of each transfer of `owner` that ends, and the cause of its loss, None if it arrived."""
        self._on_end[owner] = on_end

    def keep_log(self, log: Log) -> None:
        """Record each transfer and each round that ends from now on in `log`."""
        self.log = log

    def jammed_cables(self) -> JammedRoutes[Journey]:
        """Return the cables as jammable channels. A transfer holds all cables of its route from its beginning to its end."""
        return JammedRoutes(
            len(self.cables),
            channels_of=lambda journey: [n for n, _ in self.hops(journey.source, journey.target)],
            holds_channel=lambda journey, time_s: journey.sent_s == time_s or not self.is_ending(journey),
        )

    def let_jam(self, jammed: JammedRoutes[Journey], jammers: Jammers) -> None:
        """Let `jammers` jam the cables from now on."""
        self.jammed, self.jammers = jammed, jammers

    def _links(self) -> list[LinkData]:
        """Return the links of all cables, with their present bandwidths."""
        links: list[LinkData] = []
        for n, cable in enumerate(self.cables):
            # A cable without a bandwidth carries messages without bytes only.
            bytes_per_s = self._capacities[n].bytes_per_s if n in self._capacities else 0.0
            fat_pipe = cable.duplex == "fat-pipe"
            links += [
                LinkData(name=name, bytes_per_s=bytes_per_s, delay_s=cable.delay_s, fat_pipe=fat_pipe) for name in cable.links
            ]
        return links

    # Transfers.

    def __contains__(self, owned: tuple[str, Key]) -> bool:
        return owned in self._numbers

    def send(self, owner: str, key: Key, ends: tuple[int, int], size_bytes: float, limit_bytes_per_s: float = _NEVER) -> None:
        """Begin a transfer of `owner` between two ends, each a client's number or SERVER."""
        if self.jammers is not None:
            # Jamming ends and begins before a transfer of the same instant.
            self.jammers.catch_up()
        self._apply_due_bandwidths()
        source, target = ends
        hops = self.hops(source, target)
        wait_s, cause = self._draw_wait_and_loss(owner, key[0], ends, hops)
        # Over a cable that never carries anything again, a flow would have no end: send no bytes, and lose the transfer when its
        # delay has passed.
        flowing_bytes = size_bytes
        if any(n in self._dead for n, _ in hops):
            flowing_bytes, cause = 0.0, TRACE_END
        route = self.route(source, target)
        number = self.transfers.send(route, flowing_bytes, limit_bytes_per_s, wait_s)
        now = self.clock.now
        journey = Journey(
            owner=owner,
            key=key,
            source=source,
            target=target,
            size_bytes=size_bytes,
            sent_s=now,
            begin_s=now + self.transfers.delay_s(route, flowing_bytes) + wait_s,
            round=self.round,
            cause=cause,
        )
        self.under_way[number], self._numbers[owner, key] = journey, number
        if self.jammed is not None:
            self.jammed.begin(journey)

    def is_cut_off(self, source: int, target: int) -> bool:
        """Return True if every transfer from `source` to `target` is lost from now on, unless another round opens.

        A cable of its route never carries anything again, or an outage or a jammer destroys all that crosses it, for ever.
        """
        useless_cables = self._dead | self.outages.down_for_ever(self.clock.now)
        if self.jammers is not None:
            useless_cables |= self.jammers.jammed_for_ever()
        return any(n in useless_cables for n, _ in self.hops(source, target))

    def route(self, source: int, target: int) -> Route:
        """Return the route between two ends as flows use it."""
        there = [self.cables[n].link(node) for n, node in self.hops(source, target)]
        back = [self.cables[n].link(node) for n, node in self.hops(target, source)]
        return self.transfers.route(there, back)

    def _draw_wait_and_loss(self, owner: str, kind: str, ends: tuple[int, int], hops: Hops) -> tuple[float, str | None]:
        """Draw the waits of the cables on the way, and losses by them; return (sum of the waits in seconds, cause of a loss or
        None).
        """
        with_laws = [n for n, _ in hops if self.cables[n].wait is not None or self.cables[n].survivals is not None]
        if not with_laws:
            return 0.0, None
        sent_between = owner, kind, *ends
        times = self._sent[sent_between] = self._sent.get(sent_between, 0) + 1
        # Address of the draws: 32 bits for each end, then 64 bits for the number of the transfer between them. So the numbers of
        # a transfer do not depend on what else is sent. Owner, kind and cable are in the name of the stream.
        index = ((ends[0] + _ENDS) << 32 | (ends[1] + _ENDS)) << 64 | times
        if not self._has_states:
            # The model of the first round goes down to an edge before the edge opens a round of its clients.
            self._advance_states(0, self.clock.now)
        wait_s, cause = 0.0, None
        for n in with_laws:
            cable, name = self.cables[n], f"network.links.{self.cables[n].name}.{owner}.{kind}"
            if cable.wait is not None:
                law, _ = cable.wait.at(self.round, self.clock.now)
                wait_s += float(law.quantile(self._streams[f"{name}.delay"].uniforms(index, 1), _CABLE)[0])
            if cable.survivals is not None:
                u = self._streams[f"{name}.loss"].uniforms(index, 1)
                survives, _ = cable.survivals.evaluate(self.round, self.clock.now, _CABLE, u)
                if not survives[0]:
                    cause = LOST_BY_LINK
        return wait_s, cause

    def cancel(self, owner: str, key: Key) -> None:
        """End a transfer early, as aborted. Its owner, which cancels it, is not called."""
        number = self._numbers.pop((owner, key))
        journey = self.under_way.pop(number)
        if self.jammed is not None:
            self.jammed.end(journey, delivered=False)
        if self.log is not None:
            self.log.end(number, journey, "aborted", None, passed=False)
        self.transfers.cancel(number)

    def is_ending(self, journey: Journey) -> bool:
        """Return True if a transfer in progress ends at this instant."""
        hops = self.hops(journey.source, journey.target)
        if any(n in self._capacities and self._capacities[n].stops_s == self.clock.now for n, _ in hops):
            return True
        return self.transfers.is_ending(self._numbers[journey.owner, journey.key])

    def _on_arrival(self, number: int) -> None:
        """Callback when all bytes of a transfer have passed."""
        self._end(number, self.under_way[number])

    def _outage_cause(self, journey: Journey) -> str | None:
        """Return the name of an outage that a transfer has met on its cables so far, or None."""
        if not self.outages:
            return None
        now = self.clock.now
        causes = (self.outages.cause(n, journey.sent_s, now) for n, _ in self.hops(journey.source, journey.target))
        return next((cause for cause in causes if cause is not None), None)

    def _end(self, number: int, journey: Journey, *, early: bool = False) -> None:
        """End a transfer, delivered or lost, and call its owner. `early`: True if its bytes have not passed."""
        jamming = "jammed" if journey.jammed else None
        cause = cause_of_loss(self._outage_cause(journey), access=jamming, link=journey.cause, survives=True)
        if self.jammed is not None:
            self.jammed.end(journey, delivered=cause is None)
        del self.under_way[number], self._numbers[journey.owner, journey.key]
        # The log reads which links limited the flow, so it comes before the flow is cancelled. The owner comes last: it may send
        # the next transfer at once.
        if self.log is not None:
            self.log.end(number, journey, "delivered" if cause is None else "lost", cause, passed=not early)
        if early:
            self.transfers.cancel(number)
        self._on_end[journey.owner](journey.key, cause)

    # Bandwidths.

    def open_round(self, round: int, time_s: float) -> None:
        """Apply the laws of `round`, also to transfers in progress."""
        if self.log is not None:
            self.log.close_round(self.round, time_s)
        self.round = round
        if self.jammers is not None:
            self.jammers.open_round(round)
        if not self._has_begun:
            self._has_begun = True
            for source in self.background:
                source.begin()
        self._advance_states(round, time_s)
        self.outages.open_round(round, time_s)
        # An outage that was over before the oldest transfer began can destroy none any more.
        oldest_s = min((journey.sent_s for journey in self.under_way.values()), default=time_s)
        self.outages.forget(oldest_s)
        self.renew()

    def _advance_states(self, round: int, time_s: float) -> None:
        """Advance the states of cables whose losses have a memory to `round`."""
        self._has_states = True
        for cable in self.cables:
            if cable.survivals is not None:
                cable.survivals.open_round(round, time_s)

    def renew(self) -> None:
        """Read all bandwidths again: a script may have replaced a law."""
        self._due = []
        self._apply_bandwidths(self._capacities)

    def _apply_due_bandwidths(self) -> None:
        """Apply the bandwidths that may have changed by now. While no transfer is in progress, changes are not followed."""
        now = self.clock.now
        due_cables: set[int] = set()
        while self._due and self._due[0][0] <= now:
            _, n = heappop(self._due)
            due_cables.add(n)
        # In the order of the cables, so that results do not depend on the order of a set.
        self._apply_bandwidths(sorted(due_cables))

    def _apply_bandwidths(self, numbers: Iterable[int]) -> None:
        """Apply the present bandwidths of these cables, and schedule the next change of any cable."""
        now = self.clock.now
        for n in numbers:
            capacity = self._capacities[n]
            if capacity.update(self.round, now):
                for link in self.cables[n].links:
                    self.transfers.change(link, bytes_per_s=capacity.bytes_per_s)
            if capacity.stops_s <= now:
                self._dead.add(n)
            else:
                self._dead.discard(n)
            # Of a cable that is dead already the end is past.
            stop_s = _NEVER if n in self._dead else capacity.stops_s
            due_s = min(capacity.next_s, stop_s)
            if due_s < _NEVER:
                heappush(self._due, (due_s, n))
        # One call of the clock stands for the next change of any cable; an earlier call becomes stale.
        if self._due and self._due[0][0] != self._calls_s:
            self._calls_s = self._due[0][0]
            self.clock.call_at(self._calls_s, self._on_bandwidth_change, self._calls_s)

    def _on_bandwidth_change(self, at_s: float) -> None:
        """Callback at the time at which a bandwidth may change or end."""
        if at_s != self._calls_s:
            return  # a call for another time has taken its place
        self._calls_s = _NEVER
        # Without transfers the changes have no effect, so they are not followed, and need no events. The next transfer catches
        # up.
        if not self.under_way:
            return
        self._apply_due_bandwidths()
        self._lose_stopped()

    def _lose_stopped(self) -> None:
        """Lose the transfers over cables that never carry anything again."""
        if not self._dead:
            return
        # A copy, and looked up again: the owner of a lost transfer may begin or cancel others.
        for number, journey in list(self.under_way.items()):
            is_stopped = any(n in self._dead for n, _ in self.hops(journey.source, journey.target))
            if is_stopped and number in self.under_way:
                journey.cause = TRACE_END
                self._end(number, journey, early=True)

    # Expectations.

    def alone_s(self, ends: Iterable[tuple[int, int]], sizes: FloatArray, starts_s: FloatArray, round: int) -> FloatArray:
        """Return the seconds that transfers take if each is alone on the network, under the laws in force in `round`; (n,).

        `ends`: source and target of each, `sizes`: bytes, `starts_s`: beginnings. Drawn delays, and corrections of the share of
        a link, are ignored.
        """
        seconds = []
        for (source, target), size_bytes, start_s in zip(ends, sizes.tolist(), starts_s.tolist(), strict=True):
            seconds.append(self._alone_s(source, target, size_bytes, start_s, round))
        return np.array(seconds)

    def _alone_s(self, source: int, target: int, size_bytes: float, start_s: float, round: int) -> float:
        """Return the seconds of a transfer that is alone on the network: its delay, then its bytes at the bandwidth of the route;
        inf if the bandwidth ends before all bytes have arrived. Without bytes or cables the delay is all.
        """
        corrections, hops = self.transfers.corrections, self.hops(source, target)
        delay_s = self.transfers.delay_s(self.route(source, target), size_bytes)
        propagation_s = sum(self.cables[n].delay_s for n, _ in hops)
        left_bytes, time_s = size_bytes / corrections.bandwidth_factor, start_s + delay_s
        if left_bytes <= 0.0 or not hops:
            return delay_s
        # Integrate the bandwidth: between two changes of any cable the rate is constant.
        while left_bytes > 0.0:
            rates = [self._capacities[n].rate_at(round, time_s) for n, _ in hops]
            rate = corrections.bound(propagation_s, [bytes_per_s for bytes_per_s, _ in rates])
            until_s = min(next_change_s for _, next_change_s in rates)
            if rate > 0.0 and time_s + left_bytes / rate <= until_s:
                return time_s + left_bytes / rate - start_s
            if until_s == _NEVER:
                return _NEVER
            left_bytes -= (until_s - time_s) * rate
            time_s = until_s
        # By rounding the last bytes passed at the change itself.
        return time_s - start_s

    # Records.

    def record_to(self, recorder: Recorder) -> None:
        """Send rows of transfers, links and jamming to `recorder` from now on."""
        if self.log is not None:
            self.log.record_to(recorder)
        if self.jammers is not None:
            self.jammers.record_to(recorder)

    def record_unfinished(self) -> None:
        """Record transfers in progress, and present jamming, at the end of the run."""
        if self.log is not None:
            self.log.record_unfinished()
        if self.jammers is not None:
            self.jammers.stop()

    # Saved state.

    def state_dict(self) -> State:
        """Return transfers with their flows, counts of draws, and states of losses and outages."""
        under_way = []
        for number, journey in self.under_way.items():
            fields = [getattr(journey, name) for name in _SAVED]
            under_way.append((number, journey.owner, *journey.key, *fields))
        return {
            "transfers": self.transfers.state_dict(),
            "under_way": under_way,
            "sent": [(*address, times) for address, times in self._sent.items()],
            "survivals": {cable.name: cable.survivals.state_dict() for cable in self.cables if cable.survivals is not None},
            "outages": self.outages.state_dict(),
            "background": [source.state_dict() for source in self.background],
            "log": None if self.log is None else self.log.state_dict(),
            "jammed": None if self.jammed is None else self.jammed.state_dict(),
            "jammers": None if self.jammers is None else self.jammers.state_dict(),
        }

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state at the close of `round` and schedule the next events."""
        self.round, self._has_begun, self._has_states = round, True, True
        self.outages.load_state_dict(state["outages"])
        for cable in self.cables:
            if cable.survivals is not None:
                cable.survivals.load_state_dict(state["survivals"][cable.name], round, time_s)
        self._sent = {(owner, kind, source, target): times for owner, kind, source, target, times in state["sent"]}
        for number, owner, kind, number_of_kind, *fields in state["under_way"]:
            key = kind, number_of_kind
            self.under_way[number] = Journey(owner, key, *fields)
            self._numbers[owner, key] = number
        self.transfers.load_state_dict(state["transfers"])
        if self.log is not None:
            self.log.load_state_dict(state["log"])
        if self.jammed is not None and self.jammers is not None:
            self.jammed.load_state_dict(state["jammed"])
            self.jammers.load_state_dict(state["jammers"], round)
            for journey in self.under_way.values():
                self.jammed.resume(journey)
            self.jammers.arm()
        for source, saved in zip(self.background, state["background"], strict=True):
            source.load_state_dict(saved)
        self.renew()
