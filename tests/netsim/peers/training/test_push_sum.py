"""Push-sum on the clock: by hand, the mean on graphs whose degrees differ, and weights that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, learning, models, protocol, ready, study, with_numbers

STAR = {"topology": {"kind": "star"}}
SECOND = {"delay": CONSTANT | {"value_s": 1.0}}


def push(**keys: Any) -> dict[str, Any]:
    return {"kind": "peers", "protocol": {"kind": "push-sum"} | keys}


def test_a_round_of_a_star_by_hand() -> None:
    # The centre, with 6, sends a third to each of two leaves, with 0 and 3, which send it a half.
    # Centre: 2 + 0 + 1.5 with the weight 1/3 + 1; leaves: 0 + 2 and 1.5 + 2 with the weight 1/2 + 1/3.
    tables = study(rounds=1, clients={"count": 3}, peers=STAR, server=push(), compute=SECOND)
    simulation, found = with_numbers(tables, [6.0, 0.0, 3.0])
    simulation.run()
    assert found()[:, 0] == pytest.approx([3.5 / (4 / 3), 2 / (5 / 6), 3.5 / (5 / 6)])
    assert simulation.server.peers.protocol._weight == pytest.approx([4 / 3, 5 / 6, 5 / 6])


def test_models_agree_on_the_mean_though_degrees_differ() -> None:
    simulation, found = with_numbers(study(rounds=80, peers=STAR, server=push(), compute=SECOND), [10.0, 0.0, 0.0, 0.0, 0.0])
    simulation.run()
    assert found()[:, 0] == pytest.approx(np.full(5, 2.0))
    # Means of each with its neighbours give the centre, which has more of them, a larger share.
    uniform = protocol() | {"mixing": {"kind": "uniform"}}
    other, found = with_numbers(study(rounds=80, peers=STAR, server=uniform, compute=SECOND), [10.0, 0.0, 0.0, 0.0, 0.0])
    other.run()
    assert found()[:, 0] == pytest.approx(np.full(5, 10 * 5 / 13))


def test_steps_are_added_to_the_sum() -> None:
    steps = np.arange(5.0)
    simulation, found = with_numbers(study(rounds=7, peers=STAR, server=push(), compute=SECOND), np.zeros(5), steps=steps)
    simulation.run()
    weight = simulation.server.peers.protocol._weight
    assert weight.sum() == pytest.approx(5.0)
    assert (weight * found()[:, 0]).sum() == pytest.approx(7 * steps.sum())


@pytest.mark.parametrize("keys", [{"retry_s": 0.2}, {"retry_s": 0.2, "timeout_s": 0.3}])
def test_weights_and_sums_are_kept_though_messages_are_late_and_peers_away(keys: dict[str, Any]) -> None:
    lossy = {"topology": {"kind": "barabasi-albert"}, "channel": {"kind": "bernoulli", "success": 0.6}, "delay": EXPONENTIAL}
    tables = study(rounds=30, clients={"count": 9}, peers=lossy, server=push(**keys), output={})
    tables["availability"] = {"kind": "markov", "mean_on_s": 10.0, "mean_off_s": 2.0}
    simulation, found = with_numbers(tables, np.arange(9.0))
    simulation.run()
    host = simulation.server.peers
    own, vectors = host.protocol, host.models.vectors
    # A peer that waits has kept a part; one that trains has the weight times its model.
    kept, trained = np.array([vectors[part][0] for part in own._part.tolist()]), own._weight * found()[:, 0]
    parts = list(zip(np.where(own._ready, kept, trained).tolist(), own._weight.tolist(), strict=True))
    parts += [(vectors[model][0], weight) for late in own._late for model, weight in late]
    parts += [
        (vectors[model][0], own._weights[peer][round, edge])
        for peer, rounds in enumerate(own._barrier._arrived)
        for round, models_of in rounds.items()
        for edge, model in models_of.items()
    ]
    under_way = (*host.transport.under_way(), *host.transport.paused.values())
    parts += [(vectors[message.content[0]][0], message.content[1]) for message in under_way]
    assert sum(weight for _, weight in parts) == pytest.approx(9.0)
    assert sum(value for value, _ in parts) == pytest.approx(36.0)


def test_on_a_complete_graph_it_is_d_psgd_with_equal_weights() -> None:
    peers = {"topology": {"kind": "complete"}}
    simulation, _ = ready(learning(peers=peers, server=push()))
    other, _ = ready(learning(peers=peers))
    simulation.run()
    other.run()
    np.testing.assert_allclose(models(simulation), models(other), atol=2e-6)
