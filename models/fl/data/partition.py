"""Partitions of the training samples among the clients. NumPy only: a scenario is checked without torch.

Each function takes the labels of all samples and returns one sorted array of sample numbers for each client: disjoint, complete
(every sample has a client; a file, or a user's own function, may leave some out), and none smaller than `minimum`.
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
from models.fl.options.keywords import check_options

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Partition = Callable[..., Sequence[Any]]
"""Function of the labels (N,), and of `clients`, `generator` and its options by keyword."""


Minimum = Annotated[int, Doc("Least number of samples of a client.")]
Concentration = Annotated[float, Doc("Concentration of the Dirichlet law: the smaller, the more unequal.")]


def _check(
    samples: int,
    clients: int,
    minimum: int,
    *,
    concentration: float = 1.0,
    share: float = 0.0,
    iid_clients: int = 0,
) -> None:
    """Raise ParameterError, which names the parameter, for parameters that no partition of `samples` samples can meet."""
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
    """Return consecutive parts of `order` of these sizes, each sorted."""
    return [np.sort(shard) for shard in np.split(order, np.cumsum(sizes)[:-1])]


def _dirichlet_counts(samples: int, clients: int, concentration: float, minimum: int, rng: np.random.Generator) -> IntArray:
    """Return sizes (clients,) that sum to `samples`: `minimum` each, and the rest in Dirichlet proportions.

    Proportions become whole numbers by largest remainders.
    """
    rest = samples - clients * minimum
    exact = _dirichlet(concentration, clients, rng) * rest
    counts = np.floor(exact).astype(np.int64)
    # The samples left over by rounding down go to the clients of largest remainder.
    left_over = rest - int(counts.sum())
    largest_first = np.argsort(counts - exact, kind="stable")
    counts[largest_first[:left_over]] += 1
    return counts + minimum


def _dirichlet(concentration: float, size: int, rng: np.random.Generator) -> FloatArray:
    """Draw `size` shares from the symmetric Dirichlet law."""
    share = rng.dirichlet(np.full(size, concentration))
    # With a tiny concentration every gamma variate underflows to 0; in the limit one entry has everything.
    if not np.isfinite(share).all() or share.sum() == 0:
        share = np.zeros(size)
        share[rng.integers(size)] = 1.0
    return share


def equal(labels: IntArray, *, clients: int, generator: np.random.Generator, minimum: Minimum = 1) -> list[IntArray]:
    """Divide the samples i.i.d. into equal sizes (they differ by one at most).

    Raises:
        ParameterError: fewer than `clients * minimum` samples.

    Example:
        >>> import numpy as np
        >>> equal(np.array([0, 0, 1, 1]), clients=2, generator=np.random.default_rng(1))
        [array([0, 1]), array([2, 3])]
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
    """Divide the samples i.i.d. into sizes in Dirichlet(`concentration`) proportions (the smaller, the more unequal).

    Raises:
        ParameterError: fewer than `clients * minimum` samples; a concentration not > 0.

    Example:
        >>> import numpy as np
        >>> shards = dirichlet_sizes(np.zeros(9), clients=2, generator=np.random.default_rng(1), concentration=1.0)
        >>> [len(shard) for shard in shards]
        [6, 3]
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
    share: Annotated[float, Doc("Approximate share of a client's data that has its dominant label.")] = 0.25,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """Divide the samples into sizes in Dirichlet(`concentration`) proportions; about `share` of a client's data has one label.

    Every client draws a dominant label, all labels being used equally often. It gets so many samples of it that, with those in
    the i.i.d. rest, they are `share` of its data (PAUSE, Section V: a quarter).

    Raises:
        ParameterError: fewer than `clients * minimum` samples; a concentration not > 0; a share outside [0, 1]; too few samples
            of the drawn labels.

    Example:
        >>> import numpy as np
        >>> labels, generator = np.repeat([0, 1], 10), np.random.default_rng(1)
        >>> shards = dominant_label(labels, clients=2, generator=generator, concentration=100.0, share=0.8)
        >>> [np.bincount(labels[shard]) for shard in shards]
        [array([3, 7]), array([7, 3])]
    """
    _check(len(labels), clients, minimum, concentration=concentration, share=share)
    sizes = _dirichlet_counts(len(labels), clients, concentration, minimum, generator)
    # Labels are numbered 0, 1, ... in the order of `names`; the arrays below have an entry for each.
    names, label_numbers = np.unique(labels, return_inverse=True)
    # Samples of each label in random order. They are given away from the end; `left` counts those not given away yet.
    pools = [generator.permutation(np.flatnonzero(label_numbers == number)) for number in range(len(names))]
    left = np.array([len(pool) for pool in pools])
    prior = left / len(labels)
    uses = np.zeros(len(names), np.int64)
    dominant: list[IntArray] = [np.zeros(0, np.int64) for _ in range(clients)]
    """Samples of each client's dominant label, beside those in the i.i.d. rest."""
    # The largest client first: it needs the most samples of one label.
    for client in np.argsort(-sizes, kind="stable").tolist():
        # With e samples of a label first, e + (size - e) prior samples of the client have it: `share` of them for this e.
        extra = np.where(prior < 1, sizes[client] * (share - prior) / np.maximum(1 - prior, 1e-12), 0.0)
        needed = np.clip(np.rint(extra), 0, sizes[client]).astype(np.int64)
        possible = np.flatnonzero(needed <= left)
        if not len(possible):
            raise ParameterError("share", share, f"no label has the {int(needed.min())} samples wanted for client {client}")
        least_used = possible[uses[possible] == uses[possible].min()]
        label = int(generator.choice(least_used))
        uses[label] += 1
        end = left[label]
        left[label] -= needed[label]
        dominant[client] = pools[label][left[label] : end]
    rest = np.concatenate([pool[:count] for pool, count in zip(pools, left.tolist(), strict=True)])
    missing = sizes - np.array([len(shard) for shard in dominant])
    iid = _split(generator.permutation(rest), missing)
    return [np.sort(np.concatenate([own, others])) for own, others in zip(dominant, iid, strict=True)]


