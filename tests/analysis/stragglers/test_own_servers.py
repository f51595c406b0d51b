"""Servers of a user's own: who held their rounds up, and their critical path, follow from what is recorded, not from names."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.stragglers.closers import closers
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import RunRecords, run_records
from tests.helpers.derivative_worlds import NOBODY_SELECTS, OWN, WORLD
from tests.helpers.longer_phases import played


def records(server: dict[str, Any], **tables: Any) -> RunRecords:
    return run_records(played(WORLD | {"server": server} | tables))


def by_hand(server: dict[str, Any], **tables: Any) -> RunRecords:
    """A run of two clients: downloads of 0.5 s, training of 1 and 3.0625 s, uploads of 0.25 s."""
    delays = {"downlink": 0.5, "compute": [1.0, 3.0625], "uplink": 0.25}
    laws = {name: {"delay": {"kind": "constant", "value_s": value_s}} for name, value_s in delays.items()}
    return records(server, clients={"count": 2}, policy={"kind": "all"}, **laws, **tables)


def assert_equal(one: RunRecords, other: RunRecords) -> None:
    pd.testing.assert_frame_equal(critical_path(one), critical_path(other))
    pd.testing.assert_frame_equal(closers(one), closers(other))


def test_a_server_put_together_again_has_the_same_path() -> None:
    own = records({"kind": OWN + "OwnSemiSynchronous", "chosen": 3, "length_s": 2.0})
    assert_equal(own, records({"kind": "semi-synchronous", "per_round": 3, "round_s": 2.0}))
    seconds = critical_path(own).assign(length_s=lambda path: path["end_s"] - path["start_s"]).groupby("phase")["length_s"].sum()
    assert seconds["compute"] > seconds["clock"] > 0.0
    assert seconds.sum() == pytest.approx(16.0)


def test_such_a_server_by_hand() -> None:
    # The last delivery that the second close takes in is that of client 1, which was sent the model as the run began.
    own = by_hand({"kind": OWN + "OwnSemiSynchronous", "chosen": 2, "length_s": 2.0}, rounds=2)
    path = critical_path(own)
    assert path[["client", "phase", "start_s", "end_s"]].fillna(-1).to_numpy().tolist() == [
        [1, "download", 0.0, 0.5],
        [1, "compute", 0.5, 3.5625],
        [1, "upload", 3.5625, 3.8125],
        [-1, "clock", 3.8125, 4.0],
    ]
    assert not path["exact"].any()


def test_the_name_of_a_parameter_changes_nothing() -> None:
    shared = {"per_round": 4, "grace_s": 0.7}
    assert_equal(
        records({"kind": OWN + "GraceByFirst", "first": 2, **shared}),
        records({"kind": OWN + "GraceByQuorum", "quorum": 2, **shared}),
    )


def test_only_the_time_after_the_delivery_that_counts_is_the_clocks() -> None:
    # The round waits for client 0, and half a second more.
    own = by_hand({"kind": OWN + "GraceByQuorum", "per_round": 1, "quorum": 1, "grace_s": 0.5}, rounds=1)
    path = critical_path(own)
    assert path[["phase", "start_s", "end_s"]].to_numpy().tolist()[-1] == ["clock", 1.75, 2.25]
    assert path["exact"].all()


def test_safa_without_a_deadline_names_none() -> None:
    server = {"kind": "safa", "per_round": 3}
    run = run_records(played(NOBODY_SELECTS | {"rounds": 60, "server": server}))
    assert set(run.rounds["close_rule"]) == {"all ended", "enough arrived"}
    assert set(run.rounds["closed_by"]) == {"end"}
    assert "clock" not in set(critical_path(run)["phase"])


def test_what_the_next_round_drops_has_missed_no_close() -> None:
    server = {"kind": "safa", "per_round": 4, "deadline_s": 1.5, "lag_tolerance": 1}
    run = run_records(played(NOBODY_SELECTS | {"rounds": 12, "server": server}))
    assert (run.attempts["outcome"] == "aborted").sum() > 5
    closes = closers(run)
    at_deadline = closes[closes["rule"] == "deadline"]
    # Attempts go on past a deadline, so that it waits for none of them.
    assert len(at_deadline) > 5
    assert (at_deadline["due"] == 0).all()
    assert (at_deadline["stretch_s"] == 0.0).all()
