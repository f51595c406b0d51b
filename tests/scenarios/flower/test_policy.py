"""A policy of netsim chooses the nodes that an app's Grid names: when, out of which, and what it learns.

A node answers after 6 s, 16 s, 26 s, 36 s: download 1 s, work 2 s and 10 s more at each next node, upload 3 s.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg

import netsim
from models.policies.protocols import NoMemory, NoProbes
from netsim.core.protocols import Selection
from tests.golden.cases import INPUTS
from tests.helpers.flower import client, request, run, server, weights_app, world


class InTurn(NoMemory, NoProbes):
    """Selects so many clients, the next ones each time; keeps what it sees."""

    needs_updates = False
    seen: ClassVar[list[Any]] = []

    def __init__(self, *, clients: int, per_round: int) -> None:
        self._count, self._per_round, self._next = clients, per_round, 0
        self.seen.clear()

    def select(self, view: netsim.RoundView) -> Any:
        self.seen.append((view.round, view.time_s, np.flatnonzero(view.selectable).tolist()))
        order = np.roll(np.arange(self._count), -self._next)
        self._next += self._per_round
        return order[view.selectable[order]][: self._per_round]

    def observe(self, outcome: netsim.RoundOutcome) -> None:
        latencies = zip(outcome.clients.tolist(), outcome.latency_s.tolist(), outcome.censored.tolist(), strict=True)
        self.seen.append((outcome.round, outcome.start_s, outcome.end_s, list(latencies), outcome.reports.loss.tolist()))


class ByLoss(InTurn):
    """One that reads losses."""

    needs_losses = True


class Stepping(InTurn):
    """One that says how much each client trains."""

    def select(self, view: netsim.RoundView) -> Any:
        chosen = super().select(view)
        return Selection(chosen, np.full(len(chosen), 3))


class Failing(InTurn):
    """One that raises as it learns."""

    def observe(self, outcome: netsim.RoundOutcome) -> None:
        raise RuntimeError("no more rounds")


def by(policy: str | type, per_round: int = 2) -> dict[str, Any]:
    kind = policy if isinstance(policy, str) else f"{__name__}:{policy.__name__}"
    return {"policy": {"kind": kind}, "flower": {"per_round": per_round}}


def test_a_selection_is_for_one_training_and_the_policy_learns_of_it_before_the_next() -> None:
    named = []

    def main(grid: Any, context: Any) -> None:
        for number in (1, 2):
            nodes = grid.get_node_ids()
            named.append(nodes)
            grid.send_and_receive([request(node, round=number) for node in nodes])
            grid.send_and_receive([request(node, "query", round=number) for node in grid.get_node_ids()])

    done = run(main, client(**dict.fromkeys(("train", "query"), lambda m, c: {"num-examples": 1})), clients=4, **by(InTurn))
    assert named == [[2, 3], [4, 5]]
    everyone, nothing = [0, 1, 2, 3], [pytest.approx(np.nan, nan_ok=True)] * 2
    assert InTurn.seen == [
        (1, 0.0, everyone),
        (1, 0.0, 16.0, [(0, 6.0, False), (1, 16.0, False)], nothing),
        # The queries of the first round go to the nodes that train next, and take 36 s.
        (2, 16.0, everyone),
        (2, 16.0, 88.0, [(2, 26.0, False), (3, 36.0, False)], nothing),
        (3, 88.0, everyone),
    ]
    by_kind = done.clients.groupby("kind")["client"].apply(list).to_dict()
    assert by_kind == {"train": [0, 1, 2, 3], "query": [2, 3, 0, 1]}
    assert done.summary["policy"].endswith("InTurn")


def test_nodes_at_work_are_not_chosen_and_what_is_late_or_lost_is_told_as_it_ends() -> None:
    def main(grid: Any, context: Any) -> None:
        for number in (1, 2, 3):
            grid.send_and_receive([request(node, round=number) for node in grid.get_node_ids()], timeout=20.0)
        time.sleep(100.0)
        grid.get_node_ids()

    run(main, clients=3, **by(InTurn))
    everyone = [0, 1, 2]
    chosen = [one for one in InTurn.seen if len(one) == 3]
    assert chosen == [(1, 0.0, everyone), (2, 16.0, everyone), (3, 36.0, [0, 1]), (4, 152.0, everyone)]
    # The second selection is 2 and 0, of which 2 answers at 42 s; the third one, 1 and 0, answers at 52 s and 42 s.
    assert [one[3] for one in InTurn.seen if len(one) == 5] == [
        [(0, 6.0, False), (1, 16.0, False)],
        [(0, 6.0, False)],
        [(2, 26.0, False), (0, 6.0, False), (1, 16.0, False)],
    ]


def test_a_selection_without_enough_nodes_is_made_again_as_more_are_there(tmp_path: Path) -> None:
    presence = tmp_path / "presence.csv"
    presence.write_text("client,on_s,off_s\n0,0,1000\n1,50,1000\n2,0,30\n", encoding="utf-8")
    named = []

    def main(grid: Any, context: Any) -> None:
        for seconds in (0.0, 40.0, 20.0):
            time.sleep(seconds)
            named.append(list(grid.get_node_ids()))
            named.append(list(grid.get_node_ids()))
        grid.send_and_receive([request(2)])

    run(main, availability={"kind": "trace", "path": str(presence)}, **by(InTurn))
    # Node 4 leaves at 30 s, and node 3 comes at 50 s; nothing changes within an instant.
    assert named == [[2, 4], [2, 4], [2], [2], [2, 3], [2, 3]]


def test_a_round_whose_nodes_the_app_knows_already_is_told_as_it_closes() -> None:
    def main(grid: Any, context: Any) -> None:
        nodes = grid.get_node_ids()
        for number in (1, 2):
            grid.send_and_receive([request(node, round=number) for node in nodes])

    run(main, **by(InTurn, 1))
    assert [one[0] for one in InTurn.seen] == [1, 1, 2]


def test_several_training_messages_of_a_node_are_one_entry() -> None:
    def main(grid: Any, context: Any) -> None:
        (node,) = grid.get_node_ids()
        for _ in range(2):
            grid.send_and_receive([request(node)])

    run(main, **by(InTurn, 1))
    assert InTurn.seen[-1][3] == [(0, 12.0, False)]


def test_an_exception_of_a_policy_is_not_one_of_the_app() -> None:
    def main(grid: Any, context: Any) -> None:
        for number in (1, 2):
            grid.send_and_receive([request(node, round=number) for node in grid.get_node_ids()])

    with pytest.raises(ValueError, match=r"^policy.kind = '.*:Failing': RuntimeError: no more rounds, .*test_policy\.py, line"):
        run(main, **by(Failing))


def test_losses_are_those_that_replies_report() -> None:
    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(node) for node in grid.get_node_ids()])

    run(main, client(train=lambda message, context: {"train_loss": 0.5, "num-examples": 1}), **by(ByLoss))
    assert ByLoss.seen[-1][4] == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"flower\.loss_key = None: .* node 2 at 1 s reports none; it has num-examples;"):
        run(main, **by(ByLoss))


@pytest.mark.parametrize("policy", ["random", "pause", "pisces"])
def test_strategies_of_flower_train_at_the_nodes_that_a_policy_names(policy: str) -> None:
    def main(grid: Any, context: Any) -> None:
        FedAvg().start(grid=grid, initial_arrays=ArrayRecord([np.zeros(3)]), num_rounds=3)

    keys = {"alpha": 1.0, "gamma": 1.0, "tau_min_s": 1.0} if policy == "pause" else {}
    tables = world(5) | {"policy": {"kind": policy} | keys, "flower": {"app": "x", "per_round": 2}}
    done = netsim.run(tables, app=(server(main), weights_app()))
    trained = done.clients[done.clients["kind"] == "train"].groupby("round")["client"].nunique()
    assert trained.tolist() == [2, 2, 2]
    # The nodes that evaluate a model train the next one.
    for number in (1, 2):
        rounds = done.clients.groupby(["round", "kind"])["client"].apply(sorted)
        assert rounds[number, "evaluate"] == rounds[number + 1, "train"]
    again = netsim.run(tables, app=(server(main), weights_app()))
    assert again.clients["client"].tolist() == done.clients["client"].tolist()


def test_an_app_in_a_folder_beside_a_policy_is_checked_and_run() -> None:
    app = {"app": str(INPUTS / "flower-app"), "per_round": 1}
    done = netsim.run(world() | {"flower": app, "policy": {"kind": "fastest"}})
    assert set(done.clients["client"]) == {0}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"policy": {"kind": "random"}}, "flower.per_round = null: must be given beside [policy]"),
        ({"flower": {"per_round": 2}}, "flower.per_round = 2: is of a policy of netsim; give [policy], or leave it out"),
        (by("random", 4), "flower.per_round = 4: must be at most the 3 clients of clients.count"),
        (by("clustered-by-similarity"), "chooses by the content of updates, which stays within the app"),
        (by("refl") | {"policy": {"kind": "refl", "round_s": 5.0}}, "beside [flower] the app alone sends messages"),
        (by("oort") | {"compute": {"samples_per_s": 5.0}}, "goes by expected latencies, which depend on bytes and samples"),
        (by("fastest") | {"uplink": {"bandwidth_bytes_per_s": 5.0}}, "goes by expected latencies"),
        (by("round-robin"), "learns from opinions"),
        (by(Stepping), "expected clients alone: the application decides their steps; fix its select"),
        (by(Failing), "Failing': RuntimeError: no more rounds"),
        (by("random") | {"metrics": {"reward": {"kind": "pause-reward", "tau_min_s": 1.0}}}, "rounds that wait for m clients"),
    ],
)
def test_policies_that_do_not_go_with_an_app(tables: dict[str, Any], words: str) -> None:
    def main(grid: Any, context: Any) -> None:
        with suppress(Exception):
            grid.send_and_receive([request(node) for node in grid.get_node_ids()])

    with pytest.raises(ValueError, match=words.replace("[", r"\[").replace(".", r"\.")) as caught:
        run(main, **tables)
    assert str(caught.value).count("\n") == 0
