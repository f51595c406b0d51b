"""Random small worlds for tests of the engine, and ways to watch one as it runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from simpy import Environment

from netsim.core.clock import NORMAL, Clock
from netsim.network.access import AssignedAccess
from netsim.simulation import Simulation
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder

ROUNDS = 14


def random_tables(seed: int, folder: Path) -> dict[str, Any]:
    """A scenario of few clients in which any of the engine's options may be on.

    Half of the worlds take their times from multiples of a half second, so that many events fall into one instant.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 10))
    a_round = int(rng.integers(1, count + 1))
    ties = bool(rng.random() < 0.5)

    def some(*options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    def delay() -> dict[str, Any]:
        if ties:
            return {"kind": "constant", "value_s": (rng.integers(0, 5, count) / 2).tolist()}
        law = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}
        return some({"kind": "constant", "value_s": 0.0}, law, {"kind": "gaussian", "mean_s": 1.0, "std_s": 0.5})

    def channel() -> dict[str, Any]:
        bursts = {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.5, "loss_good": 0.1}
        return some({"kind": "perfect"}, {"kind": "bernoulli", "success": 0.7}, bursts)

    server: dict[str, Any] = {
        "per_round": a_round,
        "when_short": some("wait", "proceed"),
        "reselect_busy": some(False, False, True),
        "stragglers": some("finish", "cancel"),
    }
    if rng.random() < 0.6:
        server["deadline_s"] = some(1.0, 1.5, 2.0, 3.0)
    if rng.random() < 0.4:
        server["first"] = int(rng.integers(1, a_round + 1))
    uplink: dict[str, Any] = {"delay": delay(), "channel": channel()}
    if rng.random() < 0.6:
        uplink["sub_channels"] = some(1, 2, 3)
    changed = {"value_s": 1.0} if uplink["delay"]["kind"] == "constant" else None
    if changed is not None and rng.random() < 0.7:
        uplink["changes"] = [{some("at_s", "at_round"): 7, "delay": changed}]
    if uplink["channel"]["kind"] == "bernoulli" and rng.random() < 0.7:
        uplink.setdefault("changes", []).append({"at_s": 6.5, "channel": {"success": 0.3}})
        uplink["changes"] = uplink["changes"][-1:]
    tables: dict[str, Any] = {
        "name": "world",
        "seed": seed,
        "rounds": ROUNDS,
        "clients": {"count": count},
        "server": server,
        "policy": {"kind": "random"},
        "downlink": {"delay": delay(), "channel": channel()},
        "compute": {"delay": delay()},
        "uplink": uplink,
        "payload": {"down_bytes": 10, "up_bytes": 10 if seed % 2 else [8.0 + client for client in range(count)]},
        "availability": _availability(rng, seed, count, folder),
    }
    if rng.random() < 0.5:
        finite = {"kind": "explicit", "epsilons": [3.0, 2.0, 1.0, 0.5]}
        schedule = some({"kind": "geometric", "epsilon_total": 5.0, "eta": 0.2}, finite)
        tables["privacy"] = {"sensitivity": 1.0, "schedule": schedule, "charge_on": some("upload", "delivery")}
    if rng.random() < 0.3:
        tables["time_limit_s"] = 12.0
    if rng.random() < 0.4:
        limits = some({}, {"bandwidth_bytes_per_s": 8.0}, {"bandwidth_bytes_per_s": (rng.integers(2, 6, count) * 2.0).tolist()})
        uplink |= {"shared": {"bandwidth_bytes_per_s": 20.0}, **limits}
    if rng.random() < 0.4:
        written = some({"from_s": 3.0, "to_s": 4.5}, {"from_round": 4, "to_round": 6})
        drawn = some({"mean_up_s": 4.0, "mean_down_s": 1.0}, {"mean_up_rounds": 4, "mean_down_rounds": 2})
        tables["outages"] = [{"name": "mast", "clients": [0, 2, 3], **written}, {"name": "power", **drawn}]
    if rng.random() < 0.6:
        rounds = [{"at_round": some(3, 5), "bandwidth_bytes_per_s": 5.0}]
        varying = {"bandwidth_bytes_per_s": 30.0, "changes": rounds}
        tables["downlink"] |= some({"bandwidth": STOPPING}, *[{"shared": {"bandwidth": LEVELS}}] * 2, varying)
        if "bandwidth_bytes_per_s" not in uplink:
            uplink["bandwidth"] = some(LEVELS, STEPS)
    return tables


