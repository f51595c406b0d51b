"""Energy of clients below edges: by hand, and accounted for without gaps while clients move and batteries run empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.edge_tiers import assert_alike, constant, played, resumed, study, tier

POWERS = {"idle_w": 1.0, "compute_w": 10.0, "send_w": 4.0, "receive_w": 2.0}
RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}


def test_the_energy_of_clients_of_two_edges_by_hand() -> None:
    """A round lasts 2.7 s: 1 s down, .1 + .5 + .1 s of each of four clients, 1 s up. In the rest of it they are idle: 2 s.

    Each draws 2 W x .1 s, 10 W x .5 s, 4 W x .1 s and 1 W x 2 s.
    """
    _, records = played(study(energy=POWERS, rounds=2))
    for row in records.rounds:
        joules = (row.receive_j, row.compute_j, row.send_j, row.idle_j)
        assert joules == tuple(map(pytest.approx, (0.8, 20.0, 1.6, 8.0)))
    for update in records.updates:
        assert (update.receive_j, update.compute_j, update.send_j) == tuple(map(pytest.approx, (0.2, 5.0, 0.4)))


def test_a_client_that_waits_for_its_state_is_idle(tmp_path: Path) -> None:
    """Client 1 trains from 1.1 to 2.4 s, moves, waits 2 s for its state, trains for another .2 s and sends for .1 s."""
    file = tmp_path / "moves.csv"
    file.write_text("client,start_s,end_s,edge\n1,2.4,100,edge-1\n")
    edges = {"moves": str(file), "moving": "with-state", "state_bytes": 50}
    _, records = played(study(edges=edges, compute=constant([0.5, 1.5, 0.5, 0.5]), rounds=2, energy=POWERS))
    old, new, *_ = (row for row in records.updates if row.client == 1)
    assert (old.compute_j, old.send_j) == (pytest.approx(13.0), 0.0)
    assert (new.receive_j, new.compute_j, new.send_j) == (0.0, pytest.approx(2.0), pytest.approx(0.4))


BATTERY = {"capacity_j": 150.0, "charge_w": 6.0, "charging": {"kind": "markov", "mean_on_s": 6.0, "mean_off_s": 6.0}}


def _rough(folder: Path, moving: str, energy: dict[str, Any]) -> dict[str, Any]:
    rows = "".join(f"{n % 4},{n + 0.3},{n + 3.1},edge-{n % 2}\n" for n in range(1, 40, 2))
    (folder / "moves.csv").write_text(f"client,start_s,end_s,edge\n{rows}")
    edges = {"moves": str(folder / "moves.csv"), "moving": moving}
    edges |= {"state_bytes": 50} if moving == "with-state" else {}
    presence = {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 2.0}
    tables = study(tier(rounds=2), edges=edges, compute={"delay": RANDOM}, uplink={"delay": RANDOM}, rounds=10, time_limit_s=80.0)
    return tables | {"energy": energy, "availability": presence}


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("energy", [POWERS, POWERS | {"battery": BATTERY}], ids=["mains", "batteries"])
@pytest.mark.parametrize("moving", ["finishes", "handed-over", "with-state"])
def test_energy_is_accounted_for_without_gaps_and_resumed(moving: str, energy: dict[str, Any], tmp_path: Path) -> None:
    tables = _rough(tmp_path, moving, energy)
    built, whole = played(tables)
    energy_of_clients, clock = built.server.clients.energy, built.server.clients.clock
    for booked_j, integral_j in energy_of_clients.accounts(clock.now).values():
        assert booked_j == pytest.approx(integral_j, rel=1e-9)
    _, records = resumed(tables, 4)
    assert_alike(records, whole)
