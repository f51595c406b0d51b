"""Presence from FedScale's availability table of about 100,000 phones (Lai et al., "FedScale", ICML 2022), exported to JSON.

The table has an entry for each phone: `{"active": [..], "inactive": [..], "finish_time": 518400, "duration": .., "model":
".."}`. The phone is present from active[i] to inactive[i], in seconds, and all of it repeats after its finish_time.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.availability.files import json_entries, make_refusal, read_times
from models.laws.availability.presence import Changes, Draws
from models.laws.availability.traces import Recorded, merge_intervals
from models.laws.delays import FloatArray, IntArray

_WHAT = "FedScale's availability table, { \"1\": { \"active\": [..], \"inactive\": [..], \"finish_time\": .. }, .. }"


class FedScale(Recorded):
    """Presence of FedScale's phones, from JSON made of its `client_behave_trace`, a pickle that is never read itself.

    Intervals of no length, of which the table has many, and times after a phone's finish_time are left out. The last instant of
    a phone does not count as present (in FedScale it does).

    Raises:
        ParameterError: any other content of the file; file and line are named.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "phones.json")
        ...     _ = path.write_text('{"1": {"active": [0], "inactive": [60], "finish_time": 3600}}')
        ...     law = FedScale(clients=2, path=str(path))
        >>> law.on, law.next_change_s
        (array([ True,  True]), array([60., 60.]))
    """

    state_fields = ("_drawn", "_table_of")

    def __init__(
        self,
        *,
        clients: int,
        path: Annotated[str, Doc("The file to read: the table as JSON.")],
        phones: Annotated[
            Literal["in-order", "drawn"],
            Doc(
                'Phone of each client. "in-order": client k is entry k of the table, beginning again after the last, as in '
                'FedScale; "drawn": any phone, from the seed. The table is not in random order: phones that are seldom present '
                "are at its end."
            ),
        ] = "in-order",
    ) -> None:
        if phones not in ("in-order", "drawn"):
            raise ParameterError("phones", phones, "must be 'in-order' or 'drawn'")
        table = _read_phones(path)
        phone_of = np.repeat(np.arange(len(table.periods)), table.counts)
        self._drawn: bool = phones == "in-order"
        """True once the phone of each client is known."""
        super().__init__(
            clients=clients,
            changes=merge_intervals(phone_of, table.starts, table.ends, table.periods),
            periods=table.periods,
            table_of=np.arange(max(clients, 1)) % len(table.periods),
        )
        self._await_draw()

    def _await_draw(self) -> None:
        """Mark all clients as absent and due at time 0, unless their phones are known: the first advance draws them."""
        if not self._drawn:
            self.on[:] = False
            self.next_change_s[:] = 0.0

    def _draw_phones(self, now_s: float, draws: Draws) -> None:
        """Draw the phone of each client from the table, and set each client's presence to that of its phone at `now_s`.

        Called once, before the first `advance` or change; the clock moves to `now_s`.
        """
        count = len(self.on)
        uniforms = draws.uniforms_at(0, np.arange(count), count)
        self._table_of = (uniforms * len(self._periods)).astype(np.int64)
        self._drawn = True
        self._move_clock(now_s)
        # Presence and next changes of all clients, by their new tables.
        self._restart()

    def advance(self, now_s: float, draws: Draws) -> None:
        if not self._drawn:
            self._draw_phones(now_s, draws)
        super().advance(now_s, draws)

    def changes(self, now_s: float, draws: Draws) -> Changes:
        """Advance change by change. Until the phones are drawn, a first change at time 0 covers all clients."""
        if not self._drawn:
            self._draw_phones(0.0, draws)
            yield np.arange(len(self.on)), np.zeros(len(self.on))
        yield from super().changes(now_s, draws)

    def on_load(self) -> None:
        super().on_load()
        self._await_draw()


class _Phones(NamedTuple):
    """Intervals of presence of all phones, one phone after the other, in seconds."""

    starts: FloatArray
    """(n,)"""
    ends: FloatArray
    """(n,)"""
    counts: IntArray
    """(phones,) number of intervals of each phone."""
    periods: FloatArray
    """(phones,) time after which all of it repeats."""


def _read_phones(path: str) -> _Phones:
    """Return the intervals in FedScale's table. Raises ParameterError that names file and line."""
    starts: list[FloatArray] = []
    ends: list[FloatArray] = []
    periods: list[float] = []
    keys: set[str] = set()
    for key, value, line in json_entries(path, dict, _WHAT):
        where = f"line {line}: entry {key!r}"
        if key in keys:
            raise make_refusal(path, f"{where} stands twice")
        keys.add(key)
        if not isinstance(value, dict):
            raise make_refusal(path, f"{where}: must be a table with active, inactive and finish_time")
        active, inactive = (_read_list(path, where, value, name) for name in ("active", "inactive"))
        period: Any = value.get("finish_time")
        if type(period) not in (int, float) or not 0 < period < math.inf:
            raise make_refusal(path, f"{where}: finish_time = {period!r}: must be a number of seconds > 0")
        if len(active) != len(inactive):
            raise make_refusal(path, f"{where}: has {len(active)} times in active, but {len(inactive)} in inactive")
        in_order = active <= inactive
        in_order[1:] &= inactive[:-1] <= active[1:]
        if not in_order.all():
            first_bad = np.argmin(in_order)
            times = f"active = {active[first_bad]:g}, inactive = {inactive[first_bad]:g}"
            raise make_refusal(path, f"{where}: {times}: goes back in time, or begins before the last interval has ended")
        cut_off = np.minimum(inactive, period)
        has_length = active < cut_off
        starts.append(active[has_length])
        ends.append(cut_off[has_length])
        periods.append(float(period))
    if not periods:
        raise make_refusal(path, "holds no phone")
    counts = np.array([len(times) for times in starts], np.int64)
    return _Phones(starts=np.concatenate(starts), ends=np.concatenate(ends), counts=counts, periods=np.array(periods))


def _read_list(path: str, where: str, entry: dict[str, Any], name: str) -> FloatArray:
    """Return the list `name` of an entry as times (n,). Raises ParameterError for any other value."""
    times = read_times(entry.get(name))
    if times is None:
        raise make_refusal(path, f"{where}: {name} must be a list of times in seconds, finite and >= 0")
    return times
