"""The engine in many random worlds: nothing is made or lost at any event, and a run can be left and taken up at any round."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.laws.availability.presence import Markov
from models.laws.changes import Unchanging
from models.laws.channels import GilbertElliott
from netsim.clients.update import OUTCOMES
from netsim.core.streams import Streams
from netsim.network.access import OwnLinkAccess
from netsim.network.bandwidth.carriers import VaryingLinks
from netsim.network.bandwidth.sharing import SharedMedium
from netsim.network.bandwidth.varying_medium import VaryingMedium
from netsim.network.draws import Survivals
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import ROUNDS, built, copied, random_tables, same, watch
from tests.helpers.suites import each_nth

SEEDS = range(60)


@pytest.mark.parametrize("seed", each_nth(5, SEEDS, first=0))
def test_a_world_keeps_its_books_and_order_and_can_be_left_and_taken_up_at_a_round(seed: int, tmp_path: Path) -> None:
    tables = random_tables(seed, tmp_path)
    whole, records = built(tables)
    states = {}
    whole.run(after_round=lambda simulation: states.update({simulation.server.round: copied(simulation.state_dict())}))
    whole.close()
    check_books(whole, records, tables)
    check_order(records)
    check_taken_up(tables, states, whole, records)
    # A run in pieces is the run in one go, and who looks on changes nothing.
    pieces, other = built(tables)
    events = watch(pieces)
    for stop in range(1, ROUNDS + 1):
        pieces.run(until_round=stop)
    pieces.close()
    assert events[0] > 0
    assert pieces.ended == whole.ended
    assert repr(other.rounds) == repr(records.rounds)
    assert repr(other.updates) == repr(records.updates)


def check_books(simulation: Any, records: MemoryRecorder, tables: dict[str, Any]) -> None:
    """Check that nothing is made or lost: every update that was started has one row, and one outcome of five."""
    rows = records.rounds
    if rows:
        ended = np.cumsum([[getattr(row, name) for name in OUTCOMES] for row in rows], axis=0).sum(axis=1)
        assert (np.cumsum([row.selected for row in rows]) == ended + [row.in_flight for row in rows]).all()
    clients = simulation.server.clients
    found = [row.outcome for row in records.updates]
    assert len({(row.round, row.client) for row in records.updates}) == len(found) == clients.started
    assert {name: found.count(name) for name in OUTCOMES} == clients.ended
    assert found.count("in_flight") == simulation.server.in_flight
    delivered = [sum(row.client == k and row.outcome == "delivered" for row in records.updates) for k in range(clients.count)]
    assert list(clients.successes) == delivered
    assert clients.life.uploads == sum(not np.isnan(row.upload_start_s) for row in records.updates)
    if "privacy" in tables:
        charged = [row for row in records.updates if not np.isnan(row.epsilon)]
        assert clients.accountant.participations.sum() == len(charged)
        on_upload = tables["privacy"]["charge_on"] == "upload"
        assert all(not np.isnan(row.upload_start_s if on_upload else row.upload_end_s) for row in charged)


def check_order(records: MemoryRecorder) -> None:
    """Check that no step of an update, and no update of a client, is out of order."""
    for row in records.updates:
        times = [row.selected_s, row.download_start_s, row.download_end_s, row.compute_start_s, row.compute_end_s]
        times += [row.upload_start_s, row.upload_end_s, row.outcome_s]
        reached = [time for time in times if not np.isnan(time)]
        assert reached == sorted(reached)
        assert row.censored == (row.outcome != "delivered")
    for client in {row.client for row in records.updates}:
        parts = sorted((row.selected_s, row.outcome_s) for row in records.updates if row.client == client)
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(parts))


def check_taken_up(tables: dict[str, Any], states: dict[int, Any], whole: Any, records: MemoryRecorder) -> None:
    """Check that runs that go on from `states`, by rounds, end as the `whole` one, which was never left."""
    for after in {1, len(states) // 2, len(states) - 1} & states.keys():
        part, continued = built(tables)
        part.load_state_dict(states[after])
        assert same(part.state_dict(), states[after])
        part.run()
        part.close()
        assert part.ended == whole.ended
        assert repr(continued.rounds) == repr(records.rounds[after:])
        assert repr(continued.updates) == repr(records.updates[len(records.updates) - len(continued.updates) :])
        assert same(part.state_dict(), whole.state_dict())


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("seed", each_nth(5, SEEDS, first=1))
def test_what_sets_out_together_is_as_if_it_had_gone_step_by_step(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = random_tables(seed, tmp_path)
    for name in ("downlink", "compute", "outages"):
        tables.pop(name, None)
    tables["uplink"].pop("sub_channels", None)

    def state_and_tables(together: bool) -> tuple[Any, str]:
        monkeypatch.setattr(OwnLinkAccess, "free", together)
        simulation, records = built(tables)
        simulation.run(until_round=ROUNDS // 2)
        state = copied(simulation.state_dict())
        simulation.run()
        simulation.close()
        return state, repr((records.rounds, records.updates))

    (state, rows), (state_by_step, rows_by_step) = state_and_tables(True), state_and_tables(False)
    assert same(state, state_by_step)
    assert rows == rows_by_step


@pytest.mark.slow
def test_the_worlds_are_rough_enough(tmp_path: Path) -> None:
    # The tests above are worth something only if the worlds in them show everything that can happen.
    outcomes, phases, ends, causes, sharing = set(), set(), set(), set(), set()
    for seed in SEEDS:
        simulation, records = built(random_tables(seed, tmp_path))
        medium = simulation.server.clients.medium
        carriers = {carrier: type(carrier) for carrier in (medium.down, medium.up)}

        def after_round(simulation: Any, carriers: dict[Any, type] = carriers) -> None:
            flying = simulation.server.clients.in_flight
            phases.update(update.phase for update in flying.values())
            sharing.update((kind, sum(("update", client) in carrier for client in flying)) for carrier, kind in carriers.items())

        simulation.run(after_round=after_round)
        causes.update(row.cause for row in records.updates if row.outcome == "lost")
        assert all((row.cause is None) == (row.outcome != "lost") for row in records.updates)
        simulation.close()
        ends.add(simulation.ended)
        outcomes.update(row.outcome for row in records.updates)
    assert outcomes == {*OUTCOMES, "in_flight"}
    assert phases == {"download", "compute", "wait", "upload"}
    assert ends == {"rounds", "time limit", "nobody left"}
    assert causes == {"channel", "mast", "power", "trace-end"}
    # Rounds close with several under way on each that carries, so that they are part of the states that are saved.
    assert {kind for kind, count in sharing if count > 1} == {SharedMedium, VaryingMedium, VaryingLinks}


@pytest.mark.parametrize("count", [5, 1000])
def test_one_more_client_at_the_end_changes_nobodys_presence_nor_channel(count: int) -> None:
    few, more = (Markov(clients=k, mean_on_s=3.0, mean_off_s=2.0) for k in (count, count + 1))
    for now_s in np.arange(0.0, 40.0, 0.7):
        for law in (few, more):
            law.advance(float(now_s), Streams(1)["availability"])
        assert np.array_equal(few.on, more.on[:count])
        assert np.array_equal(few.next_change_s, more.next_change_s[:count])
    links = [
        Survivals(
            clients=k,
            law=Unchanging(GilbertElliott(clients=k, to_bad=0.3, to_good=0.4, loss_good=0.1, loss_bad=0.8)),
            draws=Streams(1)["uplink.loss"],
            state_draws=Streams(1)["uplink.state"],
        )
        for k in (count, count + 1)
    ]
    chosen = np.array([0, 3, 4])
    fates = []
    for round in range(1, 40):
        for link in links:
            link.open_round(round, 0.0)
        first, second = (link.draw(round, 0.0, chosen).values_at(0.0, len(chosen)) for link in links)
        assert first == second
        fates += first
    assert 0 < sum(fates) < len(fates)
