"""Scenarios of training without a server, and what they leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from netsim.core.rows import UpdateRow
from netsim.simulation import Simulation
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built, copied

CONSTANT = {"kind": "constant", "value_s": 0.0}
EXPONENTIAL = {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}
COUNT = 6
LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 120, "test_samples": 60},
    "network": {"kind": "mlp", "hidden": [6]},
    "optimizer": {"kind": "sgd", "learning_rate": 0.2},
    "batch_size": 10,
}

EVERY_PROTOCOL: dict[str, dict[str, Any]] = {
    "d-psgd": {"timeout_s": 0.5},
    "matcha": {"timeout_s": 0.5},
    "one-peer": {"retry_s": 0.2, "timeout_s": 0.5},
    "gossip-learning": {"period_s": 1.0},
    "ad-psgd": {"bipartite": False, "timeout_s": 3.0},
    "choco": {"gamma": 0.3, "retry_s": 0.2},
    "epidemic": {"targets": 2, "timeout_s": 0.5},
    "push-sum": {"retry_s": 0.2, "timeout_s": 0.5},
}
"""Keys of each registered protocol that let peers go on where messages are lost."""


def study(**tables: Any) -> dict[str, Any]:
    """A ring of 5 peers that take 1 s on average, with a link's delay of 0.3 s on average."""
    scenario: dict[str, Any] = {
        "name": "peers",
        "rounds": 12,
        "clients": {"count": 5},
        "server": {"kind": "peers", "protocol": {"kind": "d-psgd"}},
        "peers": {"topology": {"kind": "ring"}, "delay": EXPONENTIAL | {"mean_excess_s": 0.3}},
        "compute": {"delay": EXPONENTIAL},
        "payload": {"up_bytes": 1000},
        "output": {"messages_table": True},
    }
    return scenario | tables


def protocol(**keys: Any) -> dict[str, Any]:
    """A `[server]` table with D-PSGD and further keys of it."""
    return {"kind": "peers", "protocol": {"kind": "d-psgd"} | keys}


def simulated(**tables: Any) -> tuple[Simulation, Any]:
    """The simulation of `study(**tables)` at its end, and its records."""
    simulation, records = built(study(**tables))
    simulation.run()
    simulation.close()
    return simulation, records


def by_round(rows: list[UpdateRow], name: str, peers: int) -> np.ndarray:
    """(rounds, K) a column of the attempts that were delivered; NaN where there is none."""
    ended = [row for row in rows if row.outcome == "delivered"]
    out = np.full((max(row.round for row in ended), peers), np.nan)
    for row in ended:
        out[row.round - 1, row.client] = getattr(row, name)
    return out


def learning(**tables: Any) -> dict[str, Any]:
    """A ring of peers that train a small network."""
    return study(**{"rounds": 4, "clients": {"count": COUNT}, "learner": LEARNER, "payload": {}} | tables)


def ready(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    return simulation, records


def models(simulation: Any) -> np.ndarray:
    """(K, d) the peers' present models."""
    return simulation.server.learner.models().numpy()


def check_resumed(tables: dict[str, Any], after: int = 3) -> tuple[Any, Any, MemoryRecorder]:
    """Assert that a run resumed after round `after` ends with the models and rounds of the run that was never interrupted.

    Returns the run that was never interrupted, the resumed one, and the records of the former.
    """
    whole, records = ready(tables)
    whole.run()
    first, _ = ready(tables)
    first.run(until_round=after)
    second, rows = ready(tables)
    second.load_state_dict(copied(first.state_dict()))
    second.run()
    np.testing.assert_array_equal(models(second), models(whole))
    assert [str(row) for row in rows.rounds] == [str(row) for row in records.rounds[after:]]
    return whole, second, records


class Numbers:
    """Models of peers that are vectors of numbers: training adds `steps` (K, d), and messages arrive as `compressed` says."""

    def __init__(self, start: np.ndarray, steps: np.ndarray | None = None, compressed: Any = None) -> None:
        self.vectors = [np.array(row, np.float64) for row in start]
        self.steps = np.zeros_like(start) if steps is None else steps
        self.compressed = compressed

    def _add(self, vector: np.ndarray) -> int:
        self.vectors.append(vector)
        return len(self.vectors) - 1

    def first(self) -> int:
        return 0

    def train(self, peer: int, round: int, start: int, steps: int, epsilon: float) -> int:
        return self._add(self.vectors[start] + self.steps[peer])

    def combine(self, models: Sequence[int], weights: Sequence[float]) -> int:
        return self._add(sum(weight * self.vectors[model] for model, weight in zip(models, weights, strict=True)))

    def compress(self, peer: int, key: int, model: int) -> int:
        return model if self.compressed is None else self._add(self.compressed(self.vectors[model]))

    def settle(self, present: np.ndarray, kept: Iterable[int]) -> None:
        assert max([*present.tolist(), *kept]) < len(self.vectors)


def with_numbers(tables: dict[str, Any], start: Any, *, steps: Any = None, compressed: Any = None) -> tuple[Any, Any]:
    """A simulation whose peers begin with the rows of `start` (K, d) or (K,), and a function that returns their models (K, d)."""
    rows = np.array(start, np.float64).reshape(len(start), -1)
    numbers = Numbers(rows, None if steps is None else np.array(steps, np.float64).reshape(rows.shape), compressed)
    simulation, _ = ready(tables)
    host = simulation.server.peers
    host.models, host.model[:] = numbers, np.arange(len(rows))
    host.protocol.attach(host)
    return simulation, lambda: np.array([numbers.vectors[model] for model in host.model.tolist()])


def top(count: int) -> Any:
    """Return the compression that keeps the `count` largest numbers of a vector."""

    def compressed(vector: np.ndarray) -> np.ndarray:
        kept = np.zeros_like(vector)
        places = np.argsort(-np.abs(vector), kind="stable")[:count]
        kept[places] = vector[places]
        return kept

    return compressed


def weights_of(simulation: Any, round: int) -> np.ndarray:
    """W of a round (K, K), put together from the exchanges of all peers."""
    host = simulation.server.peers
    graph, protocol, peers = host.graph, host.protocol, host.graph.clients
    matrix, sent = np.zeros((peers, peers)), set()
    for peer in range(peers):
        outgoing, incoming, weights, own = protocol.exchange(peer, round)
        matrix[peer, peer] = own
        matrix[peer, graph.source[incoming]] = weights
        assert (graph.source[outgoing] == peer).all()
        assert (graph.target[incoming] == peer).all()
        sent |= set(zip(graph.source[outgoing].tolist(), graph.target[outgoing].tolist(), strict=True))
    np.fill_diagonal(awaited := matrix != 0, False)
    assert sent == {(source, target) for target, source in np.argwhere(awaited).tolist()}
    return matrix
