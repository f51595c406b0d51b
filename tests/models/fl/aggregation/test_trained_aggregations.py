"""SCAFFOLD, FedDyn, FedNova and q-FFL: numbers by hand, plain loops, limits, what clients keep, and what does not go together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from models.errors import ParameterError
from models.fl.aggregation.feddyn import FedDyn
from models.fl.aggregation.fednova import FedNova, sum_weights
from models.fl.aggregation.q_ffl import QFfl
from models.fl.aggregation.rules import BySize, Equal
from models.fl.aggregation.scaffold import Scaffold
from models.fl.aggregation.server_optimizers import FedAdam, ServerSgd
from models.fl.compression.int8 import Int8
from models.fl.options.demands import LocalSteps
from models.fl.privacy.mechanisms import PerCoordinate
from models.fl.training.optimizers import Adam, Sgd
from models.laws.work import WorkPlan
from netsim.core.streams import Streams
from tests.helpers.fl_reference import draw_passes, flatten
from tests.helpers.learners import SIZES, deliver, make, model
from tests.helpers.quadratics import quadratics
from tests.helpers.suites import each_nth
from tests.helpers.trained_networks import SGD, TWO, network, rounds, trained

torch.set_num_threads(1)


def correction(learner) -> tuple[dict[int, float], float]:
    """The vector of each client, and the mean, of a learner of one parameter."""
    state = learner.state_dict()["corrections"]
    own = {client: float(vector[0]) for client, vector in zip(*state["own"].values(), strict=True)}
    return own, float(state["mean"][0])


def test_scaffold_by_hand():
    plan = WorkPlan(steps=2)
    learner = quadratics(**TWO, aggregation=Scaffold(), plan=plan)
    assert rounds(learner, 1) == pytest.approx([0.255])
    own, mean = correction(learner)
    assert (own[0], own[1], mean) == (pytest.approx(0.0, abs=1e-6), pytest.approx(-2.55), pytest.approx(-1.275))
    assert rounds(learner, 1) == pytest.approx([0.4335])
    own, mean = correction(learner)
    assert (own[0], own[1], mean) == (pytest.approx(0.306), pytest.approx(-2.091), pytest.approx(-0.8925))
    assert rounds(learner, 200)[-1] == pytest.approx(0.75, abs=1e-5)
    plain = quadratics(**TWO, aggregation=Equal(), plan=plan)
    first, *_, last = rounds(plain, 200)
    assert first == pytest.approx(0.255)
    assert last == pytest.approx(0.72857, abs=1e-5)


def test_a_server_rate_scales_scaffolds_step():
    learner = quadratics(**TWO, aggregation=Scaffold(), plan=WorkPlan(steps=2), server_optimizer=ServerSgd(learning_rate=0.5))
    assert rounds(learner, 1) == pytest.approx([0.1275])


@pytest.mark.parametrize("alpha", each_nth(2, [1.0, 0.1]))
def test_feddyn_by_hand(alpha):
    # Local steps of rate 0.3 contract by 0.67 or more: 30 of them are the exact solution.
    learner = quadratics(**TWO, aggregation=FedDyn(alpha=alpha), rate=0.3, plan=WorkPlan(steps=30))
    first = rounds(learner, 1)[0]
    theta = 3 / (3 + alpha)
    own, mean = correction(learner)
    assert own == {0: pytest.approx(0.0, abs=1e-5), 1: pytest.approx(theta, abs=1e-5)}
    assert mean == pytest.approx(theta / 2, abs=1e-5)
    # w = mean of theta_k - h/alpha, h/alpha = minus the mean of H_k.
    assert first == pytest.approx({0.1: 0.96774, 1.0: 0.75}[alpha], abs=1e-5)
    assert rounds(learner, {0.1: 120, 1.0: 50}[alpha])[-1] == pytest.approx(0.75, abs=2e-3)


def test_with_a_large_alpha_feddyns_local_steps_vanish():
    for alpha in (1e2, 1e4):
        learner = quadratics(**TWO, aggregation=FedDyn(alpha=alpha), rate=1 / alpha, plan=WorkPlan(steps=30))
        assert rounds(learner, 1)[0] == pytest.approx(3 / (3 + alpha), rel=1e-3)


def test_what_local_steps_add_up_to():
    def norms(steps, **named):
        return sum_weights(LocalSteps(np.array(steps), **{"rate": 0.1, **named})).tolist()

    assert norms([0, 1, 2, 7]) == [0, 1, 2, 7]
    assert norms([0, 2], momentum=0.9) == pytest.approx([0, 2.9])
    assert norms([2, 3], proximal=1.0) == pytest.approx([1.9, 2.71])


def test_momentum_and_a_proximal_term_add_up_as_they_do_in_training():
    # A client whose gradient is always 1 moves by the rate times the sum of the weights of its gradients.
    steps, rate, rho, mu = 6, 0.1, 0.8, 0.5
    at, velocity = 0.0, 0.0
    for _ in range(steps):
        velocity = rho * velocity + 1.0 + mu * at
        at -= rate * velocity
    assert sum_weights(LocalSteps(np.array([steps]), rate, rho, mu))[0] == pytest.approx(-at / rate)


def test_fixed_points_of_fednova_and_of_the_mean():
    # One step moves client 0 by 0.1 of its way, three move client 1 by 0.271. The mean rests at 0.271 / 0.371; FedNova, which
    # divides by the steps, at (0.271 / 3) / (0.1 + 0.271 / 3).
    at, plan = {"curvatures": [1.0, 1.0], "optima": [0.0, 1.0], "rate": 0.1}, WorkPlan(steps=np.array([1, 3]))
    assert rounds(quadratics(**at, aggregation=FedNova(), plan=plan), 60)[-1] == pytest.approx(0.47461, abs=2e-5)
    assert rounds(quadratics(**at, aggregation=BySize(), plan=plan), 60)[-1] == pytest.approx(0.73046, abs=2e-5)


def test_fednova_by_hand():
    # Sizes 1, 1, 2, of which clients 0 and 2 deliver: p = 1/3, 2/3; steps 2 and 1 at rate 0.1 from 0, gradients x - e.
    learner = quadratics(
        curvatures=[1.0, 1.0, 1.0],
        optima=[1.0, 5.0, -1.0],
        sizes=[1, 1, 2],
        aggregation=FedNova(),
        plan=WorkPlan(steps=np.array([2, 9, 1])),
    )
    # Client 0: 0.1, 0.19; client 2: -0.1. tau_eff = 2/3 + 2/3.
    assert rounds(learner, 1, (0, 2)) == pytest.approx([4 / 3 * (0.19 / 2 / 3 - 0.1 * 2 / 3)])
    prox = quadratics(**TWO, aggregation=FedNova(), plan=WorkPlan(steps=np.array([1, 2])), proximal=1.0)
    # Client 1: 0.3, then 0.3 + 0.1 (2.1 - 0.3) = 0.48; |a| = 1.9, and tau_eff is of the steps: 1.5.
    assert rounds(prox, 1) == pytest.approx([1.5 * 0.48 / 1.9 / 2])


def test_with_as_many_steps_fednova_is_federated_averaging():
    sgd = {"optimizer": Sgd(learning_rate=0.1, momentum=0.9)}
    nova, mean = make(**sgd, aggregation=FedNova(), plan=WorkPlan(steps=3)), make(**sgd, plan=WorkPlan(steps=3))
    for learner in (nova, mean):
        learner.aggregate(deliver(1, [0, 2, 3], 0), False)
    np.testing.assert_allclose(model(nova), model(mean), atol=1e-6)


def test_an_update_without_a_step_is_left_out_of_fednova():
    # Batches of a single sample are left out where the network normalises; client 0 has nothing else.
    layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))
    named = {"optimizer": Sgd(learning_rate=0.1), "network": layers, "aggregation": FedNova()}
    single, three = (make(**named, plan=WorkPlan(batch_size=np.array([1, 8, 8, 8]))) for _ in range(2))
    single.aggregate(deliver(1, [0, 1, 2], 0), False)
    three.aggregate(deliver(1, [1, 2], 0), False)
    np.testing.assert_allclose(model(single), model(three), atol=1e-7)
    nobody = make(**named, plan=WorkPlan(batch_size=1))
    before = model(nobody)
    nobody.aggregate(deliver(1, [0, 1], 0), False)
    np.testing.assert_array_equal(before, model(nobody))


def plain(kind, deliveries, *, rate, alpha=None):
    """The model after these deliveries by SCAFFOLD, or with `alpha` by FedDyn: one client and one step after the other."""
    module, streams = network(kind), Streams(0)
    parts = np.split(np.arange(100), np.cumsum(SIZES)[:-1])
    w = flatten(module).detach()
    own, server = torch.zeros(4, len(w)), torch.zeros(len(w))
    for round, clients in enumerate(deliveries, 1):
        moved, changes = torch.zeros_like(w), torch.zeros_like(w)
        for k in clients:
            batches = draw_passes(parts[k], streams.generator("batches", round, k), batch_size=8, epochs=2)
            shift, pull = (server - own[k], 0.0) if alpha is None else (alpha * own[k], alpha)
            y = trained(module, w, batches, rate=rate, shift=shift, pull=pull)
            new = own[k] - server + (w - y) / (len(batches) * rate) if alpha is None else own[k] + y - w
            moved, changes, own[k] = moved + y - w, changes + new - own[k], new
        server = server + changes / 4
        w = w + moved / len(clients) + (0.0 if alpha is None else server)
    return w.numpy()


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("kind", ["hand", "vmap", "alone"])
@pytest.mark.parametrize("alpha", [None, 0.2])
def test_three_rounds_of_four_clients_are_the_plain_loop(kind, alpha):
    deliveries = [[0, 3], [1, 0, 2], [3, 1]]
    aggregation = Scaffold() if alpha is None else FedDyn(alpha=alpha)
    learner = make(network=network(kind), optimizer=Sgd(learning_rate=0.1), aggregation=aggregation, epochs=2)
    assert learner.training_mode.startswith("sequential" if kind == "alone" else "vectorised")
    for round, clients in enumerate(deliveries, 1):
        learner.aggregate(deliver(round, clients, learner.version), False)
    np.testing.assert_allclose(model(learner), plain(kind, deliveries, rate=0.1, alpha=alpha), atol=2e-5)


@pytest.mark.parametrize("aggregation", [Scaffold, FedDyn])
def test_the_mean_is_that_of_all_clients_vectors(aggregation):
    # Clients 0 and 2 take part and lose an update each, of which the learner is never told; 3 never delivers.
    learner = make(optimizer=Sgd(learning_rate=0.1), aggregation=aggregation())
    for round, delivered in enumerate([[0, 1], [1], [2, 0], [1, 2]], 1):
        learner.aggregate(deliver(round, delivered, learner.version), False)
    state = learner.state_dict()["corrections"]
    assert sorted(state["own"]["clients"]) == [0, 1, 2]
    np.testing.assert_allclose(state["mean"], np.sum(state["own"]["vectors"], 0) / 4, atol=1e-6)
    assert np.abs(state["mean"]).max() > 1e-3


@pytest.mark.parametrize("aggregation", [Scaffold, FedDyn])
def test_an_update_that_is_refused_changes_no_vector(aggregation):
    learner = make(optimizer=Sgd(learning_rate=1e38), aggregation=aggregation(), epochs=3)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    assert learner.refused_updates == 2
    assert learner.state_dict()["corrections"]["own"]["clients"] == []
    assert not learner.state_dict()["corrections"]["mean"].any()


@pytest.mark.parametrize("aggregation", [Scaffold, FedDyn, FedNova])
def test_a_learner_goes_on_from_its_state(aggregation):
    straight, before, resumed = (make(optimizer=Sgd(learning_rate=0.1), aggregation=aggregation()) for _ in range(3))
    deliveries = [[0, 1], [1, 2], [3, 0], [2, 1]]
    for round, clients in enumerate(deliveries, 1):
        learner = before if round <= 2 else resumed
        straight.aggregate(deliver(round, clients, straight.version), False)
        learner.aggregate(deliver(round, clients, learner.version), False)
        if round == 2:
            resumed.load_state_dict(before.state_dict())
    np.testing.assert_array_equal(model(straight), model(resumed))


@pytest.mark.parametrize(("aggregation", "like"), [(Scaffold, Equal), (FedNova, BySize)])
def test_running_statistics_are_averaged_whatever_the_method(aggregation, like):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))
    chosen, mean = (make(optimizer=Sgd(learning_rate=0.1), network=layers, aggregation=one()) for one in (aggregation, like))
    start, width = model(mean), mean._trainer.parameters
    # Two and five steps.
    for learner in (chosen, mean):
        learner.aggregate(deliver(1, [0, 3], 0), False)
    assert np.abs((model(mean) - start)[width:]).max() > 1e-3
    np.testing.assert_allclose(model(chosen)[width:], model(mean)[width:], atol=1e-6)


def test_control_variates_double_the_message_and_what_is_trained_alone_has_them():
    sgd = {"optimizer": Sgd(learning_rate=0.1)}
    plain_bytes = make(**sgd).up_bytes
    scaffold, nova, dyn = (make(**sgd, aggregation=one) for one in (Scaffold(), FedNova(), FedDyn()))
    assert (scaffold.down_bytes, scaffold.up_bytes) == (2 * plain_bytes, 2 * plain_bytes)
    assert (nova.down_bytes, nova.up_bytes) == (plain_bytes, plain_bytes + 8)
    assert (dyn.down_bytes, dyn.up_bytes) == (plain_bytes, plain_bytes)
    last = make(**sgd, aggregation=Scaffold(), trained=["layers.1.*"])
    assert last.up_bytes == 2 * make(**sgd, trained=["layers.1.*"]).up_bytes
    before = model(last)
    for round in (1, 2):
        last.aggregate(deliver(round, [0, 1], last.version), False)
    moved = np.flatnonzero(model(last) != before)
    assert 0 < len(moved) <= 45
    assert len(last.state_dict()["corrections"]["mean"]) == 45
    assert moved.min() == len(before) - 45


def test_vectors_of_clients_have_a_limit_of_memory():
    # The network has 181 parameters: two clients take 1448 bytes.
    sgd = {"optimizer": Sgd(learning_rate=0.1), "aggregation": Scaffold(), "client_state_bytes": 1448}
    learner = make(**sgd)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    learner.aggregate(deliver(2, [1, 0], 1), False)
    with pytest.raises(MemoryError, match="client_state_bytes = 1448: the vectors that 3 clients keep, of 181 numbers each"):
        learner.aggregate(deliver(3, [2], 2), False)


def test_states_of_optimizers_have_the_same_limit():
    # Adam keeps two moments of 181 parameters.
    learner = make(optimizer=Adam(learning_rate=0.1), optimizer_state="kept", client_state_bytes=2 * 1448)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    learner.aggregate(deliver(2, [1, 0], 1), False)
    with pytest.raises(MemoryError, match="client_state_bytes = 2896: the vectors that 3 clients keep, of 362 numbers each"):
        learner.aggregate(deliver(3, [2], 2), False)


REFUSED = {
    "adam": ({"aggregation": Scaffold(), "optimizer": Adam(learning_rate=0.1)}, "optimizer.kind"),
    "momentum": ({"aggregation": Scaffold(), "optimizer": Sgd(learning_rate=0.1, momentum=0.9)}, "optimizer.momentum"),
    "proximal": ({"aggregation": Scaffold(), "optimizer": SGD, "proximal": 0.1}, "proximal"),
    "buffer": ({"aggregation": Scaffold(), "optimizer": SGD, "buffer": 2}, "buffer"),
    "privacy": ({"aggregation": Scaffold(), "optimizer": SGD, "mechanism": PerCoordinate(sensitivity=1.0)}, "mechanism"),
    "compression": ({"aggregation": Scaffold(), "optimizer": SGD, "compression": Int8()}, "compression"),
    "two pulls": ({"aggregation": FedDyn(), "optimizer": SGD, "proximal": 0.1}, "proximal"),
    "models compressed": ({"aggregation": FedDyn(), "optimizer": SGD, "down_compression": Int8()}, "down_compression"),
    "server": ({"aggregation": FedDyn(), "optimizer": SGD, "server_optimizer": FedAdam()}, "server_optimizer.kind"),
    "server rate": ({"aggregation": FedDyn(), "server_optimizer": ServerSgd(learning_rate=2)}, "server_optimizer.learning_rate"),
    "nova with adam": ({"aggregation": FedNova(), "optimizer": Adam(learning_rate=0.1)}, "optimizer.kind"),
    "kept momentum": (
        {"aggregation": FedNova(), "optimizer": Sgd(learning_rate=0.1, momentum=0.9), "optimizer_state": "kept"},
        "optimizer_state",
    ),
    "own training": ({"aggregation": FedNova(), "optimizer": SGD, "local_training": lambda *_: None}, "local_training"),
    "own steps": ({"aggregation": FedDyn(), "optimizer": SGD, "local_training": lambda *_: None}, "local_training"),
}


@pytest.mark.parametrize(("named", "key"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_together_is_refused(named, key):
    with pytest.raises(ParameterError) as error:
        make(**named)
    assert error.value.name == key


@pytest.mark.parametrize("aggregation", [Scaffold, FedDyn, FedNova])
def test_old_updates_are_refused(aggregation):
    learner = make(optimizer=SGD, aggregation=aggregation())
    learner.aggregate(deliver(1, [0], 0), False)
    for clients, version in (([1], 0), ([1, 1], 1)):
        with pytest.raises(ParameterError, match="goes with updates of the present model, one a client"):
            learner.aggregate(deliver(2, clients, version), False)


def test_bad_values_are_refused():
    with pytest.raises(ParameterError, match=r"^aggregation\.alpha = 0\.0: must be >= 1e-37"):
        FedDyn(alpha=0.0)
    with pytest.raises(ParameterError, match=r"^aggregation\.q = -1\.0: must be >= 0 and <= 100"):
        QFfl(q=-1.0)
    with pytest.raises(ParameterError, match=r"^aggregation\.renewal = 'both': must be steps or gradient"):
        Scaffold(renewal="both")
    with pytest.raises(ParameterError, match=r"^client_state_bytes = 0: must be >= 1"):
        make(client_state_bytes=0)
    assert math.isfinite(FedDyn().alpha)
