"""Random combinations of sections, a part of the campaign; and that each account of the independent books finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.random_worlds import built
from tests.reliability import ledger, swarm
from tests.reliability.combinations import combination
from tests.reliability.ledger import Ledger, problems
from tests.reliability.metamorphic import complete
from tests.reliability.worlds import world_of

pytestmark = pytest.mark.needs_torch


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("number", range(3))
def test_a_combination_holds_what_all_must(number: int) -> None:
    found = swarm.checked(1, number, combination)
    assert found["kind"] == "good", found["about"]


@pytest.mark.slow
def test_more_combinations() -> None:
    found = dict(swarm.results(1, list(range(12)), combination))
    assert {number: result for number, result in found.items() if result["kind"] not in swarm.GOOD} == {}
    assert sum(result["kind"] == "good" for result in found.values()) > 7


def _ledger(server: str, **sections: str) -> Ledger:
    tables = world_of(server, sections)
    simulation, records = built(tables)
    simulation.run()
    simulation.close()
    return ledger.ledger_of_records(records, complete(tables))


def _put(
    table: str, column: str, value: Any, where: Callable[[dict[str, Any]], bool] = lambda row: True
) -> Callable[[Ledger], None]:
    """Return what puts a value, or a function of the old one, into the first row of a table that fits."""

    def change(book: Ledger) -> None:
        row = next(row for row in _rows(book, table) if where(row))
        row[column] = value(row[column]) if callable(value) else value

    return change


def _rows(book: Ledger, table: str) -> list[dict[str, Any]]:
    return book.rounds if table == "rounds" else book.clients if table == "clients" else book.others[table]


def _repeat_row(book: Ledger) -> None:
    book.clients.append(dict(book.clients[0]))


def _is_sent(row: dict[str, Any]) -> bool:
    return row["upload_start_s"] is not None


def _is_delivered(row: dict[str, Any]) -> bool:
    return bool(row["outcome"] == "delivered")


def _more(value: float) -> float:
    return value + 1


def _share_channel(book: Ledger) -> None:
    """Move an upload to the sub-channel and the time of another one."""
    first, second = [row for row in book.clients if _is_sent(row) and row["upload_end_s"] > row["upload_start_s"]][:2]
    second |= {name: first[name] for name in ("channel", "upload_start_s", "upload_end_s")}


def _upload_in_outage(book: Ledger) -> None:
    row = next(row for row in book.clients if row["client"] == 0 and _is_delivered(row))
    row |= {"upload_start_s": 1.6, "upload_end_s": 1.7}


WRONG: list[tuple[str, str, dict[str, str], Callable[[Ledger], None]]] = [
    ("attempts_end_once", "synchronous", {}, _repeat_row),
    ("attempts_end_once", "buffered", {}, _put("rounds", "in_flight", _more)),
    ("ends_fall_into_rounds", "semi-synchronous", {}, _put("rounds", "delivered", _more)),
    ("bytes_recounted", "synchronous", {"up": "own sizes"}, _put("clients", "bytes_up", _more, _is_sent)),
    ("bytes_recounted", "safa", {"up": "own sizes"}, _put("rounds", "bytes_up", _more)),
    ("bytes_recounted", "fl-fa", {"up": "own sizes"}, _put("rounds", "bytes_down", _more)),
    ("ages_recounted", "asynchronous", {}, _put("clients", "age_after_rounds", _more)),
    ("ages_recounted", "asynchronous", {}, _put("rounds", "age_variance", _more)),
    ("ages_recounted", "asynchronous", {}, _put("clients", "age_after_s", _more)),
    ("budgets_recounted", "synchronous", {"privacy": "on upload"}, _put("clients", "epsilon", _more, _is_sent)),
    ("budgets_recounted", "compass", {"privacy": "on delivery"}, _put("clients", "epsilon", None, _is_delivered)),
    ("budgets_recounted", "buffered", {"privacy": "on upload"}, _put("rounds", "max_leak", 99.0, lambda row: row["round"] == 8)),
    ("clients_do_one_thing", "safa", {}, _put("clients", "selected_s", -1.0, lambda row: row["round"] > 1)),
    ("channels_carry_one", "synchronous", {"channels": "round robin"}, _share_channel),
    ("channels_carry_one", "synchronous", {"up": "a queue and a bandwidth"}, _share_channel),
    ("outages_destroy", "synchronous", {"outages": "in seconds"}, _upload_in_outage),
    (
        "outages_destroy",
        "synchronous",
        {"outages": "in seconds"},
        _put("clients", "cause", "mast", lambda row: row["client"] == 1),
    ),
    ("presence_is_kept", "buffered", {"presence": "trace"}, _put("clients", "outcome_s", 1e5)),
    ("rounds_close_as_said", "deadline", {}, _put("rounds", "end_s", lambda end_s: end_s * 1.01)),
    ("rounds_close_as_said", "first n", {}, _put("rounds", "end_s", lambda end_s: end_s * 1.01)),
    ("rounds_close_as_said", "at least n", {}, _put("rounds", "end_s", lambda end_s: end_s * 1.01)),
    ("rounds_close_as_said", "semi-synchronous", {}, _put("rounds", "end_s", lambda end_s: end_s * 1.01)),
    ("rounds_close_as_said", "buffered", {}, _put("rounds", "delivered", _more)),
    ("joules_are_watts_times_seconds", "synchronous", {"energy": "metering"}, _put("clients", "compute_j", _more)),
    ("joules_are_watts_times_seconds", "synchronous", {"energy": "metering"}, _put("rounds", "idle_j", _more)),
    (
        "constant_links_take_their_time",
        "deadline",
        {"up": "own bandwidth"},
        _put("clients", "upload_end_s", _more, _is_delivered),
    ),
    ("versions_grow", "synchronous", {}, _put("clients", "version", 99)),
    (
        "jammers_hit_what_they_jam",
        "synchronous",
        {"jammers": "random, in seconds"},
        _put("clients", "jammed", True, _is_delivered),
    ),
    ("messages_end", "fl-da", {"peers": "messages one by one"}, _put("messages", "end_s", -1.0)),
]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("account", "server", "sections", "change"), WRONG)
def test_each_account_finds_what_is_wrong(
    account: str, server: str, sections: dict[str, str], change: Callable[[Ledger], None]
) -> None:
    book = _ledger(server, **sections)
    assert problems(book) == []
    change(book)
    assert account in {problem.partition(":")[0] for problem in problems(book)}


def test_each_account_is_tried() -> None:
    assert {case[0] for case in WRONG} == {account.__name__ for account in ledger.ACCOUNTS}
