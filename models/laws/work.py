"""Work of an update: the steps of local training and the samples they process, exactly as a learner processes them.

A pass over n samples takes ceil(n / B) steps of batches of B samples, the last one short; a client makes pass after pass until
its steps are done. A network with batch normalisation leaves out batches of a single sample, which have no variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.delays import DelayLaw, FloatArray, IntArray, PerClient, per_client, pick, spread

_MOST = 2**31 - 1
"""Largest epochs, steps, batch size and number of samples that a client holds."""
_LARGEST = 2**53
"""Largest number of samples of an update, for which times stay exact in doubles."""
_BLOCK = 1 << 16
"""Clients whose work is counted at once."""


class Amounts(NamedTuple):
    """Work of several updates, in their order."""

    samples: list[int]
    """Samples that each update processes."""
    steps: list[int]
    """Steps that each takes, without the batches that are left out."""


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """Work that clients are asked for, each field a number for all clients or (K,); None: the learner's own."""

    epochs: int | IntArray | None = None
    """Passes over a client's samples."""
    steps: int | IntArray | None = None
    """Steps, in place of passes."""
    batch_size: int | IntArray | None = None
    """Samples of a step."""


class Work:
    """Samples and steps of an update of each client.

    `clients` is K. `data_sizes` (K,): samples that each client holds; None: unknown, and all batches are full. `batch_size`
    None: all samples of a client are one batch. The work is `steps`, if given, else `epochs`, but at most `max_steps` steps.
    `single`: True if batches of a single sample are processed, too. Raises ParameterError for a number that is not whole and
    >= 1.
    """

    def __init__(
        self,
        *,
        data_sizes: IntArray | None,
        clients: int,
        batch_size: int | IntArray | None = None,
        epochs: int | IntArray = 1,
        steps: int | IntArray | None = None,
        max_steps: int | None = None,
        single: bool = True,
    ) -> None:
        shape = (clients,)
        self._single = single
        self._held = None if data_sizes is None else _check_whole("data_sizes", data_sizes, shape)
        if batch_size is not None:
            self.batch_size = _check_whole("batch_size", batch_size, shape)
            """(K,) samples of a step."""
        elif self._held is not None:
            self.batch_size = self._held
        else:
            raise ParameterError("batch_size", None, "must be given if the samples of clients are not")
        if steps is not None:
            planned_steps = _check_whole("steps", steps, shape)
        elif self._held is None:
            raise ParameterError("epochs", epochs, "need the number of samples that clients hold; give it, or give steps")
        else:
            planned_steps = self._steps_of_epochs(_check_whole("epochs", epochs, shape), max_steps)
        self.drawn: IntArray = planned_steps
        """(K,) steps of an update, including batches that are left out."""
        self.samples, self.steps = self._plan_all(clients)
        """(K,) samples that an update processes, and steps that it takes."""
        if self.samples.max(initial=0) > _LARGEST:
            name = "epochs" if steps is None else "steps"
            raise ParameterError(name, int(self.samples.max()), "are too many samples")

    @cached_property
    def a_pass(self) -> IntArray | None:
        """(K,) steps of a pass over the samples of each client; None if their number is unknown."""
        return None if self._held is None else _ceil_divide(self._held, self.batch_size)

    def _steps_of_epochs(self, epochs: IntArray, max_steps: int | None) -> IntArray:
        """Return the steps (K,) of `epochs` (K,) passes over the samples of each client, at most `max_steps` (None: no limit)."""
        assert self._held is not None
        shape, held, batch = epochs.shape, self._held, self.batch_size
        if all(map(_repeats_one, (epochs, held, batch))):
            # All clients are equal: compute one number, and store it once.
            epochs, held, batch = epochs[:1], held[:1], batch[:1]
        steps = epochs * _ceil_divide(held, batch)
        if max_steps is not None:
            steps = np.minimum(steps, max_steps)
        return np.broadcast_to(steps, shape)

    def _plan_all(self, clients: int) -> tuple[IntArray, IntArray]:
        """Return the samples (K,) and the steps (K,) of the planned update of each client; computed once if all are equal."""
        known = [array for array in (self._held, self.batch_size, self.drawn) if array is not None]
        if all(map(_repeats_one, known)):
            # Client 0 stands for all.
            samples, steps = self._count_work(np.zeros(1, np.int64), self.drawn[:1])
            return np.broadcast_to(samples, clients), np.broadcast_to(steps, clients)
        samples, steps = np.empty(clients, np.int64), np.empty(clients, np.int64)
        # In blocks, which bound the memory of intermediate arrays for a million clients.
        for first in range(0, clients, _BLOCK):
            block = np.arange(first, min(first + _BLOCK, clients))
            samples[block], steps[block] = self._count_work(block, self.drawn[block])
        return samples, steps

    def steps_of_pass(self) -> IntArray:
        """Return the steps (K,) of a pass over a client's samples. Raises ParameterError if their number is unknown."""
        if self.a_pass is None:
            raise ParameterError("data_sizes", None, "must be given, for passes to have a length", shown="")
        return self.a_pass

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """Return None: all clients do the planned work."""
        return None

    eager = False
    """False: the amounts of work are known before training runs."""

    def begin(self, round: int, version: int, clients: IntArray, steps: IntArray | None) -> Amounts:
        """Return the work of updates that begin now, as `amounts`: it does not depend on round or version."""
        return self.amounts(clients, steps)

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> Amounts:
        """Return the work of updates of `clients` (n,).

        `steps` (n,): steps of each, including batches that are left out; None: as planned.
        """
        samples, taken = (self.samples[clients], self.steps[clients]) if steps is None else self._count_work(clients, steps)
        return Amounts(samples.tolist(), taken.tolist())

    def _count_work(self, clients: IntArray, drawn: IntArray) -> tuple[IntArray, IntArray]:
        """Return the samples and steps (n,) that `drawn` (n,) planned steps of `clients` (n,) process.

        Batches of a single sample may be skipped, as batch normalisation needs two.
        """
        batch = self.batch_size[clients]
        if self._held is None:
            taken: IntArray = drawn if self._single else np.where(batch == 1, 0, drawn)
            return np.asarray(taken * batch), taken
        held = self._held[clients]
        steps_of_pass = _ceil_divide(held, batch)
        passes = np.asarray(drawn // steps_of_pass, np.int64)
        steps_after = drawn - passes * steps_of_pass
        # The steps after the last whole pass have full batches: the short batch is the last of a pass.
        samples = np.asarray(passes * held + steps_after * batch, np.int64)
        if self._single:
            return samples, drawn
        # Batches of a single sample are left out: all of them if the batch size is 1, else the last of each pass if it is one.
        left_out = np.where(batch == 1, drawn, np.where(held % batch == 1, passes, 0))
        return np.asarray(samples - left_out, np.int64), np.asarray(drawn - left_out, np.int64)


def _ceil_divide(numbers: IntArray, divisors: IntArray) -> IntArray:
    """Return quotients of whole numbers, rounded up."""
    # Twice negated, because // rounds down.
    return np.asarray(-(-numbers // divisors), np.int64)


def _check_whole(name: str, value: int | IntArray, shape: tuple[int]) -> IntArray:
    """Return `value`, one number or an array, as whole numbers of `shape`, read only. One number is stored once, not K times.

    Raises ParameterError, which names the first client with a bad value, unless all are whole, >= 1 and <= `_MOST`.
    """
    array = np.asarray(value)
    is_allowed = (array >= 1) & (array == np.floor(array)) & (array <= _MOST)
    if not is_allowed.all():
        client = int(np.argmin(np.broadcast_to(is_allowed, shape)))
        bad_value = np.broadcast_to(array, shape)[client].item()
        shown = f" = {bad_value!r}"
        if array.ndim:
            shown += f" for client {client}"
        raise ParameterError(name, bad_value, f"must be a whole number >= 1, and at most {_MOST}", shown=shown)
    return np.broadcast_to(array.astype(np.int64), shape)


def _repeats_one(array: IntArray) -> bool:
    """Return True if an array is one number, which NumPy's broadcasting repeats without storing it again."""
    return array.strides == (0,) or len(array) == 1


class Noise(Protocol):
    """Law of the factor of the time for a sample (`models.laws.noise`)."""

    constant: bool = False
    """True if factors do not depend on the draw."""

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        """Return factors of `entities` (n,) at uniforms `u` (n,) in [0, 1); shape (n,), finite, >= 0, with mean 1 over u."""


class SecondsPerSample:
    """Law of the time for a sample, the same for all samples of an update: a mean, times a noise of mean 1."""

    def __init__(self, *, seconds_per_sample: PerClient, noise: Noise) -> None:
        self._mean = per_client("seconds_per_sample", seconds_per_sample)
        self.noise = noise
        self.constant = bool(noise.constant) or not np.any(self._mean)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        return np.asarray(pick(self._mean, entities) * self.noise.quantile(u, entities))

    def mean_s(self, entities: IntArray) -> FloatArray:
        return spread(self._mean, entities)


class Times:
    """Law of `counts` (K,) times a duration of `law`, which is drawn once: the time of several samples, or a share of a time."""

    def __init__(self, *, counts: NDArray[np.int64] | FloatArray, law: DelayLaw) -> None:
        self._counts = counts
        self._law = law
        self.constant = law.constant

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        return self._counts[entities] * self._law.quantile(u, entities)

    def mean_s(self, entities: IntArray) -> FloatArray:
        return self._counts[entities] * self._law.mean_s(entities)


class Mixture:
    """Durations under one of several laws, which is drawn each time.

    `parts`: the probability (K,) of each law, and the law, from the least durations to the greatest. The probabilities of a
    client sum to 1. `quantile(u, entities)` and `mean_s(entities)` are those of every law of delays (`models.laws.delays`).
    """

    constant = False

    def __init__(self, *, parts: Sequence[tuple[FloatArray, DelayLaw]]) -> None:
        self.parts = parts

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        """Return durations (n,) in seconds at `u` (n,): one uniform number chooses both the law and the duration under it.

        The shares of the laws cut [0, 1) into an interval for each. The interval that holds u chooses the law, and the place of
        u within it, from 0 to 1, is the u of that law. So durations need not ascend in u, unlike those of other laws: integrals
        that need ascending durations go through `parts`.
        """
        durations, interval_start = np.zeros(len(u)), np.zeros(len(u))
        undecided = np.ones(len(u), np.bool_)
        for shares, law in self.parts:
            share = shares[entities]
            # Sums of shares may end below 1 by rounding. So each undecided client takes the duration of this law for now, and
            # the last law of positive share stands.
            possible = np.flatnonzero(undecided & (share > 0.0))
            inner_u = np.minimum((u[possible] - interval_start[possible]) / share[possible], 1.0 - 2.0**-53)
            durations[possible] = law.quantile(inner_u, entities[possible])
            interval_start += share
            undecided &= u >= interval_start
            if not undecided.any():
                break
        return durations

    def mean_s(self, entities: IntArray) -> FloatArray:
        means = np.zeros(len(entities))
        for shares, law in self.parts:
            means += shares[entities] * law.mean_s(entities)
        return means
