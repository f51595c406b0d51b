"""Addresses of the draws of messages between clients."""

from __future__ import annotations

from models.laws.delays import ShiftedExponential
from netsim.core.clock import Clock
from netsim.core.streams import Streams
from netsim.network.transport.message_draws import EdgeDraws
from tests.helpers.peer_world import four, links_between


def test_two_sendings_never_share_their_draws() -> None:
    # Sixteen bits count the attempts of a key: attempt 65,536 of key 8 must not be attempt 0 of key 9.
    streams, delay = Streams(1), ShiftedExponential(shift_s=0.0, mean_excess_s=1.0)
    draws = EdgeDraws(links_between(Clock(), four(), streams, delay=delay), "gossip", streams)
    draws.open_slot(1, 0.0)
    keys, attempts = (8, 9), (0, 1, 65_535, 65_536, 65_537, 131_072, 2**32)
    drawn = {next(iter(draws.draws_of([0], key, attempt, 0.0)[0])) for key in keys for attempt in attempts}
    assert len(drawn) == len(keys) * len(attempts)
