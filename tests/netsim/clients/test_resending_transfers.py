"""Lost models, updates and probes that are sent again: times, bytes and energy by hand, shares by theory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import netsim
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

WORLD: dict[str, Any] = {
    "name": "again",
    "rounds": 1,
    "clients": {"count": 1},
    "server": {"per_round": 1},
    "policy": {"kind": "random"},
    "payload": {"down_bytes": 5, "up_bytes": 7},
    "downlink": {"delay": {"kind": "constant", "value_s": 0.25}},
    "compute": {"delay": {"kind": "constant", "value_s": 0.75}},
    "uplink": {"delay": {"kind": "constant", "value_s": 1.0}, "max_resends": 2, "resend_after_s": 0.5},
}
MAST = {"outages": [{"name": "mast", "from_s": 1.5, "to_s": 3.2}]}
"""It hits the upload over [1, 2) and its first resend over [2.5, 3.5), not the second over [4, 5)."""


def played(changes: dict[str, Any]) -> Any:
    return netsim.run(override(WORLD, changes))


def test_an_update_is_sent_again_after_each_loss() -> None:
    [row] = played(MAST).clients.to_dict("records")
    assert (row["upload_start_s"], row["upload_end_s"], row["outcome"]) == (1.0, 5.0, "delivered")
    assert (row["bytes_down"], row["bytes_up"]) == (5, 3 * 7)


@pytest.mark.parametrize(("resends", "end_s"), [(0, 2.0), (1, 3.5)])
def test_the_last_resend_may_be_lost(resends: int, end_s: float) -> None:
    run = played(MAST | {"uplink.max_resends": resends})
    [row] = run.clients.to_dict("records")
    assert (row["upload_start_s"], row["upload_end_s"], row["outcome"], row["cause"]) == (1.0, end_s, "lost", "mast")
    assert row["bytes_up"] == run.summary["totals"]["bytes_up"] == (resends + 1) * 7


def test_a_model_is_sent_again() -> None:
    mast = {"outages": [{"name": "mast", "from_s": 0.2, "to_s": 0.3}]}
    [row] = played(mast | {"downlink.max_resends": 1, "downlink.resend_after_s": 0.125}).clients.to_dict("records")
    assert (row["download_start_s"], row["download_end_s"], row["upload_start_s"]) == (0.0, 0.625, 1.375)
    assert (row["bytes_down"], row["bytes_up"], row["outcome"]) == (2 * 5, 7, "delivered")


def test_bytes_on_a_link_are_sent_again() -> None:
    link = {"uplink.shared": {"bandwidth_bytes_per_s": 14.0}, "uplink.delay": {"kind": "constant", "value_s": 0.5}}
    [row] = played(MAST | link).clients.to_dict("records")
    assert (row["upload_end_s"], row["bytes_up"]) == (5.0, 3 * 7)


def test_a_client_draws_idle_power_in_the_pauses() -> None:
    power = {"energy": {"idle_w": 1.0, "compute_w": 8.0, "send_w": 16.0, "receive_w": 4.0}}
    run = played(MAST | power)
    [row] = run.clients.to_dict("records")
    assert (row["receive_j"], row["compute_j"], row["send_j"]) == (0.25 * 4.0, 0.75 * 8.0, 3.0 * 16.0)
    assert run.summary["energy"]["total_j"] == pytest.approx(1.0 + 6.0 + 48.0 + 2 * 0.5 * 1.0)


def test_an_attempt_may_end_in_a_pause() -> None:
    late = played(MAST | {"server.deadline_s": 2.25, "server.stragglers": "cancel"})
    [row] = late.clients.to_dict("records")
    assert (row["upload_end_s"], row["outcome"], row["bytes_up"]) == (2.25, "late", 7)


def test_a_client_may_leave_in_a_pause() -> None:
    power = {"energy": {"idle_w": 0.0, "compute_w": 8.0, "send_w": 16.0, "battery": {"capacity_j": 6.0 + 16.0 + 8.0}}}
    [row] = played(MAST | power).clients.to_dict("records")
    # Idle in the pause over [2, 2.5); the battery is empty after half a second of the second sending.
    assert (row["upload_end_s"], row["outcome"], row["cause"], row["send_j"]) == (3.0, "aborted", "battery", 24.0)
    power["energy"]["idle_w"] = 32.0
    [row] = played(MAST | power).clients.to_dict("records")
    # It empties the battery in the pause, where 8 - 0.25 * 32 joules are left.
    assert (row["upload_end_s"], row["outcome"], row["send_j"]) == (2.25, "aborted", 16.0)


def test_a_client_keeps_its_sub_channel_while_it_sends_again() -> None:
    queue = {"clients.count": 2, "server.per_round": 2, "uplink.sub_channels": 1}
    mast = {"outages": [{"name": "mast", "clients": [0], "from_s": 1.5, "to_s": 3.2}]}
    rows = played(mast | queue).clients.set_index("client")
    assert rows["upload_start_s"].to_list() == [1.0, 5.0]
    assert rows["upload_end_s"].to_list() == [5.0, 6.0]


def test_each_sending_is_lost_by_itself() -> None:
    channel = {"channel": {"kind": "bernoulli", "success": 0.5}}
    many = {"clients.count": 4000, "server.per_round": 4000, "uplink": {**channel, "max_resends": 2}}
    rows = played(many).clients
    sendings = rows["bytes_up"] / 7
    # 1/2, 1/4 and 1/4 of the clients send once, twice and three times; an eighth of them in vain.
    assert sendings.value_counts(normalize=True).sort_index().to_list() == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
    assert (rows["outcome"] == "lost").mean() == pytest.approx(0.125, abs=0.02)


def test_each_sending_has_a_delay_of_its_own() -> None:
    law = {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}
    always_lost = {"delay": law, "channel": {"kind": "bernoulli", "success": 0.0}, "max_resends": 1}
    many = {"clients.count": 4000, "server.per_round": 4000, "uplink": always_lost}
    rows = played(many).clients
    took_s = (rows["upload_end_s"] - rows["upload_start_s"]).to_numpy()
    # A sum of two independent exponential durations has variance 2; twice the same duration would have 4.
    assert np.mean(took_s) == pytest.approx(2.0, abs=0.1)
    assert np.var(took_s) == pytest.approx(2.0, abs=0.25)


@pytest.mark.parametrize("per_round", [5, 50])
def test_without_losses_nothing_changes(per_round: int) -> None:
    law = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}
    many = {"clients.count": 60, "server.per_round": per_round, "server.first": per_round // 2, "rounds": 6}
    many |= {"uplink": {"delay": law}}
    once, again = played(many), played(many | {"uplink.max_resends": 3, "downlink.max_resends": 3})
    assert once.clients.equals(again.clients)
    assert once.rounds.equals(again.rounds)


def test_pauses_on_sub_channels_with_states_are_refused() -> None:
    channels = {"channels": {"count": 1}, "scheduler": {"kind": "random"}}
    with pytest.raises(UserError, match=r"uplink.resend_after_s = 0.5: leave it out: a client keeps its sub-channel"):
        build(parse(override(WORLD, channels)))
