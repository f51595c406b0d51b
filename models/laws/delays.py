"""Laws of durations, each given by its quantile function: a draw is a uniform number and nothing else.

Every law has `quantile(u, entities)` (seconds for uniforms `u` (n,) in [0, 1) of the clients `entities` (n,); finite, >= 0, not
decreasing in `u`), `mean_s(entities)` in closed form, and `constant`, True if the duration does not depend on `u`. A parameter
of type `PerClient` is one number for all clients or an array with one entry a client.
"""

from __future__ import annotations

import csv
import math
from typing import Annotated, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.data_files import csv_rows, lines_of
from models.errors import ParameterError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
PerClient: TypeAlias = float | NDArray[np.float64]

LEAST_RATE = 1e-12
"""Least bandwidth in bytes per second."""

# Uniforms are multiples of 2^-53. 0 stands for [0, 2^-53): the middle replaces it, because the normal score of 0 is -inf.
_SMALLEST_U = 2.0**-54
# Beyond this many standard deviations the tail of a normal law is exponential to within rounding of the duration.
_DEEP = 1e4
# Beyond this many the excess is negligible beside any duration, and their square would overflow.
_DEEPEST = 1e300


class DelayLaw(Protocol):
    """Law of durations, as the laws that contain other laws need it."""

    @property
    def constant(self) -> bool: ...

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray: ...

    def mean_s(self, entities: IntArray) -> FloatArray: ...


def per_client(
    name: str, value: PerClient, *, low: float = 0.0, high: float = math.inf, above: bool = False, unit: str = " seconds"
) -> PerClient:
    """Return `value` as a float or a read-only float64 copy (K,), every entry finite, >= `low` (> if `above`) and <= `high`.

    Raises:
        ParameterError: names the parameter, the first bad value with its client, and the allowed range.
    """
    if high == math.inf:
        relation = ">" if above else ">="
        allowed = f"{relation} {low:g}{unit}"
    else:
        bracket = "(" if above else "["
        allowed = f"in {bracket}{low:g}, {high:g}]{unit}"
    wanted = f"must be a number, or one number a client, {allowed}"
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(name, value, wanted) from None
    if array.ndim > 1:
        raise ParameterError(name, array, wanted, shown=f" has shape {array.shape}")
    is_high_enough = array > low if above else array >= low
    is_allowed = np.isfinite(array) & is_high_enough & (array <= high)
    if not is_allowed.all():
        if array.ndim == 0:
            raise ParameterError(name, float(array), f"must be finite and {allowed}")
        # The first client with a bad value.
        client = int(np.argmin(is_allowed))
        bad_value = float(array[client])
        shown = f" = {bad_value!r} for client {client}"
        raise ParameterError(name, bad_value, f"must be finite and {allowed}", shown=shown)
    if array.ndim == 0:
        return float(array)
    array.setflags(write=False)
    return array


def explain_bad_rate(bytes_per_s: float) -> str | None:
    """Return the reason why `bytes_per_s` cannot be a bandwidth that may be 0 for a while; None if it can."""
    if not 0.0 <= bytes_per_s < math.inf:
        return "must be finite and >= 0 bytes per second"
    if 0.0 < bytes_per_s < LEAST_RATE:
        return f"must be 0, or at least {LEAST_RATE:g} bytes per second"
    return None


def rate_per_client(name: str, value: PerClient) -> PerClient:
    """Return `value` checked as by `per_client`, in bytes per second: > 0 and >= `LEAST_RATE`, so that times stay finite."""
    unit = " bytes per second"
    # In two steps: a rate of 0 gets the message that it must be > 0.
    rates = per_client(name, value, above=True, unit=unit)
    return per_client(name, rates, low=LEAST_RATE, unit=unit)


def check_same_clients(**values: PerClient) -> None:
    """Raise ParameterError unless all `values` that are arrays have one length; single numbers fit any number of clients."""
    lengths = {name: len(value) for name, value in values.items() if not isinstance(value, float)}
    if not lengths:
        return
    first, expected = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != expected:
            reason = f"must have {expected}, one a client, as {first} has"
            raise ParameterError(name, values[name], reason, shown=f" has {length} entries")


