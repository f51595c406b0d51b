"""A learner whose messages are compressed, against a plain loop over its clients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from models.errors import AnswerError, ParameterError
from models.fl.aggregation.rules import Arrivals, Equal, MajorityVote, Mixing, Polynomial
from models.fl.compression.declared import Declared
from models.fl.compression.int8 import Int8
from models.fl.compression.none import NoCompression
from models.fl.compression.one_bit import OneBit
from models.fl.compression.qsgd import Qsgd
from models.fl.compression.random_k import RandomK
from models.fl.compression.sign import Sign
from models.fl.compression.top_k import TopK
from models.fl.networks.kinds import cnn
from models.fl.privacy.mechanisms import L2
from netsim.core.streams import Streams
from tests.helpers.learners import SIZES, deliver, make, model

TENSORS = [8 * 16, 8, 5 * 8, 5]
TOP = TopK(share=0.1)
KINDS = [TOP, TopK(share=0.1, error_feedback=False), RandomK(share=0.2), RandomK(share=0.2, error_feedback=True)]
KINDS += [Qsgd(levels=2), Int8(), Sign(scale="mean"), Sign(scale="mean", error_feedback=False)]
KINDS += [OneBit(), OneBit(error_feedback=False)]


def at(learner, start: np.ndarray):
    """`learner`, whose model is now `start`."""
    state = learner.state_dict()
    state["models"] = np.full_like(np.stack(state["models"]), start)
    learner.load_state_dict(state)
    return learner


class Reference:
    """One client after the other: what it would send uncompressed, and what it has left out."""

    def __init__(self, compression, **named) -> None:
        self.compression, self.named = compression, named
        self.left = {client: torch.zeros(sum(TENSORS)) for client in range(4)}
        self.sent = {client: torch.zeros(sum(TENSORS)) for client in range(4)}
        self.trained = {client: torch.zeros(sum(TENSORS)) for client in range(4)}

    def update(self, start: np.ndarray, round: int, client: int, epsilon: float = math.inf) -> torch.Tensor:
        plain = at(make(**self.named), start)
        trained = torch.from_numpy(plain.aggregate(deliver(round, [client], 0, epsilon), True).updates[0]).float()
        before = trained + self.left[client]
        generator = Streams(0).generator("update-compression", round, client)
        after = self.compression.compress(before[None], TENSORS, lambda row: generator)[0]
        if self.compression.error_feedback:
            self.left[client] = before - after
        self.sent[client] += after
        self.trained[client] += trained
        return after


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("compression", KINDS, ids=lambda kind: f"{type(kind).__name__}-{kind.error_feedback}")
def test_what_arrives_is_what_a_plain_loop_compresses(compression):
    learner, reference = make(compression=compression), Reference(compression)
    for round, clients in enumerate(([0, 1, 3], [3, 0], [2, 0, 1], [0, 3, 2, 1]), start=1):
        start = model(learner)
        arrived = learner.aggregate(deliver(round, clients, learner.version), True).updates
        expected = np.stack([reference.update(start, round, client) for client in clients])
        np.testing.assert_allclose(arrived, expected, atol=2e-5)
        sizes = np.array([SIZES[client] for client in clients])
        np.testing.assert_allclose(model(learner), start + sizes / sizes.sum() @ expected, atol=2e-5)


def test_nothing_is_lost_for_good_with_error_feedback():
    learner, reference = make(compression=TOP), Reference(TOP)
    for round in range(1, 7):
        start = model(learner)
        # Client 2 takes part in every second round only.
        clients = [0, 2] if round % 2 else [0, 1]
        learner.aggregate(deliver(round, clients, learner.version), False)
        for client in clients:
            reference.update(start, round, client)
    left = {client: torch.from_numpy(row) for client, row in zip(*learner.state_dict()["left_out"].values(), strict=True)}
    assert sorted(left) == [0, 1, 2]
    for client, row in left.items():
        # What was sent and what is left out make up all that was trained.
        torch.testing.assert_close(reference.sent[client] + row, reference.trained[client], atol=1e-4, rtol=1e-4)
        assert float(row.norm()) > 0.1 * float(reference.trained[client].norm())


def test_an_update_that_is_not_delivered_changes_no_memory():
    # Whoever is never delivered has none, and delivering another client changes nobody else's.
    learner = make(compression=TOP)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    before = learner.state_dict()["left_out"]
    learner.aggregate(deliver(2, [1], 1), False)
    after = learner.state_dict()["left_out"]
    assert before["clients"] == after["clients"] == [0, 1]
    np.testing.assert_array_equal(before["vectors"][0], after["vectors"][0])
    assert not np.array_equal(before["vectors"][1], after["vectors"][1])


def test_a_client_that_arrives_twice_goes_on_from_the_first_time():
    learner, reference = make(compression=TOP, versions_kept=5), Reference(TOP)
    start = model(learner)
    arrived = learner.aggregate(deliver(3, [1, 0, 1], 0, rounds=[1, 1, 2]), True).updates
    expected = np.stack([reference.update(start, round, client) for round, client in ((1, 1), (1, 0), (2, 1))])
    np.testing.assert_allclose(arrived, expected, atol=2e-5)


def test_updates_wanted_while_they_wait_leave_the_memory_alone():
    learner, at_once = make(compression=TOP, buffer=2), make(compression=TOP)
    assert learner.aggregate(deliver(1, [0], 0), True).updates is not None
    assert learner.state_dict()["left_out"]["clients"] == []
    learner.aggregate(deliver(1, [1], 0), True)
    at_once.aggregate(deliver(1, [0, 1], 0), True)
    np.testing.assert_allclose(model(learner), model(at_once), atol=1e-6)


@pytest.mark.parametrize("compression", [TOP, Qsgd(levels=2), RandomK(share=0.3), Int8(), Sign(scale="mean")])
def test_results_are_the_same_in_any_company(compression):
    together = make(compression=compression).aggregate(deliver(1, [0, 1, 2, 3], 0), True).updates
    otherwise = make(compression=compression).aggregate(deliver(1, [2, 0], 0), True).updates
    np.testing.assert_allclose(otherwise, together[[2, 0]], atol=1e-5)


@pytest.mark.parametrize("compression", [TOP, Qsgd(levels=2)])
def test_a_resumed_learner_goes_on_the_same(compression):
    methods = {"compression": compression, "down_compression": Int8()}
    straight = make(**methods)
    straight.aggregate(deliver(1, [0, 1, 2], 0), False)
    resumed = make(**methods)
    resumed.load_state_dict(straight.state_dict())
    for learner in (straight, resumed):
        learner.aggregate(deliver(2, [2, 0], 1), False)
    np.testing.assert_array_equal(model(straight), model(resumed))
    for mine, theirs in zip(*(learner.state_dict()["left_out"]["vectors"] for learner in (straight, resumed)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_update_is_clipped_and_noised_before_it_is_compressed():
    mechanism = L2(sensitivity=0.5, delta=1e-5)
    learner, reference = make(mechanism=mechanism, compression=TOP), Reference(TOP, mechanism=mechanism)
    for round in (1, 2):
        start = model(learner)
        arrived = learner.aggregate(deliver(round, [0, 1], learner.version, 2.0), True).updates
        # The reference's memory is of noised updates, since those are all that it ever sees.
        expected = np.stack([reference.update(start, round, client, 2.0) for client in (0, 1)])
        np.testing.assert_allclose(arrived, expected, atol=2e-5)
        assert ((arrived != 0).sum(1) == math.ceil(0.1 * sum(TENSORS))).all()


def test_clients_start_from_the_model_as_it_arrives():
    learner = make(down_compression=Qsgd(levels=8), aggregation=Equal())
    start = model(learner)
    generator = Streams(0).generator("model-compression", 0)
    received = Qsgd(levels=8).compress(torch.from_numpy(start)[None], TENSORS, lambda row: generator)[0].numpy()
    assert float(np.abs(received - start).max()) > 1e-3
    updates = learner.aggregate(deliver(1, [0, 3], 0), True).updates
    # An update is the difference to what the client received, added to the server's own model.
    np.testing.assert_allclose(updates, at(make(), received).aggregate(deliver(1, [0, 3], 0), True).updates, atol=1e-5)
    np.testing.assert_allclose(model(learner), start + updates.mean(0), atol=1e-6)
    # The model of a client is mixed into the server's as it is.
    mixing = make(down_compression=Qsgd(levels=8), aggregation=Mixing(alpha=1.0))
    update = mixing.aggregate(deliver(1, [2], 0), True).updates[0]
    np.testing.assert_allclose(model(mixing), received + update, atol=1e-5)


def test_sizes_of_a_learners_messages():
    numbers = sum(TENSORS)
    assert (make().up_bytes, make().down_bytes) == (4 * numbers, 4 * numbers)
    learner = make(compression=TOP, down_compression=Int8())
    kept = math.ceil(0.1 * numbers)
    assert learner.up_bytes == math.ceil(kept * (32 + 8) / 8)
    assert learner.down_bytes == numbers + 4 * 8


def test_running_statistics_are_sent_as_they_are():
    network = lambda: cnn((1, 4, 4), 5, seed=1, channels=[2], hidden=[4], norm="batch")  # noqa: E731
    plain, learner = make(network=network()), make(network=network(), compression=TOP, down_compression=Int8())
    width, statistics = sum(plain.release.tensors), plain.release.numbers - sum(plain.release.tensors)
    assert statistics == 2 * 2 + 2 * 4
    assert learner.up_bytes == math.ceil(math.ceil(0.1 * width) * (32 + (width - 1).bit_length()) / 8) + 4 * statistics
    assert learner.down_bytes == width + 8 * len(plain.release.tensors) + 4 * statistics
    only_up = make(network=network(), compression=TOP)
    for one in (plain, only_up):
        one.aggregate(deliver(1, [1, 3], 0), False)
    np.testing.assert_allclose(model(plain)[width:], model(only_up)[width:], atol=1e-6)
    assert not np.allclose(model(plain)[:width], model(only_up)[:width], atol=1e-4)
    down = make(network=network(), down_compression=Int8(rounding="nearest"))
    start = model(down)
    parameters = Int8(rounding="nearest").compress(torch.from_numpy(start)[None, :width], plain.release.tensors, lambda row: None)
    received = np.concatenate([parameters[0].numpy(), start[width:]])
    at(plain := make(network=network()), received)
    for one in (plain, down):
        one.aggregate(deliver(1, [1, 3], 0), False)
    np.testing.assert_allclose(model(down) - start, model(plain) - received, atol=1e-5)


def test_a_diverged_update_is_refused_and_leaves_the_memory_alone():
    learner = make(compression=TOP)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    before = learner.state_dict()["left_out"]["vectors"]
    huge = model(learner) * 1e30
    at(learner, huge)
    learner.aggregate(deliver(2, [0], 1), False)
    assert learner.refused_updates == 1
    np.testing.assert_array_equal(before[0], learner.state_dict()["left_out"]["vectors"][0])


def vote(rows, *, factors=None, **options) -> list[float]:
    updates = torch.tensor(rows)
    arrivals = Arrivals(np.ones(len(rows), np.int64), np.zeros(len(rows), np.int64), None, lambda: np.random.default_rng(3))
    weights = np.ones(len(rows)) if factors is None else np.array(factors)
    return MajorityVote(**options).step(updates[0], updates, updates, arrivals, weights).tolist()


def test_votes_by_hand():
    rows = [[1.0, -1.0, 1.0, 0.0], [1.0, -1.0, -1.0, 0.0], [-1.0, -1.0, 0.0, 0.0]]
    assert vote(rows, learning_rate=0.5) == [0.5, -0.5, 0.0, 0.0]
    # The sizes of updates do not count, whatever they are.
    assert vote([[900.0, -1e-9, 3.0, 0.0], *rows[1:]], learning_rate=0.5) == [0.5, -0.5, 0.0, 0.0]
    # A stale voter counts less: one vote against half a vote.
    assert vote([[1.0], [-1.0]], learning_rate=1.0, factors=[0.5, 1.0]) == [-1.0]
    tied = [[1.0] * 1000, [-1.0] * 1000]
    drawn = vote(tied, learning_rate=1.0, tie="random")
    assert set(drawn) == {-1.0, 1.0}
    assert stats.binomtest(drawn.count(1.0), 1000, 0.5).pvalue > 1e-3
    assert drawn == vote(tied, learning_rate=1.0, tie="random")


def test_a_vote_errs_as_often_as_a_binomial_law_says():
    voters, right, coordinates = 9, 0.6, 20_000
    signs = np.where(np.random.default_rng(1).random((voters, coordinates)) < right, 1.0, -1.0)
    wrong = sum(value < 0 for value in vote(signs.astype(np.float32).tolist(), learning_rate=1.0))
    expected = stats.binom(voters, right).cdf(voters // 2)
    assert stats.binomtest(wrong, coordinates, expected).pvalue > 1e-3


def test_signs_are_voted_on():
    learner, plain = make(compression=Sign(), aggregation=MajorityVote(learning_rate=0.01)), make()
    start = model(learner)
    trained = plain.aggregate(deliver(1, [0, 1, 3], 0), True).updates
    arrived = learner.aggregate(deliver(1, [0, 1, 3], 0), True).updates
    assert (trained != 0).all()
    np.testing.assert_array_equal(arrived, np.sign(trained))
    np.testing.assert_allclose(model(learner) - start, 0.01 * np.sign(np.sign(trained).sum(0)), atol=1e-6)
    assert learner.up_bytes == math.ceil(sum(TENSORS) / 8)
    stale = make(compression=Sign(), aggregation=MajorityVote(learning_rate=0.01), staleness=Polynomial(), versions_kept=3)
    stale.aggregate(deliver(1, [0], 0), False)
    stale.aggregate(deliver(2, [1, 2], np.array([1, 0])), False)
    assert np.isfinite(model(stale)).all()


class WrongShape(TopK):
    def compress(self, rows, tensors, generators):
        return rows[:, 1:]


class WrongSize(TopK):
    def message_bytes(self, tensors):
        return 10.5


def no_parameters(*_) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(5))


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"compression": Sign()}, "compression: signs have no magnitude: set aggregation.kind = 'majority-vote'"),
        ({"compression": Declared(ratio=0.5)}, r"compression.ratio = 0.5: is for studies without a \[learner\]"),
        ({"down_compression": Declared(ratio=0.5)}, "down_compression.ratio = 0.5: is for studies"),
        ({"down_compression": TOP}, "down_compression: leaves out of a model what its receiver cannot"),
        (
            {"aggregation": MajorityVote(learning_rate=1.0), "network": cnn((1, 4, 4), 5, seed=1, channels=[2], norm="batch")},
            "aggregation.kind = 'majority-vote': running statistics of batch normalisation cannot be voted on",
        ),
        ({"compression": TOP, "network": no_parameters()}, "network: it has no parameters: there is nothing to train or to send"),
    ],
)
def test_what_makes_no_sense_is_refused(methods, said):
    with pytest.raises(ParameterError, match=said):
        make(**methods)


def test_what_a_compression_of_ones_own_returns_is_checked():
    with pytest.raises(AnswerError, match=r"message_bytes returned 10.5; must be a whole number of bytes"):
        make(compression=WrongSize(share=0.5))
    learner = make(compression=WrongShape(share=0.5))
    with pytest.raises(AnswerError, match=r"compress returned \(2, 180\); must be a tensor of shape \(2, 181\)"):
        learner.aggregate(deliver(1, [0, 1], 0), False)


def test_without_compression_nothing_is_copied():
    rows = torch.ones(2, 3)
    assert NoCompression().compress(rows, [3], lambda row: np.random.default_rng()) is rows
    learner = make()
    learner.aggregate(deliver(1, [0, 1], 0), False)
    assert learner.state_dict()["left_out"] == {"clients": [], "vectors": []}
