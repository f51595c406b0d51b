"""How the training samples are shared out among the clients. NumPy only: a scenario is checked without torch.

Each function takes the labels of all samples and returns one sorted array of sample numbers a client: disjoint, complete (every
sample has a client; a file, or a function of the user's own, may leave some out), and none smaller than `minimum`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.data_files import refuse_special
from models.errors import ParameterError
from models.fl.data.own_data import place_of
from models.fl.keywords import check_options

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Partition = Callable[..., Sequence[Any]]
"""Called with the labels (N,), and `clients`, `generator` and its options by keyword."""


Minimum = Annotated[int, Doc("The fewest samples a client may hold.")]
Concentration = Annotated[float, Doc("Of the Dirichlet law: the smaller, the more unequal.")]


def _check(
    samples: int,
    clients: int,
    minimum: int,
    *,
    concentration: float = 1.0,
    share: float = 0.0,
    iid_clients: int = 0,
) -> None:
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if minimum < 1:
        raise ParameterError("minimum", minimum, "must be >= 1 sample")
    if clients > samples:
        raise ParameterError("clients", clients, f"more clients than the {samples} training samples")
    if clients * minimum > samples:
        raise ParameterError("minimum", minimum, f"{clients} clients need {clients * minimum} samples, but there are {samples}")
    if not 0 < concentration < np.inf:
        raise ParameterError("concentration", concentration, "must be a finite number > 0")
    if not 0 <= share <= 1:
        raise ParameterError("share", share, "must be in [0, 1]")
    if not 0 <= iid_clients <= clients:
        raise ParameterError("iid_clients", iid_clients, f"must be in [0, {clients}]")


def _split(order: IntArray, sizes: IntArray) -> list[IntArray]:
    return [np.sort(shard) for shard in np.split(order, np.cumsum(sizes)[:-1])]


def _dirichlet_counts(samples: int, clients: int, concentration: float, minimum: int, rng: np.random.Generator) -> IntArray:
    """Sizes that sum to `samples`: the minimum each, the rest in Dirichlet proportions, rounded by largest remainder."""
    spare = samples - clients * minimum
    share = _dirichlet(concentration, clients, rng) * spare
    counts = np.floor(share).astype(np.int64)
    counts[np.argsort(counts - share, kind="stable")[: spare - int(counts.sum())]] += 1
    return counts + minimum


def _dirichlet(concentration: float, size: int, rng: np.random.Generator) -> FloatArray:
    share = rng.dirichlet(np.full(size, concentration))
    # With a tiny concentration every gamma variate underflows to 0; the limit law puts all on one entry.
    if not np.isfinite(share).all() or share.sum() == 0:
        share = np.zeros(size)
        share[rng.integers(size)] = 1.0
    return share


def equal(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """I.i.d. samples, equal sizes (they differ by one at most).

    Raises:
        ValueError: fewer than `clients * minimum` samples.
    """
    _check(len(labels), clients, minimum)
    return [np.sort(shard) for shard in np.array_split(generator.permutation(len(labels)), clients)]


def dirichlet_sizes(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    concentration: Concentration,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """I.i.d. samples, sizes in Dirichlet(`concentration`) proportions (the smaller, the more unequal).

    Raises:
        ValueError: fewer than `clients * minimum` samples; a concentration not > 0.
    """
    _check(len(labels), clients, minimum, concentration=concentration)
    sizes = _dirichlet_counts(len(labels), clients, concentration, minimum, generator)
    return _split(generator.permutation(len(labels)), sizes)


def dominant_label(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    concentration: Concentration,
    share: Annotated[float, Doc("The share of a client's data that one label makes up, about.")] = 0.25,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """Sizes in Dirichlet(`concentration`) proportions, and in each client one label that makes up about `share` of its data.

    Every client draws a dominant label, all labels being used equally often, and is given so many samples of it that,
    with what the i.i.d. rest brings, they come to `share` of its data (PAUSE, Section V: a quarter).

    Raises:
        ValueError: fewer than `clients * minimum` samples; a concentration not > 0; a share outside [0, 1]; more samples of the
            labels wanted than there are.
    """
    _check(len(labels), clients, minimum, concentration=concentration, share=share)
    sizes = _dirichlet_counts(len(labels), clients, concentration, minimum, generator)
    names, of_label = np.unique(labels, return_inverse=True)
    pools = [generator.permutation(np.flatnonzero(of_label == c)) for c in range(len(names))]
    room = np.array([len(pool) for pool in pools])
    prior = room / len(labels)
    uses = np.zeros(len(names), np.int64)
    shards: list[list[IntArray]] = [[] for _ in range(clients)]
    # The largest first: it is the hardest to serve.
    for client in np.argsort(-sizes, kind="stable").tolist():
        extra = np.where(prior < 1, sizes[client] * (share - prior) / np.maximum(1 - prior, 1e-12), 0.0)
        wanted = np.clip(np.rint(extra), 0, sizes[client]).astype(np.int64)
        fits = np.flatnonzero(wanted <= room)
        if not len(fits):
            raise ParameterError("share", share, f"no label has the {int(wanted.min())} samples wanted for client {client}")
        label = int(generator.choice(fits[uses[fits] == uses[fits].min()]))
        uses[label] += 1
        end = room[label]
        room[label] -= wanted[label]
        shards[client].append(pools[label][room[label] : end])
    rest = generator.permutation(np.concatenate([pool[:left] for pool, left in zip(pools, room.tolist(), strict=True)]))
    missing = sizes - np.array([len(shard[0]) for shard in shards])
    for shard, more in zip(shards, _split(rest, missing), strict=True):
        shard.append(more)
    return [np.sort(np.concatenate(shard)) for shard in shards]


def label_dirichlet(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    concentration: Concentration,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """Label skew: the samples of each label are shared out in Dirichlet(`concentration`) proportions of their own.

    A client left with fewer than `minimum` samples is given random ones of the largest client, one at a time.

    Raises:
        ValueError: fewer than `clients * minimum` samples; a concentration not > 0.
    """
    _check(len(labels), clients, minimum, concentration=concentration)
    shards: list[list[IntArray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        order = generator.permutation(np.flatnonzero(labels == label))
        counts = _dirichlet_counts(len(order), clients, concentration, 0, generator)
        for shard, more in zip(shards, _split(order, counts), strict=True):
            shard.append(more)
    shares = [generator.permutation(np.concatenate(shard)) for shard in shards]
    sizes = np.array([len(shard) for shard in shares])
    for client in np.flatnonzero(sizes < minimum).tolist():
        while sizes[client] < minimum:
            rich = int(sizes.argmax())
            shares[client] = np.append(shares[client], shares[rich][-1])
            shares[rich] = shares[rich][:-1]
            sizes[client] += 1
            sizes[rich] -= 1
    return [np.sort(shard) for shard in shares]


def mixed(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    iid_clients: Annotated[int, Doc("So many clients, the first, hold i.i.d. samples.")],
    concentration: Concentration,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """The first `iid_clients` hold i.i.d. samples, the others skewed ones of unequal sizes.

    Each i.i.d. client holds an equal share of all samples; the rest is shared out by `label_dirichlet`.

    Raises:
        ValueError: fewer than `clients * minimum` samples; a concentration not > 0; `iid_clients` outside [0, clients].
    """
    _check(len(labels), clients, minimum, concentration=concentration, iid_clients=iid_clients)
    shares = np.array_split(generator.permutation(len(labels)), clients)
    first = [np.sort(shard) for shard in shares[:iid_clients]]
    if iid_clients == clients:
        return first
    rest = np.concatenate(shares[iid_clients:])
    others = label_dirichlet(
        labels[rest], clients=clients - iid_clients, generator=generator, concentration=concentration, minimum=minimum
    )
    return first + [np.sort(rest[shard]) for shard in others]


def file(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    path: Annotated[str, Doc("The file to read: the client of each training sample, one integer a line, or a .npy vector.")],
    minimum: Minimum = 1,
) -> list[IntArray]:
    """The client of every sample from a file: one integer a line in 0..clients-1 (or a `.npy` vector of them); -1: nobody's.

    `generator` is not used: a file leaves nothing to chance.

    Raises:
        ValueError: the file is missing or malformed, names another number of samples or an unknown client, or gives a client
            fewer than `minimum` samples.
    """
    _check(len(labels), clients, minimum)
    owners = _owners(path, len(labels), clients, minimum)
    return [np.flatnonzero(owners == client) for client in range(clients)]


def _owners(path: str, samples: int, clients: int, minimum: int) -> IntArray:
    try:
        refuse_special(path)
        if Path(path).suffix == ".npy":
            # Mapped: a header that claims more than the file holds is refused before memory is taken for it.
            owners = np.array(np.lib.format.open_memmap(path, mode="r"))
        else:
            owners = np.loadtxt(path, dtype=np.int64, ndmin=1)
    except (OSError, ValueError, EOFError) as error:
        raise ParameterError("path", path, f"cannot be read as one integer a line, or as a .npy vector ({error})") from error
    if owners.shape != (samples,) or not np.issubdtype(owners.dtype, np.integer):
        raise ParameterError("path", path, f"must hold {samples} integers, one a training sample; it holds {owners.shape}")
    if owners.min() < -1 or owners.max() >= clients:
        raise ParameterError("path", path, f"clients must be in -1..{clients - 1}; it names {owners.min()}..{owners.max()}")
    sizes = np.bincount(owners[owners >= 0], minlength=clients)
    smallest = int(sizes.argmin())
    if sizes[smallest] < minimum:
        raise ParameterError("path", path, f"client {smallest} gets {sizes[smallest]} samples, fewer than minimum = {minimum}")
    return np.asarray(owners, np.int64)


PARTITIONS: dict[str, Partition] = {
    "equal": equal,
    "dirichlet-sizes": dirichlet_sizes,
    "dominant-label": dominant_label,
    "label-dirichlet": label_dirichlet,
    "mixed": mixed,
    "file": file,
}


def check_partition(spec: Mapping[str, Any], *, samples: int, clients: int) -> None:
    """Refuse a table of `PARTITIONS` that cannot share out so many samples, whatever their labels are.

    Raises:
        ValueError: as the function that `spec` names by its "kind" would; it may still want more samples of one label than there
            are.
    """
    options = dict(spec)
    del options["kind"]
    minimum, path = options.pop("minimum", 1), options.pop("path", None)
    _check(samples, clients, minimum, **options)
    if path is not None:
        _owners(path, samples, clients, minimum)


def make_partition(labels: IntArray, spec: Mapping[str, Any], *, clients: int, generator: np.random.Generator) -> list[IntArray]:
    """The partition that `spec` names by its "kind", its other keys being that function's own arguments.

    The "kind" may also be a callable of the user's own with the signature of these functions. It returns, for each client, the
    numbers of its samples in any order.

    Raises:
        ValueError: unknown kind or key, a missing key, or what the function refuses; a function of the user's own that fails, or
            returns anything but `clients` groups of sample numbers, none empty and none in common.
    """
    options = dict(spec)
    kind = options.pop("kind", None)
    own = callable(kind)
    if not own and kind not in PARTITIONS:
        raise ParameterError("partition.kind", kind, f"must be one of {', '.join(PARTITIONS)}")
    function: Partition = kind if own else PARTITIONS[kind]
    check_options("partition", function, options, given=("labels", "clients", "generator"))
    if not own:
        return list(function(labels, clients=clients, generator=generator, **options))
    name = place_of(function)
    try:
        shards = list(function(labels, clients=clients, generator=generator, **options))
    except ParameterError as error:
        if error.name in options:
            raise
        raise _useless(name, f"fails ({type(error).__name__}: {error})") from error
    except Exception as error:  # whatever the user's own code does
        raise _useless(name, f"fails ({type(error).__name__}: {error})") from error
    return _checked(name, shards, len(labels), clients)


def _useless(name: str, reason: str) -> ParameterError:
    return ParameterError("partition.kind", name, reason)


def _checked(name: str, shards: list[Any], samples: int, clients: int) -> list[IntArray]:
    """What a function of the user's own returned, as the functions here return it."""
    if len(shards) != clients:
        raise _useless(name, f"returned {len(shards)} groups of samples; there are {clients} clients")
    for client, shard in enumerate(shards):
        if np.ndim(shard) != 1 or not len(shard) or np.asarray(shard).dtype.kind not in "iu":
            what = f"{type(shard).__name__} of shape {np.shape(shard)}"
            raise _useless(name, f"must return some whole numbers for every client; for client {client} it returned {what}")
    sorted_shards = [np.sort(np.asarray(shard).astype(np.int64)) for shard in shards]
    everything = np.concatenate(sorted_shards)
    if everything.min() < 0 or everything.max() >= samples:
        raise _useless(name, f"samples count from 0 to {samples - 1}; it returned {everything.min()}..{everything.max()}")
    counts = np.bincount(everything, minlength=samples)
    if counts.max() > 1:
        raise _useless(name, f"gave sample {counts.argmax()} away {counts.max()} times; a sample has one client at most")
    return sorted_shards