def pick(value: PerClient, entities: IntArray) -> PerClient:
    """Return the parameter `value` of `entities` (n,): an array (n,), or a scalar if it is one for all clients."""
    return value if isinstance(value, float) else value[entities]


def spread(value: PerClient, entities: IntArray) -> FloatArray:
    """Return the parameter `value` of `entities` (n,) as a new array (n,), in which a scalar is repeated."""
    return np.full(len(entities), value) if isinstance(value, float) else value[entities]


def _unwrap_scalar(value: FloatArray) -> PerClient:
    """Return an array of one number as a float, any other array as it is."""
    return float(value) if np.ndim(value) == 0 else value


class Constant:
    """Constant duration, one for all clients or one for each.

    Example:
        >>> import numpy as np
        >>> Constant(value_s=2.5).quantile(np.array([0.1, 0.9]), np.array([0, 1]))
        array([2.5, 2.5])
    """

    constant = True

    def __init__(
        self,
        *,
        value_s: Annotated[PerClient, Doc("The duration in seconds.")],
    ) -> None:
        self._value = per_client("value_s", value_s)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        return spread(self._value, entities)

    def mean_s(self, entities: IntArray) -> FloatArray:
        return spread(self._value, entities)


class Uniform:
    """Every duration between `low_s` and `high_s` is as likely as any other.

    Example:
        >>> import numpy as np
        >>> Uniform(low_s=1.0, high_s=3.0).quantile(np.array([0.0, 0.25]), np.array([0, 1]))
        array([1. , 1.5])
    """

    def __init__(
        self,
        *,
        low_s: Annotated[PerClient, Doc("The shortest duration in seconds.")],
        high_s: Annotated[PerClient, Doc("The longest duration in seconds.")],
    ) -> None:
        self._low, self._high = per_client("low_s", low_s), per_client("high_s", high_s)
        check_same_clients(low_s=self._low, high_s=self._high)
        if np.any(np.asarray(self._high) < self._low):
            raise ParameterError("high_s", high_s, f"must be >= low_s, which is {low_s}")
        self.constant = bool(np.all(np.asarray(self._high) == self._low))

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        low = pick(self._low, entities)
        return np.asarray(low + (pick(self._high, entities) - low) * u)

    def mean_s(self, entities: IntArray) -> FloatArray:
        return (spread(self._low, entities) + pick(self._high, entities)) / 2.0