LEVELS = {"kind": "markov-levels", "levels_bytes_per_s": [3.0, 30.0], "mean_stay_s": [0.5, 1.5]}
STEPS = {"kind": "trace", "time_s": [0.0, 1.0, 1.5], "bytes_per_s": [20.0, 0.0, 60.0], "offset": "random"}
STOPPING = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [40.0], "end_s": 9.0, "after_end": "stop", "offset": "random"}


def _availability(rng: np.random.Generator, seed: int, count: int, folder: Path) -> dict[str, Any]:
    which = rng.integers(3)
    if which == 0:
        return {"kind": "always"}
    if which == 1:
        return {"kind": "markov", "mean_on_s": 6.0, "mean_off_s": 2.0}
    lines = ["client,on_s,off_s"]
    for client in range(count):
        times = np.cumsum(rng.integers(1, 9, 12) / 2)
        lines += [f"{client},{on},{off}" for on, off in times.reshape(-1, 2)]
    path = folder / f"presence-{seed}.csv"
    path.write_text("\n".join(lines) + "\n")
    return {"kind": "trace", "path": str(path)}


def built(tables: dict[str, Any]) -> tuple[Simulation, MemoryRecorder]:
    """Build the simulation of a scenario with a recorder of all its rows."""
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    return simulation, records


def watch(simulation: Any) -> list[int]:
    """Check after every event of a simulation that nothing was made or lost; the loop that runs is the clock's own.

    Returns a list that holds one entry, the number of events.
    """
    clock, clients = simulation.clock, simulation.server.clients
    access, events = clients.medium.access, [0]

    def check() -> None:
        # Of attempts that are worked out together, books are kept as they close.
        clients.go_by_events()
        flying = list(clients.in_flight.values())
        assert clients.started == sum(clients.ended.values()) + len(flying)
        # A client is asked for its loss or makes an update, not both.
        asked = {} if clients.probes is None else clients.probes.under_way
        assert np.flatnonzero(clients.busy).tolist() == sorted([*clients.in_flight, *asked])
        flying += asked.values()
        assert all(client == update.client and not update.outcome for client, update in clients.in_flight.items())
        waiting = list(access.waiting())
        if not access.free and not isinstance(access, AssignedAccess):
            assert access.held == sum(update.phase == "upload" for update in flying) <= access.count
            assert not waiting or access.held == access.count
        assert {update.client for update in waiting} == {update.client for update in flying if update.phase == "wait"}
        assert all(update.due_s >= clock.now for update in flying)

    class Checked(Environment):
        """What comes after the clock in the order of its classes: the events of SimPy that it does not treat itself."""

        def step(self) -> None:
            super().step()
            happened()

    class Watched(Clock, Checked):
        """The clock with its own loop; each of its calls is followed by a look."""

        def call_at(self, time_s: float, fn: Any, payload: Any = None, priority: int = NORMAL) -> int:
            return super().call_at(time_s, looked_at(fn), payload, priority)

        def call_in(self, delay_s: float, fn: Any, payload: Any = None) -> int:
            return super().call_in(delay_s, looked_at(fn), payload)

    def looked_at(fn: Any) -> Any:
        def call(payload: Any) -> None:
            fn(payload)
            happened()

        return call

    def happened() -> None:
        events[0] += 1
        assert clock.now >= latest[0]
        latest[0] = clock.now
        check()

    latest = [clock.now]
    clock.__class__ = Watched
    return events


def copied(state: Any) -> Any:
    """Through bytes and back: nothing but plain data connects the two."""
    return pickle.loads(pickle.dumps(state))


def same(first: Any, second: Any) -> bool:
    """Whether two states are equal, arrays and NaN included."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return type(first) is type(second) and (first == second or (first != first and second != second))


def taken_up(make: Callable[[], tuple[Any, Any]], after: int) -> tuple[Any, Any]:
    """Assert that a simulation goes on from its state after round `after` as if it had not been interrupted.

    `make`: a simulation and what it records, new each time. Returns the records of the whole one, and that state.
    """
    whole, expected = make()
    whole.run()
    first, _ = make()
    first.run(until_round=after)
    state = first.state_dict()
    second, records = make()
    second.load_state_dict(copied(state))
    assert same(second.state_dict(), state)
    second.run()
    assert repr(records.rounds) == repr(expected.rounds[after:])
    assert same(second.state_dict(), whole.state_dict())
    return expected, state
