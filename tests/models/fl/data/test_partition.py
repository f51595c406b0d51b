from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from models.fl.data.partition import (
    PARTITIONS,
    dirichlet_sizes,
    dominant_label,
    equal,
    file,
    label_dirichlet,
    make_partition,
    mixed,
)

SPECS = [
    {"kind": "equal"},
    {"kind": "dirichlet-sizes", "concentration": 2.0},
    {"kind": "dominant-label", "concentration": 3.0},
    {"kind": "label-dirichlet", "concentration": 0.5},
    {"kind": "mixed", "iid_clients": 2, "concentration": 0.3},
]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(samples: int, classes: int = 10) -> np.ndarray:
    return np.arange(samples) % classes


@settings(max_examples=60)
@given(
    spec=st.sampled_from(SPECS),
    clients=st.integers(2, 30),
    extra=st.integers(0, 400),
    minimum=st.integers(1, 4),
    classes=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_every_partition_is_complete_disjoint_and_has_its_minimum(spec, clients, extra, minimum, classes, seed):
    labels = rng(seed).integers(0, classes, clients * minimum + extra)
    options = {**spec, "minimum": minimum}
    try:
        parts = make_partition(labels, options, clients=clients, generator=rng(seed))
    except ValueError as error:
        # Only a dominant label can be in too short supply.
        assert (spec["kind"], str(error)[:5]) == ("dominant-label", "share")  # noqa: PT017
        return
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert min(len(part) for part in parts) >= minimum
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s["kind"])
def test_the_generator_decides(spec):
    labels = balanced(500)
    first, again, other = (make_partition(labels, spec, clients=10, generator=rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_equal_sizes_by_hand():
    assert sorted(len(p) for p in equal(balanced(11), clients=4, generator=rng())) == [2, 3, 3, 3]


def test_dirichlet_sizes_have_the_variance_of_the_law():
    # Var of one share of Dirichlet(a, K entries) = (1/K)(1 - 1/K)/(K a + 1); K = 4, a = 2: 1/48.
    shares = np.array(
        [[len(p) for p in dirichlet_sizes(balanced(1000), clients=4, generator=rng(s), concentration=2.0)] for s in range(400)]
    )
    shares = shares / 1000
    # The 1600 squared deviations of 400 draws: standard error of their mean below 1.3e-3 (measured from the sample), 4 of them.
    squares = ((shares - 0.25) ** 2).mean(1)
    assert abs(squares.mean() - 1 / 48 * 1.0) < 4 * squares.std() / 20
    # First share against its marginal, Beta(a, (K-1) a); rounding and minimum move it by 1/1000.
    assert stats.kstest(shares[:, 0], stats.beta(2, 6).cdf).pvalue > 1e-3


def test_the_dominant_label_makes_up_its_share():
    labels = balanced(20_000)
    parts = dominant_label(labels, clients=20, generator=rng(3), concentration=3.0, share=0.25)
    counts = np.stack([np.bincount(labels[p], minlength=10) for p in parts])
    top = counts.max(1) / counts.sum(1)
    # Of about n = 1000 samples a sixth is dealt as the dominant label, the rest is drawn: sd of the share below sqrt(.09/n).
    sizes = counts.sum(1)
    assert (np.abs(top - 0.25) < 0.03 + 5 * np.sqrt(0.09 / sizes)).all()
    # Two clients for each of the ten labels.
    assert np.bincount(counts.argmax(1), minlength=10).tolist() == [2] * 10
    # Other labels: (1 - .25)/9 each.
    assert np.median(counts / sizes[:, None]) == pytest.approx(0.0833, abs=0.01)


def test_a_share_of_one_gives_every_client_a_single_label_or_refuses():
    labels = balanced(100)
    with pytest.raises(ValueError, match=r"^share = 1.0: no label has"):
        dominant_label(labels, clients=3, generator=rng(), concentration=1e6, share=1.0)
    parts = dominant_label(balanced(100, 2), clients=2, generator=rng(), concentration=1e9, share=1.0)
    assert sorted(len(np.unique(balanced(100, 2)[p])) for p in parts) == [1, 1]


def test_a_small_concentration_skews_labels_and_a_large_one_does_not():
    labels = balanced(5000)

    def largest(concentration: float) -> float:
        parts = label_dirichlet(labels, clients=5, generator=rng(1), concentration=concentration)
        return float(np.mean([np.bincount(labels[p]).max() / len(p) for p in parts]))

    assert largest(1e6) == pytest.approx(0.1, abs=0.005)
    assert largest(0.05) > 0.3


def test_tiny_concentrations_do_not_underflow():
    parts = label_dirichlet(balanced(50), clients=5, generator=rng(), concentration=1e-320)
    assert sum(map(len, parts)) == 50


def test_mixed_has_iid_clients_first():
    labels = balanced(6000)
    parts = mixed(labels, clients=6, generator=rng(2), iid_clients=3, concentration=0.05)
    assert [len(p) for p in parts[:3]] == [1000, 1000, 1000]
    distance = [np.abs(np.bincount(labels[p], minlength=10) / len(p) - 0.1).sum() for p in parts]
    # 1000 i.i.d. samples: ten deviations of sd .0095, mean of |.| .0076 each.
    assert max(distance[:3]) < 0.15 < min(distance[3:])


def test_a_file_names_the_client_of_every_sample(tmp_path: Path):
    path = tmp_path / "owners.txt"
    path.write_text("0\n1\n-1\n1\n0\n")
    assert [p.tolist() for p in file(balanced(5), clients=2, generator=rng(), path=str(path))] == [[0, 4], [1, 3]]
    np.save(tmp_path / "owners.npy", np.array([1, 0, 0, 0, 1]))
    parts = file(balanced(5), clients=2, generator=rng(), path=str(tmp_path / "owners.npy"))
    assert [p.tolist() for p in parts] == [[1, 2, 3], [0, 4]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\n1\n", "must hold 5 integers"),
        ("0\n1\n2\n0\n1\n", "clients must be in -1..1"),
        ("0\n0\n0\n0\n0\n", "client 1 gets 0 samples"),
        ("a\nb\n", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str | None, message: str):
    path = tmp_path / "owners.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=rf"^path = .*{message}"):
        file(balanced(5), clients=2, generator=rng(), path=str(path))


@pytest.mark.parametrize(
    ("spec", "clients", "message"),
    [
        ({"kind": "equal"}, 11, "clients = 11: more clients than the 10 training samples"),
        ({"kind": "equal"}, 0, "clients = 0"),
        ({"kind": "equal", "minimum": 6}, 2, "minimum = 6: 2 clients need 12 samples"),
        ({"kind": "equal", "minimum": 0}, 2, "minimum = 0"),
        ({"kind": "dirichlet-sizes", "concentration": 0.0}, 2, "concentration = 0.0"),
        ({"kind": "dirichlet-sizes"}, 2, "partition.concentration: missing"),
        ({"kind": "dominant-label", "concentration": 1.0, "share": 1.5}, 2, "share = 1.5"),
        ({"kind": "label-dirichlet", "concentration": float("nan")}, 2, "concentration = nan"),
        ({"kind": "mixed", "concentration": 1.0, "iid_clients": 3}, 2, "iid_clients = 3"),
        ({"kind": "even"}, 2, "partition.kind = 'even': must be one of equal, "),
        ({"kind": "equal", "size": 3}, 2, "partition.size = 3: unknown key; allowed are: minimum"),
    ],
)
def test_what_cannot_be_is_refused(spec, clients, message):
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        make_partition(balanced(10), spec, clients=clients, generator=rng())


def test_names_are_one():
    assert all(name == function.__name__.replace("_", "-") for name, function in PARTITIONS.items())