class Gaussian:
    """Normal law with a floor, the latency of PAUSE's study; its eq. 3 needs a lower bound that a normal law does not have.

    Example:
        >>> import numpy as np
        >>> Gaussian(mean_s=2.0, std_s=1.0, floor_s=1.5).quantile(np.array([0.1, 0.9]), np.array([0, 1])).round(3)
        array([1.5  , 3.282])
    """

    def __init__(
        self,
        *,
        mean_s: Annotated[PerClient, Doc("Mean in seconds of the normal law before the floor acts.")],
        std_s: Annotated[PerClient, Doc("Standard deviation in seconds of the normal law before the floor acts.")],
        floor_s: Annotated[PerClient, Doc("The floor in seconds: no duration is shorter.")] = 0.0,
        floor: Annotated[
            Literal["clip", "resample"],
            Doc(
                'Treatment of the mass below the floor. "clip": max(x, floor_s), which puts it onto the floor, as in the code of '
                'the PAUSE authors; "resample": the normal law conditioned on x >= floor_s.'
            ),
        ] = "clip",
    ) -> None:
        from scipy.special import log_ndtr

        if floor not in ("clip", "resample"):
            raise ParameterError("floor", floor, "must be 'clip' or 'resample'")
        self._mean = per_client("mean_s", mean_s)
        self._std = per_client("std_s", std_s)
        self._floor = per_client("floor_s", floor_s)
        check_same_clients(mean_s=self._mean, std_s=self._std, floor_s=self._floor)
        self._resample = floor == "resample"
        self.constant = not np.any(self._std)
        # The floor in standard deviations above the mean. Without deviation both kinds of floor are max(mean, floor), which the
        # last step of `quantile` takes for any value here.
        divisor = np.where(np.equal(self._std, 0.0), np.inf, self._std)
        with np.errstate(over="ignore"):
            above = np.subtract(self._floor, self._mean) / divisor
        self._above = _unwrap_scalar(above)
        self._log_tail = _unwrap_scalar(log_ndtr(-above))
        """Logarithm of the probability above the floor."""
        self._deep = bool(np.any(above > _DEEP))

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        """Return durations (n,) in seconds at `u` (n,), of the normal law with a floor.

        Values below the floor become the floor ("clip"), or have no probability ("resample").
        """
        from scipy.special import log_ndtr, ndtri, ndtri_exp

        u = np.maximum(u, _SMALLEST_U)
        mean, std, floor = pick(self._mean, entities), pick(self._std, entities), pick(self._floor, entities)
        if not self._resample:
            return np.maximum(mean + std * ndtri(u), floor)
        # With a the floor in standard deviations, P(Z > z | Z > a) = 1 - u is solved for z in logarithms, so that neither tail
        # loses digits for any floor.
        log_upper = np.log1p(-u)
        if not self._deep:
            z = -ndtri_exp(log_upper + pick(self._log_tail, entities))
            return np.maximum(mean + std * z, floor)
        above = spread(self._above, entities)
        z = -ndtri_exp(log_upper + log_ndtr(-np.minimum(above, _DEEP)))
        # Far out phi(z) ~ phi(a) exp(-(z^2 - a^2)/2): z = sqrt(a^2 - 2 log(1 - u)), written for the excess over a.
        a = np.clip(above, _DEEP, _DEEPEST)
        excess = -2.0 * log_upper / (a * (1.0 + np.sqrt(1.0 - 2.0 * log_upper / a / a)))
        durations_s = np.where(above > _DEEP, floor + std * excess, mean + std * z)
        # Rounding may end below the floor.
        return np.maximum(durations_s, floor)

    def mean_s(self, entities: IntArray) -> FloatArray:
        """Return the mean durations (n,) of the law with its floor, seconds."""
        from scipy.special import erfcx, ndtr

        mean, std, floor, above = (spread(v, entities) for v in (self._mean, self._std, self._floor, self._above))
        if not self._resample:
            # E max(x, floor) = floor Phi(a) + mean Phi(-a) + std phi(a), a the floor in standard deviations above the mean. At 40
            # phi is negligible; larger squares might overflow.
            density = np.exp(-0.5 * np.minimum(np.abs(above), 40.0) ** 2) / math.sqrt(2.0 * math.pi)
            full = floor * ndtr(above) + mean * ndtr(-above) + std * density
            return np.where(std > 0.0, np.maximum(full, floor), np.maximum(mean, floor))
        # E[x | x >= floor] = mean + std phi(a) / Phi(-a). erfcx gives the quotient where both parts underflow; it tends to
        # a + 1/a.
        hazard = math.sqrt(2.0 / math.pi) / erfcx(np.minimum(above, _DEEP) / math.sqrt(2.0))
        far_mean = floor + std / np.maximum(above, _DEEP)
        means = np.where(above > _DEEP, far_mean, mean + std * hazard)
        return np.maximum(means, floor)


class ShiftedExponential:
    """Sum of `shift_s` and an exponential excess of mean `mean_excess_s`.

    Example:
        >>> import numpy as np
        >>> ShiftedExponential(shift_s=1.0, mean_excess_s=2.0).quantile(np.array([0.1, 0.9]), np.array([0, 1])).round(3)
        array([1.211, 5.605])
    """

    def __init__(
        self,
        *,
        shift_s: Annotated[PerClient, Doc("The shortest duration in seconds.")],
        mean_excess_s: Annotated[PerClient, Doc("Mean in seconds of the exponential excess over the shortest duration.")],
    ) -> None:
        self._shift = per_client("shift_s", shift_s)
        self._excess = per_client("mean_excess_s", mean_excess_s)
        check_same_clients(shift_s=self._shift, mean_excess_s=self._excess)
        self.constant = not np.any(self._excess)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        return np.asarray(pick(self._shift, entities) - pick(self._excess, entities) * np.log1p(-u))

    def mean_s(self, entities: IntArray) -> FloatArray:
        return spread(self._shift, entities) + pick(self._excess, entities)


