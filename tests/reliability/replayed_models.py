"""The models of a run, worked out in NumPy from its tables alone, where updates are those of `known_updates`.

Each rule is written down from its paper or the documentation, and shares no line with the learner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.helpers.memory_recorder import MemoryRecorder
from tests.reliability.known_updates import COUNT, WIDTH, FloatArray, sizes, update

Tables = Mapping[str, Any]
FIRST = np.array([0.5, -1.0, 2.0])


@dataclass(frozen=True)
class Arrival:
    """A delivered update, as the server receives it."""

    client: int
    version: int
    start: FloatArray
    content: FloatArray


@dataclass
class Server:
    """The models of a server, and what it keeps from one to the next."""

    learner: Tables
    models: list[FloatArray] = field(default_factory=lambda: [FIRST])
    waiting: list[Arrival] = field(default_factory=list)
    moments: dict[str, FloatArray] = field(default_factory=dict)

    def arrival(self, client: int, version: int) -> Arrival:
        """Return the update of a client from a version of the model."""
        start = self.models[version]
        return Arrival(client, version, start, update(client, start))

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Make a model of what has arrived, once there is enough of it."""
        self.waiting += arrivals
        if not arrivals or len(self.waiting) < self.learner.get("buffer", 1):
            return
        folded, self.waiting = self.waiting, []
        model = self.models[-1]
        rule = self.learner["aggregation"]
        stale = np.array([len(self.models) - 1 - one.version for one in folded], float)
        factors = _staleness(self.learner["staleness"], stale)
        step = AGGREGATIONS[rule["kind"]](rule, model, folded, stale, factors, len(self.models))
        self.models.append(model + self._optimize(step))

    def _optimize(self, step: FloatArray) -> FloatArray:
        """Return what the server optimizer makes of a step (Reddi et al. 2021, Algorithm 2; Hsu et al. 2019)."""
        given = self.learner["server_optimizer"]
        kind, rate = given["kind"], given["learning_rate"]
        if kind == "sgd":
            return np.asarray(rate * step)
        if kind == "fedavgm":
            self.moments["v"] = given["momentum"] * self.moments.get("v", np.zeros(WIDTH)) + step
            return np.asarray(rate * self.moments["v"])
        first = given["beta1"] * self.moments.get("m", np.zeros(WIDTH)) + (1 - given["beta1"]) * step
        before, square = self.moments.get("v", np.full(WIDTH, given["tau"] ** 2)), step**2
        if kind == "fedadagrad":
            second = before + square
        elif kind == "fedadam":
            second = given["beta2"] * before + (1 - given["beta2"]) * square
        else:
            second = before - (1 - given["beta2"]) * square * np.sign(before - square)
        self.moments |= {"m": first, "v": second}
        return np.asarray(rate * first / (np.sqrt(second) + given["tau"]))


def _staleness(rule: Tables, stale: FloatArray) -> FloatArray:
    if rule["kind"] == "polynomial":
        return np.asarray((1.0 + stale) ** -rule["exponent"])
    if rule["kind"] == "hinge":
        return np.asarray([1.0 if s <= rule["free"] else 1.0 / (rule["slope"] * (s - rule["free"]) + 1.0) for s in stale])
    return np.ones(len(stale))


def _samples_of(arrivals: Sequence[Arrival]) -> FloatArray:
    return np.array([sizes()[one.client] for one in arrivals])


def _contents(arrivals: Sequence[Arrival]) -> FloatArray:
    return np.array([one.content for one in arrivals])


