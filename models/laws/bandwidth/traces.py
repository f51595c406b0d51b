"""Bandwidth from recorded traces of steps, in CSV or in the packet format of Mahimahi.

The public methods are those of `models.laws.bandwidth.laws.BandwidthLaw`, which documents them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.bandwidth.files import Points, read_packet_files, read_step_files
from models.laws.bandwidth.laws import Draws
from models.laws.delays import FloatArray, IntArray, PerClient, per_client, pick, spread

AfterEnd = Annotated[
    Literal["repeat", "hold", "stop"],
    Doc(
        'Bandwidth after the end. "repeat": the trace again; "hold": its last bandwidth for ever; "stop": none, '
        "and transfers under way are lost with the cause trace-end."
    ),
]
Offset = Annotated[
    Literal["none", "random"],
    Doc('Place in the trace at time 0. "none": its beginning; "random": anywhere, drawn from the seed for each client.'),
]
Scale = Annotated[PerClient, Doc("A factor of all rates.")]
_NEVER = math.inf
_REACHED = 1.0 - 1e-14
"""Factor of a sum of bytes that counts as reached, to allow for rounding."""
_FEW = 100
"""Number of clients up to which a search in different traces goes client by client."""


def _ignore_division() -> AbstractContextManager[object]:
    """Return a context in which divisions by 0 give no warning."""
    return np.errstate(divide="ignore", invalid="ignore")


class Steps:
    """Base class of bandwidth by traces of steps, one or several, each client following one of them.

    `traces`: the steps of each. `trace_of` (K,): the number of the trace that each client follows; None: all follow the only
    one. `after_end`: a trace starts again ("repeat"), keeps its last rate ("hold"), or carries nothing any more ("stop").
    `offset_s`: place in the trace of a client at time 0. `scale`: factor of its rates.

    In the methods x and y are places (n,) in the clients' traces, in seconds from the beginning of a trace, and a turn is the
    number of whole traces that have passed before.
    """

    constant = False

    def __init__(
        self,
        *,
        traces: list[Points],
        trace_of: IntArray | None = None,
        after_end: AfterEnd = "repeat",
        offset_s: PerClient = 0.0,
        scale: PerClient = 1.0,
    ) -> None:
        self._trace_of = trace_of
        self._repeats, self._stops = after_end == "repeat", after_end == "stop"
        self._offset, self._scale = offset_s, scale
        lengths = [len(trace.time_s) for trace in traces]
        self._first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
        """(T,) beginning of each trace in the arrays below, which hold all N steps one trace after the other."""
        self._end = self._first + np.array(lengths, np.int64)
        """(T,) place after the last step of each trace."""
        self._times = np.concatenate([trace.time_s for trace in traces])
        self._rates = np.concatenate([trace.bytes_per_s for trace in traces])
        self._length = np.array([trace.end_s for trace in traces])
        """(T,) duration of each trace in seconds."""
        ends = np.append(self._times[1:], 0.0)
        ends[self._end - 1] = self._length
        carried = self._rates * (ends - self._times)
        sums_of_traces = [_exclusive_sums(carried[first:end]) for first, end in zip(self._first, self._end, strict=True)]
        self._sums = np.concatenate(sums_of_traces)
        """(N,) bytes that a trace has carried as each of its steps begins."""
        self._total = self._sums[self._end - 1] + carried[self._end - 1]
        """(T,) bytes of each whole trace."""
        has_pauses = after_end != "repeat" or not self._rates.all()
        self._division_context: Callable[[], AbstractContextManager[object]] = _ignore_division if has_pauses else nullcontext
        """Context of divisions by rates, some of which may be 0."""

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        """Return the times (n,) at which transfers of `size_bytes` (n,) that begin at `start_s` (n,) end; inf: never.

        The end is where the bytes carried since the beginning of the trace have grown by `size_bytes`. It is found by bisection
        in the sums of bytes at the steps of the trace.
        """
        trace = self._trace(entities)
        x, _ = self._within(start_s, trace, entities)
        first, total, length = self._first[trace], self._total[trace], self._length[trace]
        # Bytes that the trace has carried, from its beginning, as the transfer ends.
        target = self._carried_bytes(x, trace) + size_bytes / pick(self._scale, entities)
        whole_traces_s: FloatArray | float = 0.0
        if self._repeats and (target > total).any():
            # A transfer that ends just as a trace does ends in this trace, not in the next one: it may begin with a pause.
            whole_traces = np.maximum(np.ceil(target / total) - 1.0, 0.0)
            target = np.minimum(target - whole_traces * total, total)
            whole_traces_s = whole_traces * length
        # Allow for rounding: otherwise a transfer that ends with a step would wait for the end of a pause after it.
        j = np.maximum(self._search(self._sums, trace, target * _REACHED, "left") - 1, first)
        rate = self._rates[j]
        with self._division_context():
            y = self._times[j] + (target - self._sums[j]) / rate
        if not self._repeats:
            carries_nothing_more = self._stops | (rate == 0.0)
            y = np.where((target > total) & carries_nothing_more, _NEVER, y)
        # Add durations to the start: the beginning of the trace may be so far back that digits are lost. fmax turns the NaN of a
        # transfer of 0 bytes in a pause into 0.
        return np.asarray(start_s + np.fmax(whole_traces_s + (y - x), 0.0))

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        trace = self._trace(entities)
        x, start_turn = self._within(start_s, trace, entities)
        y, end_turn = self._within(end_s, trace, entities)
        within_trace = self._carried_bytes(y, trace) - self._carried_bytes(x, trace)
        carried = within_trace + (end_turn - start_turn) * self._total[trace]
        return np.asarray(np.maximum(carried, 0.0) * pick(self._scale, entities))

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        trace = self._trace(entities)
        x, _ = self._within(np.full(len(entities), time_s), trace, entities)
        step = self._search(self._times, trace, x, "right") - 1
        rates = self._rates[step] * pick(self._scale, entities)
        if not self._stops:
            return np.asarray(rates)
        return np.where(x >= self._length[trace], 0.0, rates)

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        """Return the time (n,) of the next step of each client's trace, always after `time_s`; inf: none follows."""
        trace = self._trace(entities)
        x, turn = self._within(np.full(len(entities), time_s), trace, entities)
        next_step = self._search(self._times, trace, x, "right")
        in_last_step = next_step == self._end[trace]
        # The minimum is for the last step of the last trace, whose next time is not used.
        next_times = self._times[np.minimum(next_step, len(self._times) - 1)]
        y = np.where(in_last_step, self._length[trace], next_times)
        if not self._repeats:
            # A trace that is held has no change after its last step, one that stops has its end.
            has_ended = (x >= self._length[trace]) | (not self._stops)
            y = np.where(in_last_step & has_ended, _NEVER, y)
        change_s = turn * self._length[trace] + y - pick(self._offset, entities)
        # Without the maximum, rounding could return `time_s` itself, and time would stand still.
        return np.asarray(np.maximum(change_s, np.nextafter(time_s, _NEVER)))

    def mean_rate(self, entities: IntArray) -> FloatArray:
        """Return the mean rate of the whole trace, as it is repeated or until it stops; of a held trace, its last rate."""
        is_held = not self._repeats and not self._stops
        means = self._rates[self._end - 1] if is_held else self._total / self._length
        return means[self._trace(entities)] * spread(self._scale, entities)

    def peak_rate(self, entities: IntArray) -> FloatArray:
        peaks = np.maximum.reduceat(self._rates, self._first)
        return np.asarray(peaks[self._trace(entities)] * spread(self._scale, entities))

    def stops_s(self, entities: IntArray) -> FloatArray:
        if not self._stops:
            return np.full(len(entities), _NEVER)
        return np.maximum(self._length[self._trace(entities)] - spread(self._offset, entities), 0.0)

    def _trace(self, entities: IntArray) -> IntArray | int:
        """Return the number of each client's trace; one number if all follow one."""
        return 0 if self._trace_of is None else self._trace_of[entities]

    def _within(self, time_s: FloatArray, trace: IntArray | int, entities: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the place x (n,) of each client in its trace at `time_s` (n,), and the turn (n,): whole traces before."""
        x = np.asarray(time_s + pick(self._offset, entities))
        if not self._repeats:
            return x, np.zeros_like(x)
        length = self._length[trace]
        turn = np.floor(x / length)
        return np.maximum(x - turn * length, 0.0), turn

    def _carried_bytes(self, x: FloatArray, trace: IntArray | int) -> FloatArray:
        """Return the bytes (n,) carried from the beginning of the trace to place `x` (n,), before scaling."""
        if self._stops:
            x = np.minimum(x, self._length[trace])
        j = self._search(self._times, trace, x, "right") - 1
        return np.asarray(self._sums[j] + (x - self._times[j]) * self._rates[j])

    def _search(self, values: FloatArray, trace: IntArray | int, x: FloatArray, side: Literal["left", "right"]) -> IntArray:
        """Return the place (n,) in `values` (N,) of the first step of each client's trace with a value >= `x` (n,).

        Side "right": a value > `x`. Without such a step, it is the place after the trace.
        """
        if self._trace_of is None:
            return values.searchsorted(x, side)
        low, high = np.asarray(self._first[trace]), self._end[trace]
        if len(x) <= _FEW:
            # Fast path with the same result: one step of the search below costs as much as the whole search for ten clients.
            bisect, buffer = (bisect_left if side == "left" else bisect_right), values.data
            searches = zip(x.tolist(), low.tolist(), high.tolist(), strict=True)
            return np.array([bisect(buffer, target, start, end) for target, start, end in searches], np.int64)
        # Bisection for all clients at once.
        undecided = low < high
        while undecided.any():
            middle = (low + high) // 2
            middle_values = values[np.minimum(middle, len(values) - 1)]
            is_passed = middle_values < x if side == "left" else middle_values <= x
            low, high = np.where(undecided & is_passed, middle + 1, low), np.where(undecided & ~is_passed, middle, high)
            undecided = low < high
        return low


def _exclusive_sums(values: FloatArray) -> FloatArray:
    """Return for each of `values` (n,) the sum of the values before it."""
    return np.concatenate(([0.0], np.cumsum(values)[:-1]))


class _Traced(Steps):
    """Base class of traces read from files, with the parameters that all of them have.

    `shown`: path of the file, for messages. `clients` is K; `draws` gives the random offsets.
    """

    def __init__(
        self,
        *,
        traces: list[Points],
        trace_of: IntArray | None,
        shown: str,
        clients: int,
        draws: Draws,
        after_end: AfterEnd,
        offset: Offset,
        scale: PerClient,
    ) -> None:
        if after_end not in ("repeat", "hold", "stop"):
            raise ParameterError("after_end", after_end, "must be 'repeat', 'hold' or 'stop'")
        if offset not in ("none", "random"):
            raise ParameterError("offset", offset, "must be 'none' or 'random'")
        scales = per_client("scale", scale, low=1e-12, unit="")
        offset_s: PerClient = 0.0
        if offset == "random":
            lengths = np.array([trace.end_s for trace in traces])
            offset_s = draws.uniforms(0, clients) * (lengths[0] if trace_of is None else lengths[trace_of])
        super().__init__(traces=traces, trace_of=trace_of, after_end=after_end, offset_s=offset_s, scale=scales)
        if not self._total.all():
            for_client = "" if trace_of is None else f" for client {int(np.argmin(self._total[trace_of]))}"
            raise ParameterError("path", shown, f"carries nothing{for_client}: every rate is 0; give at least one above 0")
        if after_end == "hold" and not self._rates[self._end - 1].all():
            reason = "would hold a rate of 0 for ever; use 'stop', or let the trace end with more"
            raise ParameterError("after_end", after_end, reason)


class Trace(_Traced):
    """Measured bandwidth: each line of a file gives the bytes per second from a time on.

    A CSV file with the columns time_s and bytes_per_s, and client if clients differ; the lines of a client are in order of
    time, from 0 on. The last of them lasts as long as the one before it, unless `end_s` is given.

    Raises:
        ParameterError: any other content of the file; file and line are named.

    Example:
        >>> import numpy as np
        >>> from netsim.core.streams import Streams
        >>> draws = Streams(1)["bandwidth"]
        >>> law = Trace(clients=2, draws=draws, time_s=[0.0, 10.0], bytes_per_s=[100.0, 50.0])
        >>> law.ends_s(np.array([8.0]), np.array([300.0]), np.array([0]))
        array([12.])
    """

    def __init__(
        self,
        *,
        clients: int,
        draws: Draws,
        path: Annotated[
            str | None,
            Doc(
                "CSV file for all clients; with a column client it holds a trace for each of them. {client} in its name stands "
                "for the number of a client, from 0: each client then has its own file."
            ),
        ] = None,
        time_s: Annotated[list[float] | None, Doc("Beginning of each step, in seconds, in place of a file.")] = None,
        bytes_per_s: Annotated[list[float] | None, Doc("Bandwidth of each step, in bytes per second.")] = None,
        end_s: Annotated[
            float | None, Doc("End of the trace, in seconds. Absent: the last step lasts as long as the one before it.")
        ] = None,
        after_end: AfterEnd = "repeat",
        offset: Offset = "none",
        scale: Scale = 1.0,
    ) -> None:
        traces, trace_of = read_step_files(path=path, time_s=time_s, bytes_per_s=bytes_per_s, end_s=end_s, clients=clients)
        super().__init__(
            traces=traces,
            trace_of=trace_of,
            shown=path or "",
            clients=clients,
            draws=draws,
            after_end=after_end,
            offset=offset,
            scale=scale,
        )


class PacketTrace(_Traced):
    r"""Bandwidth as opportunities to send a packet, in the format of Mahimahi (Netravali et al. 2015).

    Each line of the file is a millisecond, a whole number, at which one packet of `packet_bytes` may pass; equal lines add up;
    the trace ends with the last line. A packet is spread over the millisecond before its line (line 0: over the first
    millisecond).

    Raises:
        ParameterError: any other content of the file; file and line are named.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from netsim.core.streams import Streams
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "link.txt")
        ...     _ = path.write_text("1\n3\n4\n")
        ...     law = PacketTrace(clients=1, draws=Streams(1)["bandwidth"], path=str(path))
        >>> law.mean_rate(np.array([0]))
        array([1125000.])
    """

    def __init__(
        self,
        *,
        clients: int,
        draws: Draws,
        path: Annotated[
            str,
            Doc("File for all clients. {client} in it stands for the number of a client, from 0: each then has its own file."),
        ],
        packet_bytes: Annotated[float, Doc("Size of a packet, in bytes.")] = 1500.0,
        after_end: AfterEnd = "repeat",
        offset: Offset = "none",
        scale: Scale = 1.0,
    ) -> None:
        traces, trace_of = read_packet_files(path=path, packet_bytes=packet_bytes, clients=clients)
        super().__init__(
            traces=traces,
            trace_of=trace_of,
            shown=path,
            clients=clients,
            draws=draws,
            after_end=after_end,
            offset=offset,
            scale=scale,
        )