class LogNormal:
    """exp of a normal law: median `median_s`, standard deviation `sigma` of the logarithm; mean median_s exp(sigma^2/2).

    Example:
        >>> import numpy as np
        >>> LogNormal(median_s=2.0, sigma=0.5).quantile(np.array([0.1, 0.9]), np.array([0, 1])).round(3)
        array([1.054, 3.796])
    """

    def __init__(
        self,
        *,
        median_s: Annotated[PerClient, Doc("Median in seconds.")],
        sigma: Annotated[PerClient, Doc("Standard deviation of the logarithm.")],
    ) -> None:
        # With these limits the mean (e^450 medians at most) and the largest draw stay finite.
        self._median = per_client("median_s", median_s, high=1e100)
        self._sigma = per_client("sigma", sigma, high=30.0, unit="")
        check_same_clients(median_s=self._median, sigma=self._sigma)
        self.constant = not np.any(np.multiply(self._sigma, self._median))

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        from scipy.special import ndtri

        score = ndtri(np.maximum(u, _SMALLEST_U))
        return np.asarray(pick(self._median, entities) * np.exp(pick(self._sigma, entities) * score))

    def mean_s(self, entities: IntArray) -> FloatArray:
        return np.asarray(spread(self._median, entities) * np.exp(0.5 * np.square(pick(self._sigma, entities))))


class Empirical:
    """Draws with replacement from measured durations, the same for every client.

    Raises:
        ParameterError: an entry of the file is no duration; file and line are named.

    Example:
        >>> import numpy as np
        >>> Empirical(values_s=[3.0, 1.0, 2.0]).quantile(np.array([0.1, 0.9]), np.array([0, 1]))
        array([1., 3.])
    """

    def __init__(
        self,
        *,
        path: Annotated[
            str | None,
            Doc(
                "File of measured durations in seconds: one number a line, or a CSV file with a column headed duration_s; blank "
                "lines and lines that begin with # are skipped."
            ),
        ] = None,
        values_s: Annotated[list[float] | None, Doc("The measured durations in seconds, in place of a file.")] = None,
    ) -> None:
        if (path is None) == (values_s is None):
            raise ParameterError("path", path, "give either path or values_s, and not both")
        values = _read_durations(path) if path is not None else np.array(values_s, dtype=np.float64)
        bad = values[~(np.isfinite(values) & (values >= 0.0))]
        if values.ndim != 1 or values.size == 0 or bad.size:
            bad_text = f"{bad[0]!s}" if bad.size else repr(values_s)
            reason = "must be a list of at least one duration, each finite and >= 0 seconds"
            raise ParameterError("values_s", values_s, reason, shown=f" = {bad_text}")
        self.values_s = np.sort(values)
        """(N,) measured durations, ascending; read only."""
        self.values_s.setflags(write=False)
        self._mean = float(np.mean(self.values_s))
        self.constant = bool(self.values_s[0] == self.values_s[-1])

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        size = len(self.values_s)
        # The product may be rounded up to `size`.
        return self.values_s[np.minimum((u * size).astype(np.int64), size - 1)]

    def mean_s(self, entities: IntArray) -> FloatArray:
        return np.full(len(entities), self._mean)


class Followers(NamedTuple):
    """Law that some of a list of clients follow."""

    law: DelayLaw
    places: IntArray
    """Positions of its followers in the list."""


