"""Sequences of channel states, fixed beforehand: T rounds of N channels that are Good (True) or Bad.

They are read from a file, or made by an adversary (the extremely non-stationary case of Li et al., Section IV-A). Each is a
truth for oracles, with `means(round)` and `states(round)`.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.data_files import lines_of, refuse_special
from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class StateSequence:
    """Base class of sequences of states: `table` (T, N), read only.

    `segment_means` (S, N) are the means from which each of S segments was drawn, `starts` the first round of each after the
    first. Without them (None) `means` is each channel's share of Good rounds over the whole sequence: its K best are the best
    fixed set in hindsight, the oracle of Theorem 3.
    """

    def __init__(self, *, table: BoolArray, segment_means: FloatArray | None = None, starts: list[int] | None = None) -> None:
        if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 1:
            raise ParameterError("table", table, "must be (rounds, channels)", shown=f" has shape {table.shape}")
        self.table: BoolArray = np.array(table, np.bool_)
        self.table.setflags(write=False)
        self.starts = list(starts or [])
        self._means: FloatArray = self.table.mean(axis=0)[None] if segment_means is None else np.array(segment_means)
        self._means.setflags(write=False)

    @property
    def rounds(self) -> int:
        """T, the number of rounds."""
        return int(self.table.shape[0])

    @property
    def channels(self) -> int:
        """N, the number of channels."""
        return int(self.table.shape[1])

    def means(self, round: int) -> FloatArray:
        """Return the mean of each channel in `round`; (N,)."""
        self._check(round)
        means: FloatArray = self._means[bisect_right(self.starts, round)]
        return means

    def states(self, round: int) -> BoolArray:
        """Return True for each channel that is Good in `round`; (N,)."""
        self._check(round)
        states: BoolArray = self.table[round - 1]
        return states

    def _check(self, round: int) -> None:
        """Raise ParameterError for a round outside the sequence."""
        if not 1 <= round <= len(self.table):
            raise ParameterError("round", round, f"the sequence of states holds rounds 1 to {len(self.table)}")


class FileStates(StateSequence):
    r"""States from a file: one line for each round with N values 0 or 1 between commas (.csv), or an array (T, N) of 0 and 1
    (.npy).

    `rounds` (None: all of the file): the file must hold at least so many; the rest is left out.

    Raises:
        ParameterError: an unreadable file, a wrong number of channels, too few rounds, or other values; file and place are named.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "states.csv")
        ...     _ = path.write_text("1,0\n0,1\n")
        ...     law = FileStates(path=str(path), channels=2)
        >>> law.states(2)
        array([False,  True])
    """

    def __init__(
        self,
        *,
        path: Annotated[
            str,
            Doc("File with one row for each round and one column for each channel, of 0 (Bad) and 1 (Good); .csv or .npy."),
        ],
        channels: int,
        rounds: int | None = None,
    ) -> None:
        _check_positive("channels", channels)
        if rounds is not None:
            _check_positive("rounds", rounds)
        suffix = Path(path).suffix.lower()
        if suffix not in (".csv", ".npy"):
            raise ParameterError("path", path, "must end in .csv or .npy")
        table = _read_npy(path, channels) if suffix == ".npy" else _read_csv(path, channels)
        if rounds is not None and len(table) < rounds:
            raise ParameterError("path", path, f"holds {len(table)} rounds; {rounds} are needed")
        super().__init__(table=table[:rounds])


class AdversarialStates(StateSequence):
    """States by an adversary, which changes the set of Good channels without warning: `good` of them, all others are Bad.

    Example:
        >>> import numpy as np
        >>> law = AdversarialStates(channels=3, rounds=4, generator=np.random.default_rng(1), good=1)
        >>> law.states(1)
        array([False,  True, False])
    """

    def __init__(
        self,
        *,
        channels: int,
        rounds: int,
        generator: np.random.Generator,
        good: Annotated[int, Doc("Number of sub-channels that are Good at a time; all others are Bad.")],
        dwell_rounds: Annotated[
            float,
            Doc("Mean number of rounds between changes: after each round it changes with probability 1 / dwell_rounds."),
        ] = 10.0,
        rule: Annotated[
            Literal["random", "starve", "invert"],
            Doc(
                'Channels that a change makes Good. "random": any set; "starve": those Good in the fewest rounds so far '
                '(ties at random), so that channels that succeeded so far fail; "invert": those that were Bad, and others if '
                "they are too few."
            ),
        ] = "random",
    ) -> None:
        _check_positive("channels", channels)
        _check_positive("rounds", rounds)
        if not 1 <= good <= channels:
            raise ParameterError("good", good, f"must be between 1 and the number of channels, {channels}")
        if not dwell_rounds >= 1.0:
            raise ParameterError("dwell_rounds", dwell_rounds, "must be >= 1")
        if rule not in ("random", "starve", "invert"):
            raise ParameterError("rule", rule, "must be 'random', 'starve' or 'invert'")
        # Rows of the table at which the set changes.
        changes = (np.flatnonzero(generator.random(rounds - 1) * dwell_rounds < 1.0) + 1).tolist()
        table = np.zeros((rounds, channels), np.bool_)
        successes = np.zeros(channels, np.int64)
        """(N,) Good rounds of each channel so far."""
        current: IntArray = np.empty(0, np.int64)
        # Each segment takes the channels of least burden; `tie` orders channels of equal burden at random.
        for first, end in zip([0, *changes], [*changes, rounds], strict=True):
            tie = generator.random(channels)
            if rule == "random":
                burden = np.zeros(channels, np.int64)
            elif rule == "starve":
                burden = successes
            else:
                burden = np.isin(np.arange(channels), current).astype(np.int64)
            current = np.lexsort((tie, burden))[:good]
            table[first:end, current] = True
            successes[current] += end - first
        super().__init__(table=table)


def _check_positive(name: str, value: int) -> None:
    """Raise ParameterError, naming the parameter, unless `value` >= 1."""
    if value < 1:
        raise ParameterError(name, value, "must be >= 1")


def _read_npy(path: str, channels: int) -> BoolArray:
    """Return the states (T, N) of an array file. Raises ParameterError that names file and place."""
    try:
        refuse_special(path)
        values: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise ParameterError("path", path, f"cannot be read as an array ({error})") from None
    if values.ndim != 2 or values.shape[1] != channels or values.shape[0] < 1:
        raise ParameterError("path", path, f"has shape {values.shape}; must be (rounds, {channels})")
    if values.dtype.kind not in "biuf":
        raise ParameterError("path", path, f"holds {values.dtype}; must hold 0 and 1")
    wrong = np.argwhere((values != 0) & (values != 1))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise ParameterError("path", path, f"round {row + 1}, channel {column}: {values[row, column].item()!r} must be 0 or 1")
    return np.asarray(values == 1)


def _read_csv(path: str, channels: int) -> BoolArray:
    """Return the states (T, N) of a CSV file. Raises ParameterError that names file and line."""
    try:
        lines = lines_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError("path", path, f"cannot be read as a text file ({error})") from None
    rows: list[list[bool]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = [word.strip() for word in line.split(",")]
        if len(words) != channels:
            raise ParameterError("path", path, f"line {number}: has {len(words)} values; {channels} channels need as many")
        for word in words:
            if word not in ("0", "1"):
                raise ParameterError("path", path, f"line {number}: {word!r} must be 0 or 1")
        rows.append([word == "1" for word in words])
    if not rows:
        raise ParameterError("path", path, "holds no round")
    return np.array(rows, np.bool_)
