"""What `[learner]` describes: checked without torch and without the data, or built."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.errors import AnswerError, ParameterError
from models.fl.data_files import DATASETS, check_counts, published_sizes, require_files
from models.fl.network_shapes import shapes_of
from models.fl.options import LearnerOptions
from models.fl.partition import check_partition
from models.laws.work import WorkPlan
from netsim.core.streams import Streams
from scenarios.registry.components import Component, construct
from scenarios.registry.kinds import FUNCTIONS, is_own, load_own, resolve
from scenarios.schema.errors import UserError
from scenarios.schema.learning import Learner, plain
from scenarios.schema.scenario import Scenario
from scenarios.wiring.compression import build_compressions

MOST_PARAMETERS = 10**9


def data_folder() -> Path:
    """Where data sets are looked for: NETSIM_DATA, or a folder of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("NETSIM_DATA") or f"{cache}/netsim").expanduser()


def check_trained(scenario: Scenario) -> None:
    """Look for the data's files, and refuse numbers of samples, clients and shares that cannot be; torch stays out.

    What only the samples can tell (their checksums, whether there are enough of one label, whether a network fits) is found out
    as the learner is built, which is before anything is written. Raises UserError.
    """
    section = scenario.learner
    if section is None or section.data.kind not in DATASETS:
        return
    options = section.options()
    data, kind = options.data, section.data.kind
    with learner_refusals(section):
        if not data.download:
            require_files(kind, data_folder())
        train, test = published_sizes(kind)
        samples = check_counts(data, kind, train=train, test=test)
        _check_network(options)
        if not is_own("partition", section.partition.kind):
            check_partition(options.partition, samples=samples, clients=scenario.clients.count)


def _check_network(options: LearnerOptions) -> None:
    """Refuse a network that no memory holds; a user's own can be judged only when it is built."""
    shapes = shapes_of(options.network, options.data)
    numbers = 0 if shapes is None else sum(shapes.parameters.values())
    if numbers > MOST_PARAMETERS:
        reason = f"has {numbers:,} parameters, more than the {MOST_PARAMETERS:,} that a learner may have; make it smaller"
        raise ParameterError("network.kind", options.network["kind"], reason)


def _check_memory(options: LearnerOptions, updates: int) -> None:
    """Refuse a network that this machine's memory cannot hold in training: the system would end the process, without a word.

    Measured at the peak of the first rounds of a perceptron, on a CPU: 8.5 times the parameters for one update at once, 3.5 times
    for each further one. What is refused needs less than that; memory of a GPU is asked for as it is needed.
    """
    from models.fl.devices import device_of

    shapes = shapes_of(options.network, options.data)
    if shapes is None or device_of(options.device).type != "cpu":
        return
    numbers = sum(shapes.parameters.values())
    needed, there = 4 * numbers * (8 + 3 * (updates - 1)), memory_bytes()
    if needed > there:
        reason = (
            f"has {numbers:,} parameters; {updates} updates at once take {needed / 2**30:.1f} GiB or more, and this machine has "
            f"{there / 2**30:.1f} GiB; make it smaller"
        )
        raise ParameterError("network.kind", options.network["kind"], reason)


def memory_bytes() -> int:
    """What this process may use: the machine's memory, or its limit where that is less."""
    limits: list[int] = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits += [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
    return min(limits)


def build_trained(scenario: Scenario, streams: Streams, plan: WorkPlan | None = None) -> Any:
    """The learner that `[learner]` describes, a `models.fl.learner.FederatedLearner`, or None; raises UserError.

    `plan`: how much work it asks of each client, where `[work]` says it.
    """
    section = scenario.learner
    if section is None:
        return None
    try:
        from models.fl.build import Protection, build_learner
    except ImportError as error:
        raise UserError(f"[learner] needs torch: {error}; install netsim with its extra: pip install 'netsim[fl]'") from error
    mechanism: dict[str, Any] = {"mode": "none"}
    privacy = scenario.privacy
    if privacy is not None and privacy.mode != "none":
        mechanism = {"mode": privacy.mode, "sensitivity": privacy.sensitivity}
        if privacy.delta is not None:
            mechanism["delta"] = privacy.delta
    # Only a mechanism makes a difference between what is protected and what is not.
    protection = Protection(mechanism=mechanism, unprotected=None if privacy is None else privacy.unprotected)
    with learner_refusals(section):
        options = section.options()
        _check_network(options)
        _check_memory(options, max(scenario.server.updates_at_once, options.buffer))
        return build_learner(
            _with_own(section),
            clients=scenario.clients.count,
            data_root=data_folder(),
            protection=protection,
            plan=plan,
            streams=streams,
            compressions=build_compressions(scenario),
            cached=scenario.server.caches,
        )


def _with_own(section: Learner) -> LearnerOptions:
    """What is the user's own goes as the thing itself, everything else by its name."""
    options = section.options()
    own: dict[str, Any] = {name: _own(part, name) for name, part in section.components().items() if is_own(name, part.kind)}
    options = replace(options, **own, metrics=[load_own(metric) for metric in section.metrics])
    if section.local_training is not None:
        options = replace(options, local_training=load_own(section.local_training))
    if ":" not in section.data.kind:
        return options
    try:
        return replace(options, data=replace(options.data, kind=load_own(section.data.kind)))
    except UserError as error:
        raise UserError(f"learner.data.kind: {error}") from error


def _own(part: Component, name: str) -> dict[str, Any]:
    """The table of a component of the user's own: a function is called where it is needed, an object is there already."""
    if name in FUNCTIONS:
        return plain(part) | {"kind": resolve(name, part.kind)}
    made = construct(part, name, f"learner.{name}", part.parameters(), {})
    return {"kind": lambda: made}


_ELSEWHERE = {
    "clients": "clients.count",
    "mechanism": "privacy",
    "unprotected": "privacy.unprotected",
    "compression": "payload.compression",
    "down_compression": "payload.down_compression",
}
"""The keys of what does not come from `[learner]`."""


@contextmanager
def learner_refusals(section: Learner) -> Iterator[None]:
    """Tell what the learner refuses of its arguments by the key; an argument of a table below is named TABLE.KEY."""
    try:
        yield
    except ParameterError as error:
        table, dot, below = error.name.partition(".")
        if table in _ELSEWHERE:
            key = _ELSEWHERE[table] + dot + below
        elif table in section.partition.parameters():
            key = f"learner.partition.{error.name}"
        elif table in type(section).model_fields:
            key = f"learner.{error.name}"
        else:
            raise
        raise UserError(str(error.renamed(key))) from error
    except AnswerError as error:
        key = _ELSEWHERE.get(error.role, f"learner.{error.role}")
        raise UserError(f"{key}: {error.told}; fix its {error.method}") from error
