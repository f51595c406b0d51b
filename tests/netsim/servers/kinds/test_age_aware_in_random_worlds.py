"""The asynchronous server in random worlds: conservation at every event, resumed runs, and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.laws.availability.presence import Markov
from models.laws.channels import Bernoulli, GilbertElliott
from models.laws.delays import ShiftedExponential
from models.laws.sub_channels.jammers import Random, Reactive
from models.privacy import ExplicitSchedule, Ledger
from netsim.core.clock import Clock
from netsim.core.streams import Streams
from netsim.network.bandwidth.sharing import SharedMedium
from netsim.network.outages import ClientOutage, IntervalInRounds, IntervalInSeconds, MarkovInRounds, MarkovInSeconds
from tests.helpers.async_world import Shuffled, Table, World, world
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.shared_links import shared_medium


def busy_world(seed: int, rounds: int = 60, **more: Any) -> World:
    """Everything at once: random delays, fading channels, people who come and go, two jammers, losses both ways."""
    clients, channels = 3, 5
    parameters: dict[str, Any] = {
        "download_s": ShiftedExponential(shift_s=0.0, mean_excess_s=0.3),
        "compute_s": ShiftedExponential(shift_s=0.5, mean_excess_s=2.0),
        "upload_s": ShiftedExponential(shift_s=0.1, mean_excess_s=0.3),
        "channel_s": ShiftedExponential(shift_s=0.0, mean_excess_s=0.5),
        "downlink": Bernoulli(success=0.9),
        "uplink": Bernoulli(success=0.95),
        "availability": Markov(clients=clients, mean_on_s=20.0, mean_off_s=4.0),
        "law": GilbertElliott(clients=channels, to_bad=0.2, to_good=0.4),
        "jammers": [
            {"law": Reactive(target="used", memory=0.5), "dwell_s": 0.4, "at_once": 2, "budget": 60},
            {"law": Random(width=2, duty=0.7), "dwell_rounds": 2, "reach": [0, 2, 3], "at_once": 2},
        ],
    } | more
    if more.get("outages"):
        parameters["outages"] = outages(seed)
    return world(
        scheduler=Shuffled(clients, channels),
        clients=clients,
        channels=channels,
        rounds=rounds,
        seed=seed,
        accountant=Ledger(clients=clients, schedule=ExplicitSchedule(epsilons=[0.1] * 1000)),
        **parameters,
    )


def shared(clock: Clock, clients: int) -> SharedMedium:
    limits = np.array([np.inf, 6.0, np.inf])
    return shared_medium(clock=clock, clients=clients, size_bytes=8, bandwidth_bytes_per_s=16.0, per_client_bytes_per_s=limits)


def outages(seed: int) -> list[ClientOutage]:
    presence, law = Markov(clients=1, mean_on_s=15.0, mean_off_s=3.0), GilbertElliott(clients=1, to_bad=0.1, to_good=0.3)
    whens = {
        "backhaul": MarkovInSeconds(presence=presence, draws=Streams(seed)["outage.backhaul"]),
        "weather": MarkovInRounds(law=law, draws=Streams(seed)["outage.weather"]),
        "works": IntervalInSeconds(start_s=10.0, end_s=16.0),
        "drill": IntervalInRounds(start=6, end=9),
    }
    return [ClientOutage(name=name, when=when, clients=3, members=np.array([0, 2])) for name, when in whens.items()]


MODES = [{}, {"round_s": 3.0}, {"wait_for_compute": True}, {"contention": True}]
MODES += [{"shared": shared}, {"shared": shared, "outages": True}, {"outages": True, "contention": True}]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=8)
def test_parts_are_conserved_at_every_event(mode: dict[str, Any], seed: int) -> None:
    it = busy_world(seed, rounds=25, **mode)
    server, clients, clock = it.server, it.server.clients, it.simulation.clock
    while server.round < 25:
        over = clock.process(server.run_round())
        while not over.processed:
            clock.step()
            assert clients.started == sum(clients.ended.values()) + server.in_flight
            on_air = [sent.client for sent_on in it.access.spectrum.under_way for sent in sent_on]
            assert sorted(on_air) == sorted(client for client, update in clients.alive.items() if update.phase == "upload")
            assert clients.life.sending == len(on_air)
        assert server.in_flight == 0
        assert not any(it.access.spectrum.under_way)
    for row in it.recorder.rounds:
        assert row.selected == row.delivered + row.lost + row.late + row.aborted
    assert len(it.recorder.updates) == clients.started


def rows(recorder: MemoryRecorder) -> list[str]:
    return [repr(row) for row in (*recorder.rounds, *recorder.updates, *recorder.jams)]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_goes_on_from_a_saved_state_leaves_the_same_records(mode: dict[str, Any]) -> None:
    whole = busy_world(3, **mode).play()
    whole.simulation.close()
    for cut in (1, 13, 37):
        first = busy_world(3, **mode).play(cut)
        state = first.simulation.state_dict()
        first.play(cut + 3)  # what was saved must not change with the run
        second = busy_world(3, **mode)
        second.simulation.load_state_dict(state)
        second.play()
        second.simulation.close()
        done = [row for row in first.recorder.jams if row in whole.recorder.jams]
        assert rows(second.recorder)[: 60 - cut] == rows(whole.recorder)[cut:60]
        tail = [repr(row) for row in second.recorder.updates]
        assert tail == [repr(row) for row in whole.recorder.updates][-len(tail) :]
        jams = [repr(row) for row in second.recorder.jams]
        assert jams == [repr(row) for row in whole.recorder.jams][-len(jams) :]
        assert len(jams) > 0 or len(done) == len(whole.recorder.jams)


def test_the_same_seed_gives_the_same_records_and_another_seed_others() -> None:
    first, again, other = busy_world(5).play(), busy_world(5).play(), busy_world(6).play()
    assert rows(first.recorder) == rows(again.recorder)
    assert rows(first.recorder) != rows(other.recorder)


def test_another_scheduler_meets_the_same_channel_states() -> None:
    law: dict[str, Any] = {"clients": 2, "channels": 5, "rounds": 200, "seed": 8}
    one = world(scheduler=Shuffled(2, 5), law=GilbertElliott(clients=5, to_bad=0.2, to_good=0.3, loss_good=0.1), **law).play()
    two = world(scheduler=Table([[0, 1]]), law=GilbertElliott(clients=5, to_bad=0.2, to_good=0.3, loss_good=0.1), **law).play()
    seen = [{(row.round, row.channel): row.good for row in it.recorder.updates} for it in (one, two)]
    shared = seen[0].keys() & seen[1].keys()
    assert len(shared) > 50
    assert all(seen[0][at] == seen[1][at] for at in shared)
