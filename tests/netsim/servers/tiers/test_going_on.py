"""Edges that go on training while their model travels: by hand both ways, with models, as edges go away, and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.edge_tiers import assert_alike, constant, learning, played, ready, resumed, study, tier

RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}


@pytest.mark.parametrize(("goes_on", "ends_s"), [(False, [3.4, 6.8, 10.2]), (True, [3.4, 5.4, 7.4])])
def test_rounds_with_and_without_going_on_by_hand(goes_on: bool, ends_s: list[float]) -> None:
    """Models take 1 s each way, a round of an edge .7 s; a term has two rounds.

    An edge that waits needs 1 + 1.4 + 1 s. One that goes on sends its model at 2.4 s, makes both rounds of its next term by
    3.8 s, and has the next model at 4.4 s: it sends its own at once, which is there at 5.4 s, and so on every 2 s.
    """
    _, records = played(study(tier(rounds=2, goes_on=goes_on)))
    assert [row.end_s for row in records.rounds] == pytest.approx(ends_s)
    if goes_on:
        mine = [(row.end_s, row.term) for row in records.edge_rounds if row.edge == "edge-0"]
        first, second, third = (row.number for row in records.edges if row.edge == "edge-0")
        assert mine[:4] == [
            (pytest.approx(1.7), first),
            (pytest.approx(2.4), first),
            (pytest.approx(3.1), first),
            (pytest.approx(3.8), first),
        ]
        assert [term for _, term in mine[4:]] == [second, second, third, third][: len(mine) - 4]
        terms = [(row.term_start_s, row.term_end_s) for row in records.edges if row.edge == "edge-0"]
        assert terms[1] == (pytest.approx(4.4), pytest.approx(4.4))


def test_a_term_goes_on_until_its_rounds_are_made_by_hand() -> None:
    """Rounds of 1.7 s, two a term: sent at 4.4 s; the next model is there at 6.4 s, and the two rounds end at 6.1 and 7.8 s."""
    _, records = played(study(tier(rounds=2, goes_on=True), compute=constant(1.5), rounds=2))
    assert [row.end_s for row in records.rounds] == pytest.approx([5.4, 8.8])


def test_the_model_that_arrives_gets_what_was_learnt_meanwhile() -> None:
    """One edge of one round a term: it sends A, learns on to B, and gets the server's model, which is A: its model is then B.

    So with one edge for all, going on is federated averaging step for step, and sooner.
    """
    tiers = {"count": 1, "rounds": 1}
    waiting, _ = ready(learning(tier(**tiers), server={"per_round": 1}, rounds=4))
    going_on, _ = ready(learning(tier(**tiers, goes_on=True), server={"per_round": 1}, rounds=4))
    waiting.simulation.run()
    going_on.simulation.run()
    np.testing.assert_allclose(going_on.trained.model.numpy(), waiting.trained.model.numpy(), atol=5e-6)
    assert going_on.simulation.clock.now < waiting.simulation.clock.now


def test_two_edges_that_go_on_add_what_they_have_learnt_to_the_mean() -> None:
    """Edges send A and B of a first round, and go on to A' and B'. Each adds its step, A' - A or B' - B, to the mean M.

    M is that of A and B by samples, and the second model of the server that of M + A' - A and M + B' - B: of A' and B'.
    """
    built, _ = ready(learning(tier(goes_on=True), rounds=2))
    built.simulation.run(until_round=1)
    edges = built.server.edges
    # The first model is at the server at 2.7 s; the rounds ahead ended at 2.4 s.
    ahead = np.stack([edge.models._versions.model.numpy() for edge in edges])
    sizes = np.array(built.trained.data_sizes, float)
    weights = np.array([sizes[:2].sum(), sizes[2:].sum()]) / sizes.sum()
    built.simulation.run()
    np.testing.assert_allclose(built.trained.model.numpy(), weights @ ahead, atol=5e-6)


def test_an_edge_that_goes_away_while_its_model_travels_stops(tmp_path: Path) -> None:
    """Edge 1 goes on at 1.7 s and away at 2 s: its model, under way until 2.7 s, is lost, and so are its members' updates."""
    file = tmp_path / "presence.csv"
    file.write_text("client,start_s,end_s\n0,0,100\n1,0,2\n1,4,100\n")
    edges = {"availability": {"kind": "trace", "path": str(file)}}
    _, records = played(study(tier(goes_on=True), edges=edges, rounds=1))
    lost = [(row.client, row.outcome, row.cause, row.outcome_s) for row in records.updates if row.cause == "above"]
    assert lost == [(2, "aborted", "above", 2.0), (3, "aborted", "above", 2.0)]
    (failed,) = (row for row in records.edges if row.outcome == "aborted")
    assert (failed.edge, failed.outcome_s) == ("edge-1", 2.0)


def test_an_edge_that_goes_away_before_the_next_model_arrives_stops(tmp_path: Path) -> None:
    """With two rounds a term: sent at 2.4 s, there at 3.4 s; rounds ahead until 3.1 and 3.8 s; the next model comes at 4.4 s.

    Edge 1 goes away at 3.5 s, in the second of them, and is back at 9 s.
    """
    file = tmp_path / "presence.csv"
    file.write_text("client,start_s,end_s\n0,0,100\n1,0,3.5\n1,9,100\n")
    edges = {"availability": {"kind": "trace", "path": str(file)}}
    _, records = played(study(tier(rounds=2, goes_on=True), edges=edges, rounds=2))
    lost = [(row.client, row.cause, row.outcome_s) for row in records.updates if row.outcome == "aborted"]
    assert lost == [(2, "above", 3.5), (3, "above", 3.5)]
    assert [row.end_s for row in records.edge_rounds if row.edge == "edge-1"] == pytest.approx([1.7, 2.4, 3.1])


MARKOV = {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 3.0}
RULES: dict[str, Any] = {
    "synchronous": {},
    "buffered": {"server": {"kind": "buffered", "buffer": 2}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "round_s": 0.8}},
}


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("above", ["synchronous", "buffered"])
def test_resumed_in_the_middle_an_edge_goes_on(name: str, above: str) -> None:
    link = {"delay": RANDOM, "channel": {"kind": "bernoulli", "success": 0.9}}
    edges = {"downlink": link, "uplink": link, "availability": MARKOV}
    make = learning if name == "buffered" else study
    tables = make(tier(rounds=2, goes_on=True, **RULES[name]), edges=edges, compute={"delay": RANDOM}, uplink=link, rounds=8)
    tables |= {"availability": MARKOV, "time_limit_s": 60.0}
    if above == "buffered":
        tables |= {"server": {"kind": "buffered", "concurrency": 2}, "policy": {"kind": "random"}}
    whole_built, whole = played(tables)
    for cut in (2, 5):
        built, records = resumed(tables, cut)
        assert_alike(records, whole)
        if make is learning:
            np.testing.assert_array_equal(built.trained.model.numpy(), whole_built.trained.model.numpy())
    counts = whole_built.server.counts()
    assert counts["selected"] == sum(counts[outcome] for outcome in ("delivered", "lost", "late", "aborted", "in_flight"))