def _average_by_size(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    held = _samples_of(folded)
    return (held / held.sum() * factors) @ _contents(folded)


def _equal(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    total = factors @ _contents(folded)
    return total / len(folded) if rule["divide"] == "buffer" else total


def _fixed_share(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    shares = _samples_of(folded) / sizes().sum() if rule["by"] == "size" else np.full(len(folded), 1.0 / COUNT)
    moves = [one.content if rule["form"] == "update" else one.start + one.content - model for one in folded]
    return (rule["alpha"] * shares * factors) @ np.array(moves)


def _mixing(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    alpha = rule["alpha"]
    for first, factor in rule.get("mixing_decay") or []:
        if version >= first:
            alpha *= factor
    mixed = model
    for one, factor in zip(folded, factors, strict=True):
        share = alpha * factor
        mixed = (1.0 - share) * mixed + share * (one.start + one.content)
    return mixed - model


def _median(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    return np.median(_contents(folded) * factors[:, None], axis=0)


def _trim(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    ordered = np.sort(_contents(folded) * factors[:, None], axis=0)
    cut = int(np.floor(rule["share"] * len(folded) + 1e-9))
    return ordered[cut : len(folded) - cut].mean(axis=0)


def _krum(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    contents = _contents(folded) * factors[:, None]
    count = len(contents)
    if count == 1:
        return contents[0]
    scores = []
    for place, one in enumerate(contents):
        others = sorted(float(((one - other) ** 2).sum()) for number, other in enumerate(contents) if number != place)
        scores.append(sum(others[: max(count - rule["wrong"] - 2, 1)]))
    chosen = sorted(range(count), key=lambda place: scores[place])[: rule["selected"]]
    return contents[chosen].mean(axis=0)


def _vote(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    return rule["learning_rate"] * np.sign(factors @ np.sign(_contents(folded)))


def _port(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    raw = []
    for one, age in zip(folded, stale, strict=True):
        moved = model - one.start
        norms = float(np.linalg.norm(moved) * np.linalg.norm(one.content))
        cosine = float(moved @ one.content) / norms if norms > 0 else 0.0
        fresh = rule["bound"] / (age + rule["bound"])
        raw.append(sizes()[one.client] * (rule["similarity"] * (cosine + 1.0) / 2.0 + rule["freshness"] * fresh))
    return (np.array(raw) / sum(raw) * factors) @ _contents(folded)


def _refl(
    rule: Tables, model: FloatArray, folded: Sequence[Arrival], stale: FloatArray, factors: FloatArray, version: int
) -> Any:
    contents = _contents(folded)
    fresh = stale == 0
    away = np.zeros(len(folded))
    if fresh.any() and not fresh.all():
        mean = contents[fresh].mean(axis=0)
        count = fresh.sum()
        for place in np.flatnonzero(~fresh):
            with_it = (count * mean + contents[place]) / (count + 1)
            away[place] = ((mean - with_it) ** 2).sum() / (mean**2).sum()
    greatest = away.max()
    far = 1.0 - np.exp(-away / greatest / rule["scale"]) if greatest > 0 else np.zeros(len(folded))
    raw = np.where(fresh, 1.0, (1.0 - rule["beta"]) / (stale + 1.0) + rule["beta"] * far)
    return (raw / raw.sum() * factors) @ contents


AGGREGATIONS: dict[str, Callable[[Tables, FloatArray, Sequence[Arrival], FloatArray, FloatArray, int], Any]] = {
    "size": _average_by_size,
    "equal": _equal,
    "fixed-share": _fixed_share,
    "mixing": _mixing,
    "median": _median,
    "trimmed-mean": _trim,
    "krum": _krum,
    "majority-vote": _vote,
    "port": _port,
    "refl": _refl,
}
"""Step (d,) of the model from (rule, model, arrivals, staleness (n,), factors (n,), the version to be made)."""


def replay(tables: Tables, records: MemoryRecorder) -> Iterator[tuple[int, int, FloatArray]]:
    """Yield each recorded round, the version of the model as it ends, and the model (d,)."""
    if tables["server"].get("kind") == "safa":
        yield from _replay_safa(tables, records)
        return
    server = Server(tables["learner"])
    waves = _waves(tables, records)
    for row in records.rounds:
        if tables["server"].get("kind") == "compass" and [len(one) for one in waves[row.round]] != [1]:
            # The tables do not tell which of several arrivals belong to the group that is over.
            return
        for arrived in waves[row.round]:
            server.take([server.arrival(one.client, one.version) for one in arrived])
        yield row.round, len(server.models) - 1, server.models[-1]


def _waves(tables: Tables, records: MemoryRecorder) -> dict[int, list[list[Any]]]:
    """Return the groups of delivered attempts that are aggregated together in each recorded round, in order of delivery."""
    delivered = sorted((one for one in records.updates if one.outcome == "delivered"), key=lambda one: one.outcome_s)
    waves: dict[int, list[list[Any]]] = defaultdict(list)
    if "slots" in tables:
        of_round: dict[int, list[Any]] = defaultdict(list)
        for one in delivered:
            of_round[one.round].append(one)
        for number in sorted(of_round):
            waves[1 + (number - 1) // tables["slots"]["rounds"]].append(of_round[number])
        return waves
    before = -1.0
    for row in records.rounds:
        waves[row.round].append([one for one in delivered if before < one.outcome_s <= row.end_s])
        before = row.end_s
    return waves


def _replay_safa(tables: Tables, records: MemoryRecorder) -> Iterator[tuple[int, int, FloatArray]]:
    """Play the cache of SAFA (Wu et al. 2021, eq. 6 to 8 and Algorithm 1) where all clients are present all the time."""
    server = Server(tables["learner"])
    cache = [FIRST] * COUNT
    shares = sizes() / sizes().sum()
    wants, made_round, picked_last = [True] * COUNT, [0] * COUNT, set[int]()
    ends = sorted((one for one in records.updates if one.outcome in ("delivered", "lost")), key=lambda one: one.outcome_s)
    for row in records.rounds:
        model = server.models[-1]
        for client in range(COUNT):
            deprecated = not wants[client] and row.round - 1 - made_round[client] > tables["server"]["lag_tolerance"]
            if deprecated:
                cache[client] = model
            if deprecated or wants[client]:
                wants[client], made_round[client] = False, row.round - 1
        # A model that is lost at once ends at the close of the round before.
        now = [one for one in ends if one.outcome_s <= row.end_s and one.round <= row.round]
        ends = [one for one in ends if one.outcome_s > row.end_s or one.round > row.round]
        for one in now:
            no_model = made_round[one.client] == one.round - 1 and np.isnan(one.compute_start_s)
            wants[one.client] = wants[one.client] or one.outcome == "delivered" or no_model
        arrived = [one for one in now if one.outcome == "delivered"]
        ranked = sorted(arrived, key=lambda one: one.client in picked_last)
        picked = ranked[: tables["server"]["per_round"]]
        picked_last = {one.client for one in picked}
        contents = {one.client: server.arrival(one.client, one.version) for one in arrived}
        for one in picked:
            cache[one.client] = contents[one.client].start + contents[one.client].content
        server.models.append(shares @ np.array(cache))
        for one in arrived:
            cache[one.client] = contents[one.client].start + contents[one.client].content
        yield row.round, len(server.models) - 1, server.models[-1]