def label_dirichlet(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    concentration: Concentration,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """Divide the samples of each label in Dirichlet(`concentration`) proportions of their own: label skew.

    A client with fewer than `minimum` samples then gets random ones of the largest client, one at a time.

    Raises:
        ParameterError: fewer than `clients * minimum` samples; a concentration not > 0.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 10)
        >>> shards = label_dirichlet(labels, clients=2, generator=np.random.default_rng(1), concentration=0.5)
        >>> [np.bincount(labels[shard], minlength=2) for shard in shards]
        [array([6, 1]), array([4, 9])]
    """
    _check(len(labels), clients, minimum, concentration=concentration)
    shards: list[list[IntArray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        of_label = generator.permutation(np.flatnonzero(labels == label))
        counts = _dirichlet_counts(len(of_label), clients, concentration, 0, generator)
        for shard, part in zip(shards, _split(of_label, counts), strict=True):
            shard.append(part)
    # In random order, so that a client gives away random samples.
    owned = [generator.permutation(np.concatenate(shard)) for shard in shards]
    sizes = np.array([len(samples) for samples in owned])
    for client in np.flatnonzero(sizes < minimum).tolist():
        while sizes[client] < minimum:
            largest = int(sizes.argmax())
            owned[client] = np.append(owned[client], owned[largest][-1])
            owned[largest] = owned[largest][:-1]
            sizes[client] += 1
            sizes[largest] -= 1
    return [np.sort(samples) for samples in owned]


def mixed(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    iid_clients: Annotated[int, Doc("Number of clients, the first ones, with i.i.d. samples.")],
    concentration: Concentration,
    minimum: Minimum = 1,
) -> list[IntArray]:
    """Give the first `iid_clients` i.i.d. samples, and the others skewed ones of unequal sizes.

    Each i.i.d. client holds an equal share of all samples; the rest is divided by `label_dirichlet`.

    Raises:
        ParameterError: fewer than `clients * minimum` samples; a concentration not > 0; `iid_clients` outside [0, clients].

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 10)
        >>> shards = mixed(labels, clients=2, generator=np.random.default_rng(1), iid_clients=1, concentration=0.5)
        >>> [len(shard) for shard in shards]
        [10, 10]
    """
    _check(len(labels), clients, minimum, concentration=concentration, iid_clients=iid_clients)
    equal_shares = np.array_split(generator.permutation(len(labels)), clients)
    iid_shards = [np.sort(shard) for shard in equal_shares[:iid_clients]]
    if iid_clients == clients:
        return iid_shards
    rest = np.concatenate(equal_shares[iid_clients:])
    skewed = label_dirichlet(
        labels[rest], clients=clients - iid_clients, generator=generator, concentration=concentration, minimum=minimum
    )
    return iid_shards + [np.sort(rest[places]) for places in skewed]


def file(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    path: Annotated[str, Doc("File with the client of each training sample, one integer a line, or a .npy vector.")],
    minimum: Minimum = 1,
) -> list[IntArray]:
    r"""Read the client of every sample from a file: one integer a line in 0..clients-1, or a `.npy` vector of them.

    -1 stands for no client. `generator` is not used.

    Raises:
        ParameterError: the file is missing or malformed, names another number of samples or an unknown client, or gives a client
            fewer than `minimum` samples.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "clients.txt")
        ...     _ = path.write_text("0\n1\n-1\n0\n")
        ...     shards = file(np.zeros(4), clients=2, generator=np.random.default_rng(1), path=str(path))
        >>> shards
        [array([0, 3]), array([1])]
    """
    _check(len(labels), clients, minimum)
    owners = _read_owners(path, len(labels), clients, minimum)
    return [np.flatnonzero(owners == client) for client in range(clients)]


def _read_owners(path: str, samples: int, clients: int, minimum: int) -> IntArray:
    """Return the client of every sample (N,) from a file, -1 for none.

    Raises ParameterError for a file that is no partition, or gives a client fewer than `minimum` samples.
    """
    try:
        refuse_special(path)
        if Path(path).suffix == ".npy":
            # Memory-mapped, so that a header that claims too much is refused before memory is allocated.
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
    """Check, before the labels are known, that the partition `spec` can divide this number of `samples` among `clients`.

    Raises:
        ParameterError: it cannot. (A partition that passes may still need more samples of one label than there are.)
    """
    options = dict(spec)
    del options["kind"]
    minimum, path = options.pop("minimum", 1), options.pop("path", None)
    _check(samples, clients, minimum, **options)
    if path is not None:
        _read_owners(path, samples, clients, minimum)


def make_partition(labels: IntArray, spec: Mapping[str, Any], *, clients: int, generator: np.random.Generator) -> list[IntArray]:
    """Return the partition that `spec` names by its "kind"; its other keys are the arguments of that function.

    The "kind" may also be a user's own callable with the signature of these functions. It returns, for each client, the numbers
    of its samples in any order.

    Raises:
        ParameterError: unknown kind or key, a missing key, or a refusal of the function; a user's own function that fails, or
            returns anything but `clients` groups of sample numbers, none empty and none in common.
    """
    options = dict(spec)
    kind = options.pop("kind", None)
    is_own = callable(kind)
    if not is_own and kind not in PARTITIONS:
        raise ParameterError("partition.kind", kind, f"must be one of {', '.join(PARTITIONS)}")
    function: Partition = kind if is_own else PARTITIONS[kind]
    check_options("partition", function, options, supplied=("labels", "clients", "generator"))
    if not is_own:
        return list(function(labels, clients=clients, generator=generator, **options))
    name = place_of(function)
    try:
        shards = list(function(labels, clients=clients, generator=generator, **options))
    except ParameterError as error:
        # A refusal of one of its options says already what to change.
        if error.name in options:
            raise
        raise _make_error(name, f"fails ({type(error).__name__}: {error})") from error
    except Exception as error:  # whatever the user's own code does
        raise _make_error(name, f"fails ({type(error).__name__}: {error})") from error
    return _check_shards(name, shards, len(labels), clients)


def _make_error(name: str, reason: str) -> ParameterError:
    """Return the error about the user's own function `name`."""
    return ParameterError("partition.kind", name, reason)


def _check_shards(name: str, shards: list[Any], samples: int, clients: int) -> list[IntArray]:
    """Return the result of a user's own function, sorted. Raises ParameterError unless it is a partition."""
    if len(shards) != clients:
        raise _make_error(name, f"returned {len(shards)} groups of samples; there are {clients} clients")
    for client, shard in enumerate(shards):
        if np.ndim(shard) != 1 or not len(shard) or np.asarray(shard).dtype.kind not in "iu":
            what = f"{type(shard).__name__} of shape {np.shape(shard)}"
            raise _make_error(name, f"must return some whole numbers for every client; for client {client} it returned {what}")
    sorted_shards = [np.sort(np.asarray(shard).astype(np.int64)) for shard in shards]
    everything = np.concatenate(sorted_shards)
    if everything.min() < 0 or everything.max() >= samples:
        raise _make_error(name, f"samples count from 0 to {samples - 1}; it returned {everything.min()}..{everything.max()}")
    counts = np.bincount(everything, minlength=samples)
    if counts.max() > 1:
        raise _make_error(name, f"gave sample {counts.argmax()} away {counts.max()} times; a sample has one client at most")
    return sorted_shards
