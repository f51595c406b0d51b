"""Every server at every tier: it runs, to the same bytes when resumed, or one message says why it cannot."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from netsim.servers.kinds.synchronous import synchronous_server
from netsim.servers.rounds.close import WaitRule
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.schema.servers.kinds import KINDS
from scenarios.schema.servers.own_server import OwnServer
from scenarios.wiring.simulation import build
from tests.helpers.edge_tiers import assert_alike, constant, played, resumed, study, tier


class FirstOf:
    """A server of a user's own: rounds close at the first delivery."""

    selects, contends, caches = True, False, False

    def __init__(self, *, per_round: int) -> None:
        self.per_round = per_round

    def compose(self, world: Any) -> Any:
        channels, pool = world.channels_and_pool(self.per_round)
        return synchronous_server(
            pool=pool,
            selecting=world.selection(pool, self.per_round),
            learner=world.learner,
            wait=WaitRule(first=1),
            channels=channels,
        )


OWN = f"{__name__}:FirstOf"
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"per_round": 2},
    "semi-synchronous": {"per_round": 2, "round_s": 1.5},
    "buffered": {"concurrency": 2},
    "safa": {"per_round": 2, "lag_tolerance": 1},
    "compass": {"min_steps": 1, "max_steps": 6},
    OWN: {"per_round": 2},
}
"""The servers that coordinate a tier, with their keys."""
OF_CLIENTS = {"compass"}
"""Those whose members are clients."""
NEEDED: dict[str, dict[str, Any]] = {
    "fl-fa": {"per_round": 2},
    "fl-da": {"per_round": 2},
    "peers": {"protocol": {"kind": "d-psgd"}},
}
"""Keys that the others cannot do without."""
RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}
PLACES = ("edge", "top", "both")


def _world(kind: str, place: str) -> dict[str, Any]:
    """A tree with this server at edges, at the top, or at both."""
    server = {"kind": kind, **SERVERS.get(kind, {}), **NEEDED.get(kind, {})}
    link = {"delay": RANDOM, "channel": {"kind": "bernoulli", "success": 0.9}}
    tables = study(
        tier(count=3, rounds=2, **({"server": server} if place != "top" else {})),
        edges={"downlink": link, "uplink": link},
        clients={"count": 7, "data_sizes": 30.0},
        compute={"delay": RANDOM, "seconds_per_sample": 0.01},
        work={"batch_size": 10},
        uplink=link,
        policy={"kind": "random"},
        rounds=6,
    )
    if place != "edge":
        tables["server"] = server
        if KINDS.get(kind, OwnServer).decider == "server":
            del tables["policy"]
    return tables


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [*KINDS, OWN])
def test_a_server_coordinates_a_tier_or_one_message_says_why_not(kind: str, place: str) -> None:
    tables = _world(kind, place)
    if kind not in SERVERS or (kind in OF_CLIENTS and place != "edge"):
        path = r"edges\.tiers\.0\.server" if place == "edge" else "server"
        with pytest.raises(UserError, match=rf"{path}\.kind = .{kind}.: .*; set kind = 'synchronous', .*") as refusal:
            build(parse(tables))
        assert len(str(refusal.value).splitlines()) == 1
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole_built, whole = played(tables)
        _, records = resumed(tables, 3)
    assert len(whole.rounds) == 6
    counts = whole_built.server.counts()
    assert counts["delivered"] > 0
    assert len(whole.updates) == counts["selected"]
    assert {row.edge for row in whole.edge_rounds} == {"edge-0", "edge-1", "edge-2"}
    assert_alike(records, whole)


def test_semi_synchronous_edges_by_hand() -> None:
    """Edges have the model at 1 s; their rounds last 1 s. Clients take .2 s on their links and .5, 1.5 s to train.

    Of edge 0, client 0 answers at 1.7 s, and again in the second round at 2.7 s; client 1 at 2.7 s: in the second round. The edge
    closes at 2 and 3 s; its model is up at 4 s.
    """
    rule = {"kind": "semi-synchronous", "round_s": 1.0}
    _, records = played(study(tier(rounds=2, server=rule), compute=constant([0.5, 1.5, 0.5, 0.5]), rounds=1))
    rounds = [(row.end_s, row.delivered, row.close_rule, row.closed_by) for row in records.edge_rounds if row.edge == "edge-0"]
    assert rounds == [(2.0, 1, "fixed length", "open"), (3.0, 2, "fixed length", "open")]
    assert records.rounds[0].end_s == pytest.approx(4.0)


def test_a_server_of_ones_own_at_edges_by_hand() -> None:
    """Edges close at the first of two deliveries: edge 0 at 1 + .7 s, edge 1 at 1 + 1.2 s; the model of that is up at 3.2 s."""
    tables = study(tier(server={"kind": OWN, "per_round": 2}), compute=constant([0.5, 2.0, 1.0, 2.0]), rounds=1)
    _, records = played(tables)
    assert [row.end_s for row in records.edge_rounds] == pytest.approx([1.7, 2.2])
    assert records.rounds[0].end_s == pytest.approx(3.2)
