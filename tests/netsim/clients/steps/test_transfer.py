"""Transfers between server and clients: the law that holds for a message is the one in force as it begins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.scripted import recorded


@pytest.mark.parametrize("link", ["downlink", "uplink"])
def test_a_change_of_losses_in_mid_transfer_holds_for_transfers_that_begin_after_it(link: str) -> None:
    def script(world: Any) -> Any:
        yield world.until_time(1.0)
        world.change(f"{link}.channel", success=0.0)

    tables: dict[str, Any] = {
        "name": "losses",
        "rounds": 2,
        "clients": {"count": 2},
        "server": {"per_round": 2},
        "policy": {"kind": "all"},
        link: {"delay": {"kind": "constant", "value_s": 2.0}, "channel": {"kind": "bernoulli", "success": 1.0}},
    }
    rows = recorded(tables, script)
    assert [(row.round, row.outcome) for row in rows.updates] == [(1, "delivered")] * 2 + [(2, "lost")] * 2
