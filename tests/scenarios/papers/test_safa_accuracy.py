"""SAFA's accuracies: who trains how much in which round under which method, the verdicts, shards, and the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.errors import ParameterError
from models.fl.networks.kinds import cnn
from netsim.core.protocols import RoundView, Selection
from netsim.core.streams import Streams
from scenarios.library.validation.safa_accuracy import Crashing, draw_batches_per_s, draw_crashes, normal_sizes
from scenarios.papers.safa import AGREES, DIFFERS, draw_speeds
from scenarios.papers.safa_accuracy import Cell, tolerance, verdict
from scenarios.runs.reading import override, parse, read_file
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder

CLIENTS, ROUNDS, CRASH = 9, 12, 0.6
FILE = "scenarios.library.validation.safa_accuracy"
SMALL: dict[str, Any] = {
    "clients.count": CLIENTS,
    "rounds": ROUNDS,
    "learner.data": {"kind": "digits", "samples": 1000, "scale": "raw"},
    "learner.partition": {"kind": f"{FILE}:normal_sizes", "minimum": 37},
    "learner.network": {"kind": "linear"},
}


def tables(server: str, seed: int, **keys: Any) -> dict[str, Any]:
    """The scenario with digits and a linear network."""
    base = {key: table for key, table in read_file("safa_accuracy").items() if key != "sweep"}
    own = {"kind": f"{FILE}:{server}", "picked": 2, "crash": CRASH} | keys
    return override(base, SMALL | {"seed": seed, "server": own})


def small(server: str, seed: int = 1, **keys: Any) -> MemoryRecorder:
    """What it records."""
    simulation, records = build(parse(tables(server, seed, **keys))).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    return records


def crashed(seed: int, number: int) -> set[int]:
    rng = Streams(seed)["policy"].generator(number)
    return set(np.flatnonzero(draw_crashes(rng, CLIENTS, CRASH)).tolist())


def trained(records: MemoryRecorder, number: int) -> dict[int, int]:
    """Steps of each client whose update was delivered in round `number`."""
    return {row.client: row.steps or 0 for row in records.updates if row.round == number and row.outcome == "delivered"}


def view(number: int, seed: int = 1) -> RoundView:
    nobody = np.zeros(6, np.int64)
    return RoundView(number, 0.0, np.ones(6, np.bool_), nobody, np.random.default_rng(seed))


def test_round_1_has_the_steps_of_its_reading() -> None:
    # 10 clients of one batch an epoch; 2 are picked, of which one crashes: the example of `Crashing`.
    def selected(first_round: Any, number: int) -> tuple[list[int], list[int]]:
        nobody = np.zeros(10, np.int64)
        seen = RoundView(number, 0.0, np.ones(10, np.bool_), nobody, np.random.default_rng(3))
        policy = Crashing(
            data_sizes=np.full(10, 40), picked=2, crash=0.5, slow=np.zeros(10, np.bool_), first_round=first_round
        )
        chosen = policy.select(seen)
        assert isinstance(chosen, Selection)
        return chosen.clients.tolist(), np.asarray(chosen.steps).tolist()

    rng = np.random.default_rng(3)
    crashed = draw_crashes(rng, 10, 0.5)
    picked = np.sort(rng.choice(10, 2, replace=False))
    (works,) = picked[~crashed[picked]].tolist()
    assert selected("as-later", 1) == selected("as-later", 2) == selected("everyone", 2) == ([works], [5])
    clients, steps = selected("everyone", 1)
    assert clients == list(range(10))
    assert sum(steps) == 14
    assert steps[works] == 5


def test_in_the_first_round_everyone_trains_and_then_those_picked_that_do_not_crash_and_are_not_slow() -> None:
    # 80 samples are two batches, 81 are three.
    sizes, nobody = np.array([80, 80, 80, 81, 81, 81]), np.zeros(6, np.bool_)
    policy = Crashing(data_sizes=sizes, picked=3, crash=0.0, slow=nobody, first_round="everyone")
    first = policy.select(view(1))
    assert isinstance(first, Selection)
    assert first.clients.tolist() == list(range(6))
    batches = np.array([2, 2, 2, 3, 3, 3])
    assert sorted((first.steps / batches).tolist()) == [1, 1, 1, 5, 5, 5]
    later = policy.select(view(2))
    assert isinstance(later, Selection)
    assert len(later.clients) == 3
    assert (later.steps == 5 * batches[later.clients]).all()
    slow = nobody.copy()
    slow[later.clients[1]] = True
    fewer = Crashing(data_sizes=sizes, picked=3, crash=0.0, slow=slow).select(view(2))
    assert isinstance(fewer, Selection)
    assert fewer.clients.tolist() == later.clients[[0, 2]].tolist()
    none = Crashing(data_sizes=sizes, picked=3, crash=1.0, slow=nobody).select(view(2))
    assert not isinstance(none, Selection)
    assert len(none) == 0


def test_crashes_are_as_likely_as_said() -> None:
    policy: Any = Crashing(data_sizes=np.full(6, 80), picked=5, crash=0.3, slow=np.zeros(6, np.bool_))
    drawn = [policy.select(view(2, seed)) for seed in range(400)]
    works = sum(len(one.clients) if isinstance(one, Selection) else 0 for one in drawn)
    # Of 2,000 drawn 1,400 are expected, with a standard deviation of 20.5.
    assert works == pytest.approx(1400, abs=82)


def test_the_same_clients_crash_under_all_methods_and_are_not_trained() -> None:
    everyone = set(range(CLIENTS))
    fedavg = small("FedAvg", picked=CLIENTS, first_round="everyone")
    safa = small("Safa", first_round="everyone")
    for number in range(2, ROUNDS + 1):
        assert set(trained(fedavg, number)) == set(trained(safa, number)) == everyone - crashed(1, number)
    # In round 1 who crashes trains one epoch, which FedAvg's mean has and SAFA's cache does not.
    assert set(trained(fedavg, 1)) == everyone
    assert set(trained(safa, 1)) == everyone - crashed(1, 1)
    # In the other reading round 1 is like all rounds.
    later = small("FedAvg", picked=CLIENTS)
    assert all(set(trained(later, number)) == everyone - crashed(1, number) for number in range(1, ROUNDS + 1))


def test_of_safa_who_crashed_in_round_1_goes_on_from_its_epoch_in_one_reading_only() -> None:
    def steps(first_round: str) -> set[float]:
        made, records = build(parse(tables("Safa", 3, first_round=first_round))), MemoryRecorder()
        made.simulation.record_to(records)
        made.simulation.run()
        epoch = np.ceil(made.data_sizes / 40)
        return {steps / epoch[client] for number in range(1, ROUNDS + 1) for client, steps in trained(records, number).items()}

    assert steps("as-later") == {5}
    assert steps("everyone") == {5, 6}


def test_safa_is_that_of_a_plain_reference() -> None:
    seed, quota, tolerated = 3, 2, 2
    keys: dict[str, Any] = {"picked": quota, "lag_tolerance": tolerated, "first_round": "everyone"}
    made, records = build(parse(tables("Safa", seed, **keys))), MemoryRecorder()
    simulation: Any = made.simulation
    simulation.record_to(records)
    epoch = np.ceil(made.data_sizes / 40)
    p, last = draw_batches_per_s(Streams(seed), CLIENTS), set[int]()
    base, ahead = dict.fromkeys(range(CLIENTS), 0), crashed(seed, 1)
    seen_ahead = seen_renewed = 0
    for number in range(1, ROUNDS + 1):
        simulation.run(until_round=number)
        renewed = {client for client in base if number - 1 - base[client] > tolerated}
        assert records.rounds[-1].renewed == len(renewed)
        base |= dict.fromkeys(renewed, number - 1)
        ahead -= renewed
        arrived = set(range(CLIENTS)) - crashed(seed, number)
        assert trained(records, number) == {client: (6 if client in ahead else 5) * epoch[client] for client in arrived}
        versions = {one.client: one.version for one in records.updates if one.round == number}
        assert versions == {client: base[client] for client in arrived}
        order = sorted(arrived, key=lambda client: (client in last, -p[client]))
        assert [one.client for one in simulation.server.loop.close.picked] == order[:quota]
        last = set(order[:quota])
        seen_ahead, seen_renewed = seen_ahead + len(arrived & ahead), seen_renewed + len(renewed)
        base |= dict.fromkeys(arrived, number)
        ahead -= arrived
    assert min(seen_ahead, seen_renewed) > 0


def test_who_trains_longer_than_the_limit_is_not_picked_and_dropped_by_fedcs(monkeypatch: pytest.MonkeyPatch) -> None:
    order = np.argsort(draw_batches_per_s(Streams(1), CLIENTS))
    slow = int(order[0])
    monkeypatch.setattr(f"{FILE}.training_s", lambda sizes, p: np.where(np.arange(len(p)) == slow, 6000.0, 1.0))
    everyone = set(range(CLIENTS))
    safa = small("Safa", picked=CLIENTS, crash=0.0)
    assert [row.picked for row in safa.rounds] == [CLIENTS - 1] * ROUNDS
    assert all(set(trained(safa, number)) == everyone for number in range(1, ROUNDS + 1))
    fedcs = small("FedAvg", picked=CLIENTS, crash=0.0, drops_after_s=5600.0)
    assert all(set(trained(fedcs, number)) == everyone - {slow} for number in range(2, ROUNDS + 1))


def test_fedcs_is_fedavg_where_nobody_is_slow() -> None:
    fedavg = small("FedAvg")
    fedcs = small("FedAvg", drops_after_s=5600.0)
    assert [row.accuracy for row in fedcs.rounds] == [row.accuracy for row in fedavg.rounds]
    assert fedcs.updates == fedavg.updates


def test_speeds_are_those_of_the_table_of_round_lengths() -> None:
    for seed in (1, 2):
        assert draw_batches_per_s(Streams(seed), 100).tolist() == draw_speeds(seed).tolist()


def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_been() -> None:
    whole = small("Safa", 3)
    first = build(parse(tables("Safa", 3))).simulation
    first.record_to(MemoryRecorder())
    first.run(until_round=1)
    state = first.state_dict()
    second, records = build(parse(tables("Safa", 3))).simulation, MemoryRecorder()
    second.load_state_dict(state)
    second.record_to(records)
    second.run()
    assert records.rounds == whole.rounds[1:]


@pytest.mark.parametrize(
    ("cell", "found", "expected"),
    [
        (("fedavg", 10, 0.1), 94.57, AGREES),
        (("fedavg", 10, 0.1), 94.58, DIFFERS),
        (("fedavg", 10, 0.7), 85.18, AGREES),  # three updates a round
        (("fedcs", 10, 0.7), 92.63, DIFFERS),
        (("safa", 10, 0.7), 95.53, DIFFERS),  # everyone who does not crash
    ],
)
def test_the_rule(cell: tuple[str, int, float], found: float, expected: str) -> None:
    assert verdict(Cell(*cell), found) == expected
    assert tolerance(Cell(*cell)) == (3.0 if cell[0] != "safa" and cell[1:] == (10, 0.7) else 0.5)


def test_shards_are_disjoint_and_spread() -> None:
    parts = normal_sizes(np.zeros(60_000, np.int64), clients=100, generator=np.random.default_rng(2))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() >= 40
    assert sizes.std() == pytest.approx(180, abs=40)
    with pytest.raises(ParameterError, match="minimum = 40"):
        normal_sizes(np.zeros(1000, np.int64), clients=10, generator=np.random.default_rng(1))


def test_the_network_has_the_published_layers() -> None:
    module = cnn((1, 28, 28), 10, seed=1, channels=[20, 50], hidden=500, kernel=5, padding=0)
    sizes = [tuple(parameter.shape) for parameter in module.parameters() if parameter.ndim > 1]
    assert sizes == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]
    with pytest.raises(ParameterError, match=r"network\.padding"):
        cnn((1, 8, 8), 10, seed=1, channels=[4, 4, 4], kernel=5, padding=0)
    with pytest.raises(ParameterError, match=r"network\.kernel"):
        cnn((1, 28, 28), 10, seed=1, kernel=4)
