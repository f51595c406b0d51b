"""A server of the user's own that calls the engine wrongly, or answers it wrongly: one message names it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

MODULE = """
import ast

import numpy as np

from netsim.peers.training.d_psgd import DPsgd
from netsim.servers.rounds.close import WaitRule, WhenEnded
from netsim.servers.rounds.dispatch import PolicyDispatch
from netsim.servers.rounds.loop import Instrument, RoundLoop
from netsim.servers.rounds.round_server import RoundServer

PARTS = {"dispatch": PolicyDispatch, "close": WhenEnded, "rule": WaitRule, "instrument": Instrument}


class Server:
    def __init__(self, *, part: str = "", method: str = "", answer: str = ""):
        self.wrong = {**PARTS}
        if part:
            value = ast.literal_eval(answer)
            self.wrong[part] = type("Wrong", (PARTS[part],), {method: lambda *arguments: value})

    def compose(self, world):
        channels, pool = world.channels_and_pool(2)
        parts = self.wrong
        loop = RoundLoop(
            pool=pool,
            dispatch=parts["dispatch"](pool=pool, rule=world.selection(pool, 2), learner=world.learner),
            close=parts["close"](pool=pool, rule=parts["rule"]()),
            learner=world.learner,
            instruments=[parts["instrument"]()],
        )
        return RoundServer(loop=loop)


class Protocol(DPsgd):
    # Calls its host wrongly, in the second own round of a peer.

    def __init__(self, *, call: str, arguments: str):
        super().__init__()
        self.call, self.arguments = call, ast.literal_eval(arguments)

    def on_trained(self, peer, model):
        if self.host.round[peer] == 2:
            getattr(self.host, self.call)(*self.arguments)
        super().on_trained(peer, model)


class Empty:
    pass


class Composed:
    def __init__(self, *, wrong: str):
        self.wrong = wrong

    def compose(self, world):
        wrong = self.wrong
        channels, pool = world.channels_and_pool(2, refill=True, places=3) if wrong == "places" else world.channels_and_pool(2)
        selecting = world.selection(pool, "two" if wrong == "per_round" else 2)
        if wrong == "client":
            pool.start(1, np.array([7]), 0)
        if wrong == "past":
            pool.clock.call_at(-1.0, print)
        if wrong == "later":
            pool.clock.call_in(0.5, lambda payload: pool.start(1, np.array([7]), 0))
        dispatch = Empty() if wrong == "dispatch" else PolicyDispatch(pool=pool, rule=selecting, learner=world.learner)
        close = Empty() if wrong == "close" else WhenEnded(pool=pool, rule="soon" if wrong == "rule" else WaitRule())
        instruments = [Empty()] if wrong == "instrument" else []
        loop = RoundLoop(pool=pool, dispatch=dispatch, close=close, learner=world.learner, instruments=instruments)
        return RoundServer(loop=None if wrong == "loop" else loop)
"""
TABLES: dict[str, Any] = {
    "name": "wrong",
    "rounds": 3,
    "clients": {"count": 4},
    "policy": {"kind": "random"},
    "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
}
ANSWERS = ("None", "'text'", "3.5", "-1", "[1, 'x']", "{'a': 1}", "(9, 99)")
METHODS = {
    "dispatch": ("wait", "prepare", "choose", "send", "tell", "held_versions", "state_dict"),
    "close": ("open", "wait", "collect", "pending", "amend", "_on_end"),
    "rule": ("closes", "next_look_s", "name"),
    "instrument": ("open", "columns", "counts"),
}
"""Methods of the parts of a server, some of which return nothing, so that all answers will do."""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "wrong_own.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("wrong_own", None)


def message(server: dict[str, Any], tables: dict[str, Any] = TABLES) -> str:
    """The message of a run in memory with this server; empty if it ends well. Any other exception passes."""
    scenario = parse(tables | {"server": server})
    try:
        run_in_memory(build(scenario), scenario)
    except UserError as error:
        return str(error)
    return ""


def wrong(part: str, method: str, answer: str) -> str:
    return message({"kind": "wrong_own:Server", "part": part, "method": method, "answer": answer})


def test_without_a_fault_it_runs() -> None:
    assert message({"kind": "wrong_own:Server"}) == ""
    assert message({"kind": "wrong_own:Composed", "wrong": ""}) == ""


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("part", "method"), [(part, method) for part, methods in METHODS.items() for method in methods])
def test_no_answer_of_its_parts_ends_in_a_traceback(part: str, method: str) -> None:
    for answer in ANSWERS:
        text = wrong(part, method, answer)
        assert text == "" or text.startswith("server.kind = 'wrong_own:Server': "), (answer, text)
        assert "\n" not in text


@pytest.mark.parametrize(
    "fault", ["places", "per_round", "client", "past", "later", "dispatch", "close", "rule", "instrument", "loop"]
)
def test_no_wrong_call_of_compose_ends_in_a_traceback(fault: str) -> None:
    text = message({"kind": "wrong_own:Composed", "wrong": fault})
    assert text.startswith("server.kind = 'wrong_own:Composed'"), text
    assert "\n" not in text


PEERS: dict[str, Any] = {
    "name": "peers",
    "rounds": 4,
    "clients": {"count": 4},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 0.5}},
    "peers": {"topology": {"kind": "ring"}},
}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("train", "(9,)"),
        ("train", "('x',)"),
        ("train", "(0, 'model')"),
        ("send_model", "(0, [99], 1, 0)"),
        ("send_model", "(0, [0], 1, 'model')"),
        ("send_model", "(0, [0], 'key', 0)"),
        ("send_note", "(0, [0], 7, -5)"),
        ("send_note", "(0, [0], 7, 'many')"),
        ("call_in", "(-1.0, 0, 1)"),
        ("call_in", "('soon', 0, 1)"),
        ("combine", "([0], 'x')"),
        ("combine", "(['a', 'b'], [1.0])"),
        ("finish", "(9, 0)"),
        ("finish", "(0, 'model')"),
        ("finish", "(0, None)"),
    ],
)
def test_no_wrong_call_of_a_protocol_ends_in_a_traceback(call: str, arguments: str) -> None:
    protocol = {"kind": "wrong_own:Protocol", "call": call, "arguments": arguments}
    text = message({"kind": "peers", "protocol": protocol}, PEERS)
    # Without a [learner] models are not looked at.
    if text or (call != "combine" and "model" not in arguments):
        assert text.startswith("server.protocol.kind = 'wrong_own:Protocol': ")
        assert "\n" not in text
