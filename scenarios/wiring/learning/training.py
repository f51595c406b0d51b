"""The `[learner]` of a scenario, checked without torch and without the data, or built."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.errors import AnswerError, ParameterError
from models.fl.data.files import DATASETS, check_counts, published_shape, published_sizes, require_files
from models.fl.data.own_data import Source, read_own
from models.fl.data.partition import check_partition
from models.fl.networks.shapes import shapes_of
from models.fl.options.names import DataOptions, LearnerOptions
from models.laws.work import WorkPlan
from netsim.core.streams import Streams
from scenarios.registry.components import Component, construct
from scenarios.registry.kinds import FUNCTIONS, is_own, load_own, resolve
from scenarios.schema.errors import UserError
from scenarios.schema.learning import Learner, component_options
from scenarios.schema.scenario import Scenario
from scenarios.schema.section import Tables
from scenarios.wiring.network.compression import build_compressions

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner
    from scenarios.workers.training import TrainingWorkers
    from scenarios.workers.training_desk import Cluster

MOST_PARAMETERS = 10**9


def data_folder() -> Path:
    """Return the folder of data sets: NETSIM_DATA, or a folder of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("NETSIM_DATA") or f"{cache}/netsim").expanduser()


def check_learner(scenario: Scenario) -> None:
    """Check the learner of a scenario without training it: files, numbers of samples, clients and shares, and the network.

    For data sets and networks of netsim the published shapes suffice. A network or data of the user's own, or a network of
    torchvision, is built once, which imports torch. Checksums and the number of samples of a label are checked later, when the
    learner is built.

    Raises:
        UserError: a part of the learner is not possible.
    """
    section = scenario.learner
    if section is None:
        return
    options = section.options()
    data, kind = options.data, section.data.kind
    with learner_refusals(section):
        if kind in DATASETS:
            if not data.download:
                require_files(kind, data_folder())
            shape = _published_shape(kind)
        else:
            shape = _own_shape(_own_source(kind))
        samples = check_counts(data, kind, train=shape.train, test=shape.test)
        parameters = _parameters(options)
        _check_network(options, parameters)
        if parameters is None:
            classes = 2 if data.labels == "parity" else shape.labels
            _check_built(section, shape.sample, classes)
        if not is_own("partition", section.partition.kind):
            check_partition(options.partition, samples=samples, clients=scenario.clients.count)


def _published_shape(kind: str) -> _DataShape:
    """Return the facts of a published data set, without reading it."""
    images, sizes = published_shape(kind), published_sizes(kind)
    sample = (images.planes, images.side, images.side)
    return _DataShape(sample=sample, labels=images.labels, train=sizes.train, test=sizes.test)


def _own_source(kind: str) -> Source:
    """Return the user's own data source of `learner.data.kind`; raises UserError."""
    try:
        source: Source = load_own(kind)
    except UserError as error:
        raise UserError(f"learner.data.kind: {error}") from error
    return source


class _DataShape(NamedTuple):
    """Facts of a data set that the check of a learner needs."""

    sample: tuple[int, ...]
    """Shape of one sample."""
    labels: int
    """Number of labels."""
    train: int
    """Number of training samples."""
    test: int
    """Number of test samples."""


@lru_cache(maxsize=4)
def _own_shape(source: Source) -> _DataShape:
    """Return the facts of the user's own data, which is read for them.

    They are cached for the variants of a sweep, all of which are checked: reading data may take long.
    """
    arrays = read_own(source)
    sample = tuple(arrays.train_x.shape[1:])
    return _DataShape(sample=sample, labels=arrays.classes, train=len(arrays.train_x), test=len(arrays.test_x))


def _check_built(section: Learner, shape: tuple[int, ...], classes: int) -> None:
    """Build the network once, which refuses one that does not fit samples of `shape` and `classes`. Without torch: do nothing."""
    try:
        from models.fl.build import build_network
    except ImportError:
        return
    build_network(_own_table(section.network, "network"), shape, classes, seed=0)


