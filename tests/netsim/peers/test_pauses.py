"""Messages that wait to be sent again are part of a saved state."""

from __future__ import annotations

from tests.helpers.peer_training import protocol, study
from tests.helpers.random_worlds import built, taken_up

LOSSY = {"topology": {"kind": "ring"}, "channel": {"kind": "bernoulli", "success": 0.5}}


def test_a_pause_goes_on_after_a_resume() -> None:
    tables = study(peers=LOSSY, server=protocol(retry_s=0.7), compute={"delay": {"kind": "constant", "value_s": 1.0}})
    _, state = taken_up(lambda: built(tables), 4)
    waiting = [one for one in state["server"]["loop"]["dispatch"]["transport"]["flying"] if one["stage"] == 3]
    assert waiting
