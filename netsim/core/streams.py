"""Addressed randomness: a draw depends on (seed, purpose, round or message, entity) and on nothing else.

Every name has its own Philox key (Salmon et al. 2011), made from the seed and the name by BLAKE2b; the index (a round, a sojourn)
occupies the upper words of the 256-bit counter, the entity a position in the sequence that starts there. So a
draw does not depend on other entities or on the order of calls, and there is no generator state to save.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.random.bit_generator import ISeedSequence

from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray

_WORD = (1 << 64) - 1
_TO_UNIT = 2.0**-53
# Generators begin in the upper half of the sequence at their address, so that they never repeat the uniforms drawn there.
_APART = 1 << 63
# One positioned read costs about as much as this many consecutive draws (1.2 against 0.009 microseconds).
_READ_COST = 128


def _key(seed: int, name: str) -> list[int]:
    """Return the Philox key of the stream `name` under `seed`: two 64-bit words."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]


# Rounds count up to 2^63, and repeated rounds stay far below this, so that addresses of the two cannot meet.
_REPEATS_FROM = 48
# The number of resends of a message stands above both.
_RESENDS_FROM = 96


def resend_index(index: int, tries: int) -> int:
    """Return the index of the draws of a message that is sent again: `tries` (< 2^32) times so far, first at `index`."""
    return index + (tries << _RESENDS_FROM)


class Stream:
    """All draws of one purpose under one seed. `index` is any integer in [0, 2^128)."""

    def __init__(self, *, seed: int, name: str) -> None:
        self._philox = Philox()
        self._generator = Generator(self._philox)
        # Keep one state and rewrite its counter in place: this costs a twentieth of building a new generator.
        self._counter = [0, 0, 0, 0]
        self._state: Any = {
            "bit_generator": "Philox",
            "state": {"counter": self._counter, "key": _key(seed, name)},
            "buffer": [0, 0, 0, 0],
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def _position(self, index: int, block: int) -> None:
        """Move the generator to `block` (four draws) of the sequence at `index`."""
        # The counter has four words. Philox counts up the lowest one by itself, so draws of one index never reach the next.
        self._counter[:3] = block, index & _WORD, index >> 64
        # Setting the state also drops numbers left in the buffer (`buffer_pos` 4) from the position before.
        self._philox.state = self._state

    def uniforms(self, index: int, size: int) -> FloatArray:
        """Return draws of entities 0..size-1 at `index`; in [0, 1), shape (size,)."""
        self._position(index, 0)
        return self._generator.random(size)

    def uniforms_at(self, index: int, entities: IntArray, size: int) -> FloatArray:
        """Return `uniforms(index, size)[entities]`, read position by position if that is cheaper; shape (n,)."""
        if len(entities) * _READ_COST >= size:
            return self.uniforms(index, size)[entities]
        out = np.empty(len(entities))
        for i, entity in enumerate(entities.tolist()):
            # Philox makes blocks of four numbers. The upper 53 bits become the float, as in NumPy's `Generator.random`.
            block, lane = divmod(entity, 4)
            self._position(index, block)
            raw = cast("IntArray", self._philox.random_raw(4))
            out[i] = (int(raw[lane]) >> 11) * _TO_UNIT
        return out

    def generator(self, index: int) -> Generator:
        """Return a generator at `index`, for draws whose number is not known beforehand; valid until the next call."""
        self._position(index, _APART)
        return self._generator


class RepeatedStream(Stream):
    """A stream whose index may be used several times, such as a round in which clients are probed repeatedly."""

    times = 0
    """Number of earlier uses of the address."""

    def _position(self, index: int, block: int) -> None:
        """Move to the part of the sequence that belongs to the present use of `index`."""
        super()._position(index + (self.times << _REPEATS_FROM), block)


class _Key(ISeedSequence):
    """Seed sequence that returns a known key.

    If the key were its argument `key`, Philox would first read an unused seed from the system.
    """

    def __init__(self, words: Sequence[int]) -> None:
        self._words = np.array(words, np.uint64)

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> Any:
        """Return the known key."""
        return self._words


class Streams:
    """The streams of one run, by name. A stream is made once for each name. `prefix`: beginning of all names."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        self.seed = seed
        self.prefix = prefix
        self._open: dict[str, Stream] = {}
        """Streams made so far, by name."""
        self._keys: dict[str, _Key] = {}

    def __getitem__(self, name: str) -> Stream:
        stream = self._open.get(name)
        if stream is None:
            stream = self._open[name] = self._make_stream(self.prefix + name)
        return stream

    def _make_stream(self, name: str) -> Stream:
        """Return a new stream of this full name."""
        return Stream(seed=self.seed, name=name)

    def generator(self, name: str, *index: int) -> Generator:
        """Return a fresh generator at an address of up to three integers, for draws whose number is not known beforehand."""
        if len(index) > 3:
            raise ParameterError("index", index, "at most 3 numbers are allowed")
        words = [number & _WORD for number in index]
        counter = [_APART, *words, *[0] * (3 - len(words))]
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key(_key(self.seed, self.prefix + name))
        return Generator(Philox(cast("SeedSequence", key), counter=np.array(counter, np.uint64)))

    def integer_seed(self, name: str, *index: int) -> int:
        """Return a 63-bit seed at an address, for generators of other libraries (torch)."""
        text = "/".join(str(part) for part in (self.seed, self.prefix + name, *index))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        # 64 bits, less one: the other libraries take signed numbers.
        return int.from_bytes(digest, "little") >> 1


class RepeatedStreams(Streams):
    """Streams of an address that is used several times."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        super().__init__(seed, prefix)
        self._all: list[RepeatedStream] = []
        """All streams made so far."""

    def _make_stream(self, name: str) -> Stream:
        """Return a new stream of this full name that `repeat` can switch."""
        stream = RepeatedStream(seed=self.seed, name=name)
        self._all.append(stream)
        return stream

    def repeat(self, times: int) -> None:
        """Switch to the draws of the use number `times` (from 0) of each address."""
        for stream in self._all:
            stream.times = times
