"""Every cell of the table in docs/servers.md: the feature shows in the records, the books balance, a saved state goes on; or the
scenario is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import copied, same
from tests.helpers.servers import CHANNELS, SERVERS, scenario_of
from tests.helpers.suites import each_nth

PAGE = Path(__file__).parents[3] / "docs" / "servers.md"
ENDING: dict[str, Any] = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [100.0], "after_end": "stop"}
JAMMER: dict[str, Any] = {"name": "jammer", "law": {"kind": "random"}, "at_once": 4, "dwell_s": 0.5}
LEVELS: dict[str, Any] = {"levels_bytes_per_s": [40.0, 200.0], "mean_stay_s": [0.5, 0.5]}
FEATURES: dict[str, tuple[dict[str, Any], Callable[[MemoryRecorder, Any], bool]]] = {
    "losses on the clients' own links": (
        {"uplink.channel": {"kind": "bernoulli", "success": 0.7}, "downlink.channel": {"kind": "bernoulli", "success": 0.8}},
        lambda records, simulation: _caused(records, "channel"),
    ),
    "block fading of the own links": (
        {"uplink.channel": {"kind": "block-fading", "distance_km": 0.6, "threshold_db": 10.0}},
        lambda records, simulation: _caused(records, "channel"),
    ),
    "one queue for n sub-channels": (
        {"uplink.sub_channels": 1},
        lambda records, simulation: any(row.upload_start_s > row.compute_end_s for row in records.updates),
    ),
    "a bandwidth that uploads share": (
        {"uplink.shared": {"bandwidth_bytes_per_s": 100.0}, "payload": {"down_bytes": 20, "up_bytes": 20}},
        # Alone an upload takes 0.2 s at this bandwidth, beside the delay of the own link.
        lambda records, simulation: any(row.upload_end_s - row.upload_start_s > 0.25 for row in records.updates),
    ),
    "a bandwidth that changes in time": (
        {
            "downlink.bandwidth": {"kind": "gauss-markov", "mean_bytes_per_s": 200.0, "std_bytes_per_s": 80.0, "memory": 0.8},
            "uplink.bandwidth": {"kind": "trace", "time_s": [0.0, 0.5, 0.8], "bytes_per_s": [200.0, 20.0, 0.0], "end_s": 1.0},
            "payload": {"down_bytes": 20, "up_bytes": 20},
        },
        # At 200 bytes a second throughout an upload takes 0.1 s, beside the delay of 0.04 s.
        lambda records, simulation: any(row.upload_end_s - row.upload_start_s > 0.2 for row in records.updates)
        and len({row.download_end_s - row.download_start_s for row in records.updates}) > 5,
    ),
    "traces of bandwidth that end": (
        {
            "downlink.bandwidth": {**ENDING, "end_s": 5.0},
            "uplink.bandwidth": {**ENDING, "end_s": 3.0},
            "payload": {"down_bytes": 20, "up_bytes": 20},
        },
        lambda records, simulation: _caused(records, "trace-end"),
    ),
    "a shared bandwidth that changes in time": (
        {
            "downlink.shared": {"bandwidth": {"kind": "markov-levels", **LEVELS}},
            "uplink.shared": {"bandwidth": {"kind": "markov-levels", **LEVELS}},
            "uplink.bandwidth": {"kind": "trace", "time_s": [0.0, 0.5], "bytes_per_s": [200.0, 40.0], "offset": "random"},
            "payload": {"down_bytes": 20, "up_bytes": 20},
        },
        lambda records, simulation: any(row.upload_end_s - row.upload_start_s > 0.3 for row in records.updates)
        and any(row.download_end_s - row.download_start_s > 0.3 for row in records.updates),
    ),
    "lost models and updates sent again": (
        {
            "downlink.channel": {"kind": "bernoulli", "success": 0.6},
            "downlink.max_resends": 2,
            "downlink.resend_after_s": 0.1,
            "uplink.channel": {"kind": "bernoulli", "success": 0.6},
            "uplink.max_resends": 2,
            "payload": {"down_bytes": 20, "up_bytes": 30},
        },
        lambda records, simulation: {row.bytes_down for row in records.updates if row.compute_start_s > 0} >= {20, 40, 60}
        and {row.bytes_up for row in records.updates if row.outcome == "delivered"} >= {30, 60}
        and all(row.bytes_down == 60 for row in records.updates if row.outcome == "lost" and not row.bytes_up),
    ),
    "outages of groups of clients": (
        {"outages": [{"name": "mast", "clients": [0, 3, 6, 8], "mean_up_s": 1.0, "mean_down_s": 1.0}]},
        lambda records, simulation: _caused(records, "mast"),
    ),
    "sub-channels with states, assigned by a scheduler": (
        CHANNELS,
        lambda records, simulation: _caused(records, "sub-channel") and all(row.channel is not None for row in records.updates),
    ),
    "jammers of sub-channels": (
        CHANNELS | {"jammers": [JAMMER | {"jams": "channels"}]},
        lambda records, simulation: _caused(records, "jammed") and _books_jams(records),
    ),
    "jammers of the clients' own links": (
        {"jammers": [JAMMER | {"jams": "uplink"}, JAMMER | {"jams": "downlink", "name": "below"}]}
        | {"downlink.delay": {"kind": "constant", "value_s": 0.02}, "payload": {"down_bytes": 1, "up_bytes": 1}},
        lambda records, simulation: {row.bytes_up for row in records.updates if row.cause == "jammed"} == {0, 1}
        and {row.jammer for row in records.jams if row.hit} == {"jammer", "below"}
        and _books_jams(records),
    ),
    "contention on sub-channels": (
        CHANNELS | {"scheduler": {"kind": "random-access"}, "server.contention": True},
        lambda records, simulation: _caused(records, "collided") and _summed(records, "collided") > 0,
    ),
    "clients that come and go": (
        {"availability": {"kind": "markov", "mean_on_s": 2.0, "mean_off_s": 1.0}},
        lambda records, simulation: any(row.outcome == "aborted" for row in records.updates),
    ),
    "losses asked for before a selection": (
        {"policy": {"kind": "tests.helpers.asking:Highest"}, "probe.deadline_s": 0.5},
        lambda records, simulation: {row.outcome for row in records.probes} >= {"delivered", "late"}
        and sum(row.probes or 0 for row in records.rounds) == len(records.probes),
    ),
    "budgets of privacy that run out": (
        {"privacy": {"sensitivity": 0.1, "schedule": {"kind": "explicit", "epsilons": [3.0, 2.0]}}},
        lambda records, simulation: bool(simulation.server.clients.accountant.exhausted.any()),
    ),
}


def _caused(records: MemoryRecorder, cause: str) -> bool:
    return any(row.cause == cause for row in records.updates)


def _summed(records: MemoryRecorder, column: str) -> int:
    return sum(getattr(row, column) or 0 for row in records.rounds)


def _books_jams(records: MemoryRecorder) -> bool:
    """True if rounds have transmissions that were hit; if they lack dwells, these began after the last close."""
    return 0 < _summed(records, "jam_dwells") <= len(records.jams) and _summed(records, "jammed") > 0


def _cells() -> tuple[list[tuple[str, str, bool]], ...]:
    """Of each table of features: feature, column, whether it works."""
    tables: list[list[tuple[str, str, bool]]] = []
    kinds: list[str] = []  # of the table of features that is being read; none outside of one
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        first, *cells = [cell.strip() for cell in line.strip("| \n").split("|")]
        if not line.startswith("|"):
            kinds = []
        if not line.startswith("|") or not cells or cells[0].startswith("-"):
            continue
        if first == "feature":
            kinds = [re.sub(r" \(`.*", "", cell).strip("`") for cell in cells]
            tables.append([])
        elif kinds:
            feature = re.sub(r" \(`.*", "", first)
            tables[-1] += [(feature, kind, cell == "yes") for kind, cell in zip(kinds, cells, strict=True)]
    return tuple(tables)


CELLS, BESIDES = _cells()


def _tables(feature: str, kind: str) -> dict[str, Any]:
    return override(scenario_of(kind), FEATURES[feature][0])


def _built(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    return simulation, records


# Probes, opinions and messages between clients: the server, the table of their keys, and what they are sent over at first.
LINKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "probes": (
        "synchronous",
        "uplink",
        {
            "policy": {"kind": "tests.helpers.asking:Highest"},
            "probe.answer_bytes": 40,
            "payload": {"up_bytes": 20},
            "compute.delay": {"kind": "constant", "value_s": 2.0},
        },
    ),
    "opinions": (
        "fl-fa",
        "opinions",
        {
            "opinions.size_bytes": 20,
            "opinions.delay": {"kind": "constant", "value_s": 0.1},
            "output.messages_table": True,
        },
    ),
    "messages between clients": ("fl-da", "peers", {"belief.message_bytes": 20, "output.messages_table": True}),
}
OF_LINKS: dict[str, tuple[dict[str, Any], Callable[[list[float]], bool], str | None]] = {
    "losses and bursts": ({"channel": {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.4}}, any, "channel"),
    "sent again when lost": (
        {"channel": {"kind": "bernoulli", "success": 0.7}, "max_resends": 9, "resend_after_s": 0.3},
        lambda lasts_s: max(lasts_s) > 0.35,
        None,
    ),
    "outages of groups of clients": (
        {"outages": [{"name": "mast", "clients": [0, 1, 2, 3], "mean_up_s": 0.4, "mean_down_s": 0.4}]},
        any,
        "mast",
    ),
    "clients that come and go": ({"availability": {"kind": "markov", "mean_on_s": 2.0, "mean_off_s": 1.0}}, any, "away"),
    "a bandwidth of each client": ({"bandwidth_bytes_per_s": 80.0}, lambda lasts_s: min(lasts_s) >= 0.25, None),
    "a bandwidth that changes in time": (
        {"bandwidth": {"kind": "markov-levels", **LEVELS}},
        lambda lasts_s: max(lasts_s) - min(lasts_s) > 0.2,
        None,
    ),
    "change points of a bandwidth, in seconds": (
        {"bandwidth_bytes_per_s": 200.0, "changes": [{"at_s": 4.0, "bandwidth_bytes_per_s": 20.0}]},
        lambda lasts_s: min(lasts_s) < 0.25 and max(lasts_s) >= 1.0,
        None,
    ),
    "change points of a bandwidth, in rounds": (
        {"bandwidth_bytes_per_s": 200.0, "changes": [{"at_round": 5, "bandwidth_bytes_per_s": 20.0}]},
        lambda lasts_s: min(lasts_s) < 0.25 and max(lasts_s) >= 1.0,
        None,
    ),
    "traces of bandwidth that end": (
        {"bandwidth": {"kind": "trace", "time_s": [0.0], "bytes_per_s": [100.0], "end_s": 9.03, "after_end": "stop"}},
        any,
        "trace-end",
    ),
    "a bandwidth that all share": ({"shared": {"bandwidth_bytes_per_s": 150.0}}, lambda lasts_s: max(lasts_s) > 0.4, None),
    "jammers of these links": (
        {"jammers": [{"name": "jammer", "law": {"kind": "random"}, "at_once": 9, "dwell_s": 0.01}]},
        any,
        "jammed",
    ),
}


def _link_tables(feature: str, link: str) -> dict[str, Any]:
    kind, section, first = LINKS[link]
    changes = OF_LINKS[feature][0]
    apart = {"availability", "outages", "jammers"}
    given = {key if key in apart else f"{section}.{key}": value for key, value in changes.items()}
    if "jammers" in given:
        given["jammers"] = [jammer | {"jams": section} for jammer in given["jammers"]]
    return override(scenario_of(kind, rounds=6), first | given)


def test_the_table_names_every_feature_and_every_server() -> None:
    assert {(feature, kind) for feature, kind, _ in CELLS} == {(feature, kind) for feature in FEATURES for kind in SERVERS}


def _goes_on(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    """A run of `tables`, the same as one that is saved after 3 rounds and goes on, and whose books balance."""
    whole, expected = _built(tables)
    whole.run()
    first, _ = _built(tables)
    first.run(until_round=3)
    state = first.state_dict()
    second, records = _built(tables)
    second.load_state_dict(copied(state))
    second.run()
    assert repr(records.rounds) == repr(expected.rounds[3:])
    assert same(second.state_dict(), whole.state_dict())
    whole.close()
    counts = whole.server.counts()
    ends = sum(counts[name] for name in ("delivered", "lost", "late", "aborted", "in_flight"))
    assert counts["selected"] == len(expected.updates) == ends
    return whole, expected


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("feature", "kind"), each_nth(3, [cell[:2] for cell in CELLS if cell[2]]))
def test_the_feature_works(feature: str, kind: str) -> None:
    whole, expected = _goes_on(_tables(feature, kind))
    assert FEATURES[feature][1](expected, whole)


@pytest.mark.parametrize(("feature", "kind"), [cell[:2] for cell in CELLS if not cell[2]])
def test_what_makes_no_sense_is_refused(feature: str, kind: str) -> None:
    with pytest.raises(UserError):
        build(parse(_tables(feature, kind)))


def test_the_second_table_names_every_feature_of_all_links() -> None:
    assert [cell[:2] for cell in BESIDES] == [(feature, link) for feature in OF_LINKS for link in LINKS]
    lacking = [cell[:2] for cell in BESIDES if not cell[2]]
    assert not lacking


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(("feature", "link"), each_nth(2, [cell[:2] for cell in BESIDES if cell[2]]))
def test_the_feature_works_for_probes_and_opinions_and_between_clients(feature: str, link: str) -> None:
    _, records = _goes_on(_link_tables(feature, link))
    _, good, cause = OF_LINKS[feature]
    if link == "probes":
        assert good([row.upload_end_s - row.upload_start_s for row in records.probes if row.outcome == "delivered"])
        # A probe whose client goes away is aborted.
        causes = {"away" if row.outcome == "aborted" else row.cause for row in records.probes}
        assert cause is None or cause in causes
        return
    # A message that is sent again is another row.
    assert good([row.end_s - row.sent_s + row.resend for row in records.messages])
    assert cause is None or cause in {row.cause for row in records.messages}
    if link == "opinions":
        assert {row.target for row in records.messages} == {-1}
        assert (sum(row.opinions_missing or 0 for row in records.rounds) > 0) == (cause is not None)