def _parameters(options: LearnerOptions) -> int | None:
    """Return the number of parameters of the network; None if it is known only when the network is built."""
    shapes = shapes_of(options.network, options.data)
    return None if shapes is None else sum(shapes.parameters.values())


def _check_network(options: LearnerOptions, parameters: int | None) -> None:
    """Refuse a network that no memory holds; `parameters` is None for one that can be judged only when it is built."""
    if parameters is not None and parameters > MOST_PARAMETERS:
        reason = f"has {parameters:,} parameters, more than the {MOST_PARAMETERS:,} that a learner may have; make it smaller"
        raise ParameterError("network.kind", options.network["kind"], reason)


def _check_memory(options: LearnerOptions, parameters: int | None, updates: int) -> None:
    """Refuse a network that this machine cannot hold in memory during training. The system would kill the process silently.

    Measured at the peak of the first rounds of a perceptron, on a CPU: 8.5 times the parameters for one update at once, 3.5 times
    more for each further update. The estimate is below that (8 and 3). A GPU reports its own lack of memory.
    """
    from models.fl.devices import device_of

    if parameters is None or device_of(options.device).type != "cpu":
        return
    needed = 4 * parameters * (8 + 3 * (updates - 1))  # 4 bytes a number
    available = memory_bytes()
    if needed > available:
        reason = (
            f"has {parameters:,} parameters; {updates} updates at once take {needed / 2**30:.1f} GiB or more, and this machine "
            f"has {available / 2**30:.1f} GiB; make it smaller"
        )
        raise ParameterError("network.kind", options.network["kind"], reason)


def _check_disk(options: LearnerOptions, parameters: int | None, scenario: Scenario) -> None:
    """Refuse `memory_bytes` if the models that it does not hold do not fit on disk. For servers with a model for each client."""
    memory_bytes = options.memory_bytes
    if parameters is None or memory_bytes is None or not (scenario.server.trains_peers or scenario.keeps_caches):
        return
    needed = 4 * parameters * scenario.clients.count - memory_bytes  # 4 bytes a number
    folder = tempfile.gettempdir()
    free_bytes = shutil.disk_usage(folder).free
    if needed > free_bytes:
        problem = (
            f"the models of {scenario.clients.count:,} clients beyond it take {needed:,} bytes, and {folder} has {free_bytes:,}"
        )
        raise ParameterError("memory_bytes", memory_bytes, f"{problem}; raise it, or let TMPDIR name another folder")


