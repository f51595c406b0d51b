"""What clients keep from one participation to the next is held against its limit before the run."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.learning import client_state
from scenarios.wiring.learning.client_state import check_client_state
from scenarios.wiring.simulation import build

# 784 x 10 weights and 10 biases.
NUMBERS = 7850
EACH = 4 * NUMBERS
BASE: dict[str, Any] = {
    "name": "kept",
    "rounds": 200,
    "clients": {"count": 1000},
    "server": {"per_round": 10},
    "policy": {"kind": "random"},
    "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
    "learner": {
        "data": {"kind": "mnist"},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "client_state_bytes": 600 * EACH,
    },
}
SCAFFOLD = ("learner.aggregation", {"kind": "scaffold"})


def told(*changes: tuple[str, Any]) -> list[str]:
    cautions = check_client_state(parse(override(BASE, changes)), None)
    assert all(caution.name == "client-state" for caution in cautions)
    return [caution.text for caution in cautions]


@pytest.mark.parametrize(
    "changes",
    [
        [SCAFFOLD],
        [("learner.aggregation", {"kind": "feddyn"})],
        [("payload.compression", {"kind": "top-k", "share": 0.1})],
        [("learner.optimizer", {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9}), ("learner.optimizer_state", "kept")],
    ],
)
def test_more_vectors_than_may_be_kept_are_warned_of(changes: list[tuple[str, Any]]) -> None:
    assert told(*changes) == [
        f"learner.client_state_bytes = {600 * EACH}: each of 1,000 clients that may deliver keeps {EACH:,} bytes; once more than "
        "600 have delivered, the run ends; raise it, or use a smaller network or fewer clients"
    ]
    assert told(*changes, ("learner.client_state_bytes", 1000 * EACH)) == []


def test_adam_keeps_two_vectors() -> None:
    adam = [("learner.optimizer", {"kind": "adam", "learning_rate": 0.1}), ("learner.optimizer_state", "kept")]
    assert f"keeps {2 * EACH:,} bytes; once more than 300 have" in told(*adam)[0]


def test_nothing_is_kept_and_nothing_said() -> None:
    assert told() == []
    assert check_client_state(parse({key: table for key, table in BASE.items() if key != "learner"}), None) == []


def test_as_many_clients_as_can_be_selected() -> None:
    assert told(SCAFFOLD, ("rounds", 60)) == []  # 60 rounds of 10
    assert "of 610 clients" in told(SCAFFOLD, ("rounds", 61))[0]
    # Who is sent the model as others end is not bounded by the rounds.
    buffered = ("server", {"kind": "buffered", "concurrency": 10, "buffer": 5})
    top_k = ("payload.compression", {"kind": "top-k", "share": 0.1})
    assert "of 1,000 clients" in told(buffered, top_k, ("rounds", 10))[0]


def test_less_than_one_client_keeps_is_refused() -> None:
    assert told(SCAFFOLD, ("rounds", 1), ("learner.client_state_bytes", 10 * EACH)) == []
    with pytest.raises(UserError, match=rf"learner\.client_state_bytes = {EACH - 1}: less than the 31,400 bytes that one"):
        told(SCAFFOLD, ("learner.client_state_bytes", EACH - 1))


def test_what_the_machine_cannot_hold_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_state, "memory_bytes", lambda: 700 * EACH)
    (text,) = told(SCAFFOLD, ("learner.client_state_bytes", 10**9))
    assert "keeps 31,400 bytes, and this machine has 0.0205 GiB; it holds 700 of them at most, or use" in text


@pytest.mark.needs_torch
def test_a_network_of_ones_own_is_known_once_it_is_built() -> None:
    own = override(
        BASE,
        [
            SCAFFOLD,
            ("learner.data", {"kind": "digits", "samples": 1200}),
            ("learner.network", {"kind": "tests.helpers.own_learning:TwoLayers"}),
        ],
    )
    assert check_client_state(parse(own), None) == []
    made = build(parse(own))
    assert made.cautions == ()
    less = override(own, [("learner.client_state_bytes", 5 * 4 * made.parameters)])
    (caution,) = build(parse(less)).cautions
    assert "once more than 5 have" in caution.text