class ByGroup:
    """Different laws for disjoint groups of clients: client k follows `laws[group_of[k]]`.

    The laws receive the same client numbers as this one, so an array of theirs has one entry for each of all K clients.
    """

    def __init__(self, *, laws: list[DelayLaw], group_of: NDArray[np.int64]) -> None:
        groups = np.asarray(group_of)
        if groups.ndim != 1 or groups.dtype.kind not in "iu":
            raise ParameterError(
                "group_of", groups, "must be one integer a client", shown=f" has shape {groups.shape} and type {groups.dtype}"
            )
        if groups.size and not (groups.min() >= 0 and groups.max() < len(laws)):
            shown = f" runs from {groups.min()} to {groups.max()}"
            raise ParameterError("group_of", groups, f"must lie in 0..{len(laws) - 1}", shown=shown)
        self.laws = list(laws)
        self.group_of = groups.astype(np.int64)
        self.constant = all(law.constant for law in laws)

    def followers(self, entities: IntArray) -> list[Followers]:
        """Return each law that some of `entities` (n,) follow, with the positions of its followers in `entities`."""
        groups = self.group_of[entities]
        of_all = (Followers(law, np.flatnonzero(groups == group)) for group, law in enumerate(self.laws))
        return [followers for followers in of_all if followers.places.size]

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        durations = np.empty(len(entities))
        for law, places in self.followers(entities):
            durations[places] = law.quantile(u[places], entities[places])
        return durations

    def mean_s(self, entities: IntArray) -> FloatArray:
        means = np.empty(len(entities))
        for law, places in self.followers(entities):
            means[places] = law.mean_s(entities[places])
        return means


class Plus:
    """Fixed time, one for all clients or one for each, plus a duration of the law `delay`."""

    def __init__(self, *, fixed_s: PerClient, delay: DelayLaw) -> None:
        self.delay = delay
        self.fixed_s = per_client("fixed_s", fixed_s)
        """Fixed time in seconds, a number or (K,)."""
        self.constant = bool(delay.constant)

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        return pick(self.fixed_s, entities) + self.delay.quantile(u, entities)

    def mean_s(self, entities: IntArray) -> FloatArray:
        return pick(self.fixed_s, entities) + self.delay.mean_s(entities)


class SizeDependent(Plus):
    """Time of `payload_bytes` at `bandwidth_bytes_per_s`, plus a duration of the law `delay`."""

    def __init__(self, *, payload_bytes: PerClient, bandwidth_bytes_per_s: PerClient, delay: DelayLaw) -> None:
        bandwidth = rate_per_client("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
        payload = per_client("payload_bytes", payload_bytes, unit=" bytes")
        check_same_clients(payload_bytes=payload, bandwidth_bytes_per_s=bandwidth)
        with np.errstate(over="ignore"):
            transfer_s = per_client("payload_bytes / bandwidth_bytes_per_s", np.divide(payload, bandwidth))
        super().__init__(fixed_s=transfer_s, delay=delay)


def _read_durations(path: str) -> FloatArray:
    """Return the durations (n,) of a file, in seconds. Raises ParameterError that names file and line."""
    try:
        all_rows = csv_rows(lines_of(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ParameterError("path", path, f"cannot be read as a text file ({error})") from None
    rows = [row for row in all_rows if any(row.cells) and not row.cells[0].lstrip().startswith("#")]
    # A file of one number a line needs no header.
    column = 0
    header = [name.strip() for name in rows[0].cells] if rows else []
    if "duration_s" in header:
        column = header.index("duration_s")
        rows = rows[1:]
    elif len(header) > 1:
        raise ParameterError("path", path, f"line {rows[0].line}: no column is headed duration_s, but {', '.join(header)}")
    if not rows:
        raise ParameterError("path", path, "holds no durations; must hold at least one, in seconds")
    durations_s = []
    for line, cells in rows:
        text = cells[column] if column < len(cells) else ""
        try:
            duration_s = float(text)
        except ValueError:
            raise ParameterError("path", path, f"line {line}: {text!r} is not a number of seconds") from None
        if not 0.0 <= duration_s < math.inf:
            raise ParameterError("path", path, f"line {line}: {text!r}: must be finite and >= 0 seconds")
        durations_s.append(duration_s)
    return np.array(durations_s)