def memory_bytes() -> int:
    """Return the bytes that this process may use: the machine's memory, or its limit if that is less."""
    limits: list[int] = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits += [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
    return min(limits)


def build_trained(
    scenario: Scenario, streams: Streams, plan: WorkPlan | None = None, cluster: Cluster | None = None
) -> FederatedLearner | None:
    """Return the learner of `[learner]`, or None without the table; raises UserError.

    Data is read, and a network is refused that memory or disk cannot hold. `plan`: work of each client if `[work]` sets it.
    `cluster`: scheduler whose workers train; None: the workers that the scenario names, or this process.
    """
    section = scenario.learner
    if section is None:
        return None
    try:
        from models.fl.build import Protection, Surroundings, build_learner
    except ImportError as error:
        raise UserError(f"[learner] needs torch: {error}; install netsim with its extra: pip install 'netsim[fl]'") from error
    mechanism: Tables = {"mode": "none"}
    privacy = scenario.privacy
    if privacy is not None and privacy.mode != "none":
        mechanism = {"mode": privacy.mode, "sensitivity": privacy.sensitivity}
        if privacy.delta is not None:
            mechanism["delta"] = privacy.delta
    # Unprotected layers matter only with a mechanism.
    protection = Protection(mechanism=mechanism, unprotected=None if privacy is None else privacy.unprotected)
    with learner_refusals(section):
        options = section.options()
        parameters = _parameters(options)
        _check_network(options, parameters)
        _check_memory(options, parameters, max(scenario.server.updates_at_once, options.buffer))
        _check_disk(options, parameters, scenario)
        return build_learner(
            _own_options(section),
            clients=scenario.clients.count,
            data_root=data_folder(),
            protection=protection,
            streams=streams,
            compressions=build_compressions(scenario),
            # With edges each node has a cache of its own (`node_learners`).
            surroundings=Surroundings(
                plan=plan, cached=scenario.server.caches and scenario.edges is None, workers=_workers(options, cluster)
            ),
        )


def _workers(options: LearnerOptions, cluster: Cluster | None) -> TrainingWorkers | None:
    """Return the workers that train: those of `cluster`, else those of the options; None if this process trains."""
    if cluster is not None:
        from models.fl.devices import device_of
        from scenarios.workers.training_cluster import TrainingCluster

        return TrainingCluster(cluster, device=device_of(options.own_device).type, memory_bytes=options.memory_bytes)
    if not options.worker_devices:
        return None
    from models.fl.devices import check_devices
    from scenarios.workers.training_processes import TrainingProcesses

    return TrainingProcesses(check_devices(options.worker_devices), options.memory_bytes)


def samples_reader(scenario: Scenario) -> Callable[[], tuple[Any, Any]]:
    """Return a function that reads the training samples of a run, and their classes, on any machine; it can be pickled."""
    assert scenario.learner is not None
    return partial(_read_samples, _own_options(scenario.learner).data, scenario.seed)


def _read_samples(data: DataOptions, seed: int) -> tuple[Any, Any]:
    """Return the training samples and their classes; raises UserError."""
    from models.fl.data.datasets import load_dataset

    try:
        dataset = load_dataset(data, root=data_folder(), generator=Streams(seed).generator("data"))
    except ParameterError as error:
        raise UserError(str(error.rename(f"learner.{error.name}"))) from error
    return dataset.train_x, dataset.targets(dataset.train_y)


def _own_options(section: Learner) -> LearnerOptions:
    """Return the options of the learner, with users' components as objects and all others by name."""
    options = section.options()
    own: Tables = {name: _own_table(part, name) for name, part in section.components().items() if is_own(name, part.kind)}
    own["metrics"] = [load_own(metric) for metric in section.metrics]
    if section.local_training is not None:
        own["local_training"] = load_own(section.local_training)
    if ":" in section.data.kind:
        own["data"] = replace(options.data, kind=_own_source(section.data.kind))
    return replace(options, **own)


def _own_table(part: Component, name: str) -> Tables:
    """Return the keys of a component. The kind of the user's own component becomes a function that torch code can call."""
    if not is_own(name, part.kind):
        return component_options(part)
    if name in FUNCTIONS:
        return component_options(part) | {"kind": resolve(name, part.kind)}
    component = construct(part, name, f"learner.{name}", part.parameters(), {})
    return {"kind": lambda: component}


_KEYS_OUTSIDE_LEARNER = {
    "clients": "clients.count",
    "mechanism": "privacy",
    "unprotected": "privacy.unprotected",
    "compression": "payload.compression",
    "down_compression": "payload.down_compression",
}
"""Arguments of the learner that other sections set, and their keys."""


@contextmanager
def learner_refusals(section: Learner) -> Iterator[None]:
    """Context manager: turn the learner's errors about arguments into UserError about keys of the scenario.

    The learner names an argument of a nested table TABLE.KEY.
    """
    try:
        yield
    except ParameterError as error:
        argument, dot, rest = error.name.partition(".")
        if argument in _KEYS_OUTSIDE_LEARNER:
            key = _KEYS_OUTSIDE_LEARNER[argument] + dot + rest
        elif argument in section.partition.parameters():
            key = f"learner.partition.{error.name}"
        elif argument in type(section).model_fields:
            key = f"learner.{error.name}"
        else:
            raise
        raise UserError(str(error.rename(key))) from error
    except AnswerError as error:
        key = _KEYS_OUTSIDE_LEARNER.get(error.role, f"learner.{error.role}")
        raise UserError(f"{key}: {error.without_role}; fix its {error.method}") from error
