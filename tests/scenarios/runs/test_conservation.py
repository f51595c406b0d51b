"""Conservation of messages by kind, from the tables of a run: each arrived, was lost, jammed or given up, or is in flight."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.peer_training import EVERY_PROTOCOL

ENDS = ("delivered", "lost", "jammed", "aborted", "in_flight")
LAW = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.4}
TROUBLE: dict[str, Any] = {
    "name": "trouble",
    "rounds": 500,
    "time_limit_s": 13.7,
    "clients": {"count": 6},
    "compute": {"delay": LAW},
    "network": {
        "server": "root",
        "clients": "leaves",
        "generator": {"kind": "tree", "fan_out": [2, 3], "level_bytes_per_s": [6000.0, 5000.0], "level_delay_s": [0.1, 0.01]},
        "links": [{"name": "root-root.0", "channel": {"kind": "bernoulli", "success": 0.8}}],
        "outages": [{"name": "digger", "links": ["root.1-root.1.0"], "mean_up_s": 5.0, "mean_down_s": 0.5}],
    },
    "jammers": [{"name": "truck", "law": {"kind": "random"}, "cables": "all", "dwell_s": 0.7}],
    "output": {"transfers_table": True},
}
"""Six clients behind cables of which one loses transfers, one is cut at times, and one at a time is jammed."""
BYTES = {"payload": {"down_bytes": 700, "up_bytes": 1300}, "policy": {"kind": "all"}}
STAR = BYTES | {"server": {"per_round": 6, "when_short": "proceed"}}
WORLDS: dict[str, dict[str, Any]] = {
    "star": STAR,
    "star, deadline": BYTES | {"server": STAR["server"] | {"deadline_s": 1.1, "stragglers": "cancel"}},
    "star, clients asked first": BYTES
    | {"server": STAR["server"] | {"per_round": 2, "deadline_s": 4.0, "stragglers": "cancel"}, "probe": {"deadline_s": 0.6}}
    | {"policy": {"kind": "fedcs", "round_s": 4.0, "asked": 1.0, "uploads": "parallel"}},
    "tiers": BYTES
    | {"server": STAR["server"] | {"per_round": 2}}
    | {"edges": {"tiers": [{"name": "town", "nodes": ["root.0", "root.1"], "nearest": "delay", "rounds": 2}]}},
    **{
        kind: {
            "payload": {"up_bytes": 900},
            "peers": {"topology": {"kind": "complete"}},
            "output": {"transfers_table": True, "messages_table": True},
            "server": {"kind": "peers", "protocol": {"kind": kind} | keys},
        }
        for kind, keys in EVERY_PROTOCOL.items()
    },
}


def ends(outcomes: Any, causes: Any) -> dict[str, int]:
    """Return how many messages ended in which way; those that a jammer destroyed count as jammed, not as lost."""
    found = Counter("jammed" if cause == "jammed" else str(one) for one, cause in zip(outcomes, causes, strict=True))
    assert set(found) <= set(ENDS)
    return {end: found[end] for end in ENDS}


def ends_of_parts(rows: Any, start: str, following: str) -> dict[str, int]:
    """Return the ends of one message of each attempt that sent it at `start`; it arrived if what is `following` began.

    Attempts that are late are cancelled in these scenarios, with what they send.
    """
    sent = rows[rows[start].notna()]
    arrived = sent[following].notna() if following != "outcome" else sent["outcome"] == "delivered"
    outcomes = sent["outcome"].astype(str).replace("late", "aborted")
    return ends(np.where(arrived, "delivered", outcomes), sent["cause"].where(~arrived))


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("name", WORLDS)
def test_messages_of_each_kind_balance(name: str, tmp_path: Path) -> None:
    run(parse(TROUBLE | WORLDS[name]), tmp_path / "run")
    tables = {path.stem: pq.read_table(path).to_pandas() for path in (tmp_path / "run").glob("*.parquet")}
    transfers = tables["transfers"]
    found = {kind: ends(rows["outcome"], rows["cause"]) for kind, rows in transfers.groupby("kind")}
    if "messages" in tables:
        sent = {"peers": ends(tables["messages"]["outcome"], tables["messages"]["cause"])}
    else:
        attempts = [tables["clients"], *([tables["edges"]] if "edges" in tables else [])]
        nexts = ["compute_start_s", "term_start_s"]
        models = [ends_of_parts(rows, "download_start_s", then) for rows, then in zip(attempts, nexts, strict=False)]
        updates = [ends_of_parts(rows, "upload_start_s", "outcome") for rows in attempts]
        sent = {"model": dict(sum(map(Counter, models), Counter())), "update": dict(sum(map(Counter, updates), Counter()))}
        if "probes" in tables:
            # A question on the way down and an answer on the way up are messages of one kind.
            rows = tables["probes"]
            questions = ends_of_parts(rows, "download_start_s", "compute_start_s")
            sent["probe"] = dict(Counter(questions) + Counter(ends_of_parts(rows, "upload_start_s", "outcome")))
    for kind, expected in sent.items():
        assert found[kind] == {end: expected.get(end, 0) for end in ENDS}, kind
        assert min(found[kind]["jammed"], found[kind]["delivered"]) > 0


@pytest.mark.parametrize("name", ["star", "star, deadline", "tiers"])
def test_each_sending_of_a_lost_message_is_a_transfer(name: str, tmp_path: Path) -> None:
    again = {"max_resends": 2, "resend_after_s": 0.05}
    tables = TROUBLE | WORLDS[name] | {"downlink": again, "uplink": again}
    if name == "tiers":
        tables["edges"] = WORLDS[name]["edges"] | {"downlink": again, "uplink": again}
    run(parse(tables), tmp_path / "run")
    sent = {path.stem: pq.read_table(path).to_pandas() for path in (tmp_path / "run").glob("*.parquet")}
    senders = [sent["clients"], *([sent["edges"]] if name == "tiers" else [])]
    arrivals = {"model": [rows[then].notna() for rows, then in zip(senders, ("compute_start_s", "term_start_s"), strict=False)]}
    arrivals["update"] = [rows["outcome"] == "delivered" for rows in senders]
    sizes = {"model": ("bytes_down", [700, 700]), "update": ("bytes_up", [1300, 700])}
    for kind, (column, bytes_each) in sizes.items():
        sendings = sum(rows[column].sum() // size for rows, size in zip(senders, bytes_each, strict=False))
        outcomes = sent["transfers"].loc[sent["transfers"]["kind"] == kind, "outcome"].value_counts()
        assert outcomes.sum() == sendings > 1.05 * sum((rows[column] > 0).sum() for rows in senders)
        assert outcomes["delivered"] == sum(map(sum, arrivals[kind]))
