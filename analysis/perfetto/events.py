"""Events of the Trace Event Format, as lines of JSON, from the tables of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from analysis.perfetto.columns import row_objects, texts, times_us

if TYPE_CHECKING:
    import pyarrow as pa

SERVER, CLIENTS, JAMMERS, MESSAGES, GROUPS = 1, 2, 3, 4, 10
"""Processes of the viewer, each a group of tracks that folds; from `GROUPS` on one for each group of clients."""
_NAMES = {SERVER: "server", CLIENTS: "clients", JAMMERS: "jamming", MESSAGES: "messages between clients"}
_PHASES = (
    ("download", "download_start_s", "download_end_s"),
    ("compute", "compute_start_s", "compute_end_s"),
    ("wait", "compute_end_s", "upload_start_s"),
    ("upload", "upload_start_s", "upload_end_s"),
)
_ARGUMENTS = {
    "rounds": ("selected", "delivered", "lost", "late", "aborted", "in_flight", "accuracy", "loss", "reward", "version"),
    "probes": ("round", "outcome", "cause", "version", "samples", "loss", "accuracy", "compute_j", "send_j", "receive_j"),
    "clients": (
        *("round", "outcome", "cause", "version", "age_rounds", "epsilon", "leak", "channel"),
        *("compute_j", "send_j", "receive_j"),
    ),
    "jams": ("round", "hit", "destroyed"),
    "messages": ("round", "number", "resend", "outcome", "cause", "size_bytes"),
}
_COUNTERS = ("accuracy", "in_flight", "max_leak", "sum_age", "disagreement", "batteries_empty")
_INSTANT_US = 1e-3
"""Resolution of the viewer, in microseconds: the slice at an end of an arrow must have a length."""


@dataclass
class Events:
    """Makes the events of one trace, and remembers which tracks they lie on."""

    jammed: str = "sub-channel"
    """Word for what jammers jam."""
    flows: int = 0
    """Number of arrows so far, which gives their ids."""
    tracks: dict[tuple[int, int], str] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)

    def rounds(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each round, and counters at its close."""
        self.tracks[SERVER, 0] = "rounds"
        numbers, args = texts(table.column("round")), row_objects(table, _ARGUMENTS["rounds"])
        (starts, _), (ends, _) = times_us(table, "start_s"), times_us(table, "end_s")
        counters = [(name, texts(table.column(name))) for name in _COUNTERS if name in table.column_names]
        for i, number in enumerate(numbers):
            yield _slice(SERVER, 0, f'"round {number}"', starts[i], ends[i], args[i])
            for name, values in counters:
                if values[i]:
                    yield f'{{"ph":"C","name":"{name}","pid":{SERVER},"ts":{ends[i]!r},"args":{{"{name}":{values[i]}}}}}'

    def attempts(self, table: pa.Table) -> Iterator[str]:
        """Yield the phases of attempts, their outcomes, and arrows from and to the rounds."""
        yield from self._client_events(table, "clients", "", with_arrows=True)

    def probes(self, table: pa.Table) -> Iterator[str]:
        """Yield the phases of probes and their outcomes, without arrows."""
        yield from self._client_events(table, "probes", "probe: ", with_arrows=False)

    def _client_events(self, table: pa.Table, table_name: str, prefix: str, *, with_arrows: bool) -> Iterator[str]:
        """Yield a slice for each phase on its client's track, and a mark for each outcome, with `prefix` before their names."""
        clients, outcomes = table.column("client").to_pylist(), texts(table.column("outcome"))
        args = row_objects(table, _ARGUMENTS[table_name])
        processes = self._processes(table, clients)
        at = {column: times_us(table, column) for phase in _PHASES for column in phase[1:]}
        outcomes_us, _ = times_us(table, "outcome_s")
        for phase, start, end in _PHASES:
            (starts_us, has_started), (ends_us, has_ended) = at[start], at[end]
            label, is_wait = json.dumps(prefix + phase), phase == "wait"
            arrow = phase if with_arrows and phase in ("download", "upload") else ""
            for i, client in enumerate(clients):
                # A wait begins where the computing ended; only one that an upload followed was a wait.
                if not has_started[i] or (is_wait and not has_ended[i]):
                    continue
                # A phase in progress at the end of the attempt ends there.
                end_us = ends_us[i] if has_ended[i] else outcomes_us[i]
                yield _slice(processes[i], client, label, starts_us[i], end_us, args[i])
                if arrow and end_us - starts_us[i] > _INSTANT_US and (arrow == "download" or outcomes[i] == '"delivered"'):
                    yield from self._flow_of(arrow, processes[i], client, starts_us[i], end_us)
        for i, client in enumerate(clients):
            if outcomes[i] != '"in_flight"':
                label = json.dumps(prefix + json.loads(outcomes[i]))
                mark = f'{{"ph":"i","s":"t","name":{label},"pid":{processes[i]},"tid":{client}'
                yield f'{mark},"ts":{outcomes_us[i]!r},"args":{args[i]}}}'

    def _flow_of(self, phase: str, process: int, client: int, begun: float, till: float) -> Iterator[str]:
        """Yield the arrow of a model from its round to a client, or of an update from a client to the round of its arrival."""
        mine, server = (process, client), (SERVER, 0)
        if phase == "download":
            yield from self._flow("model", server, begun, mine, begun)
        else:
            yield from self._flow("update", mine, begun, server, till - _INSTANT_US)

    def _processes(self, table: pa.Table, clients: list[int]) -> list[int]:
        """Return the process, a group of tracks, of each row's client."""
        column = table.column("group") if "group" in table.column_names else None
        if column is None or column.null_count == len(clients):
            processes = [CLIENTS] * len(clients)
        else:
            groups = [group or "" for group in column.to_pylist()]
            for group in dict.fromkeys(groups):
                self.groups.setdefault(group, GROUPS + len(self.groups))
            processes = [self.groups[group] for group in groups]
        self.tracks |= {key: f"client {key[1]}" for key in dict.fromkeys(zip(processes, clients, strict=True))}
        return processes

    def jams(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each dwell of a jammer."""
        channels, names = table.column("channel").to_pylist(), texts(table.column("jammer"))
        args = row_objects(table, _ARGUMENTS["jams"])
        (starts, _), (ends, _) = times_us(table, "start_s"), times_us(table, "end_s")
        self.tracks |= {(JAMMERS, channel): f"{self.jammed} {channel}" for channel in channels}
        for i, channel in enumerate(channels):
            yield _slice(JAMMERS, channel, names[i], starts[i], ends[i], args[i])

    def messages(self, table: pa.Table) -> Iterator[str]:
        """Yield the way of each message, and an arrow from its sender to its receiver.

        The way is an async event, which need not nest: messages between two clients may overtake each other.
        """
        sources, targets = table.column("source").to_pylist(), table.column("target").to_pylist()
        protocols, args = texts(table.column("protocol")), row_objects(table, _ARGUMENTS["messages"])
        (sent, _), (ends, _) = times_us(table, "sent_s"), times_us(table, "end_s")
        outcomes = texts(table.column("outcome"))
        node = {client: "server" if client < 0 else str(client) for client in dict.fromkeys([*sources, *targets])}
        self.tracks |= {(MESSAGES, n): name if n < 0 else f"client {name}" for n, name in node.items()}
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            protocol = protocols[i]
            common = f'"cat":{protocol},"name":{protocol[:-1]} {source} to {node[target]}","pid":{MESSAGES},"tid":{source}'
            common += f',"id":{self.flows}'
            yield f'{{"ph":"b","ts":{sent[i]!r},"args":{args[i]},{common}}}'
            yield f'{{"ph":"e","ts":{ends[i]!r},{common}}}'
            if outcomes[i] != '"delivered"':
                self.flows += 1
                continue
            here, there = (MESSAGES, source), (MESSAGES, target)
            yield _slice(*here, f'"sends to {node[target]}"', sent[i], sent[i] + _INSTANT_US, args[i])
            yield _slice(*there, f'"receives from {source}"', ends[i], ends[i] + _INSTANT_US, args[i])
            yield from self._flow("message", here, sent[i], there, ends[i])

    def _flow(self, name: str, start: tuple[int, int], start_us: float, end: tuple[int, int], end_us: float) -> Iterator[str]:
        common = f'"cat":"{name}","name":"{name}","id":{self.flows}'
        self.flows += 1
        yield f'{{"ph":"s",{common},"pid":{start[0]},"tid":{start[1]},"ts":{start_us!r}}}'
        yield f'{{"ph":"f","bp":"e",{common},"pid":{end[0]},"tid":{end[1]},"ts":{end_us!r}}}'

    def names(self) -> Iterator[str]:
        """Yield the events that name the tracks and set their order."""
        processes = {process: name for process, name in _NAMES.items() if any(on == process for on, _ in self.tracks)}
        processes |= {process: f"clients: {group or 'in no group'}" for group, process in self.groups.items()}
        for process, name in processes.items():
            yield _meta("process_name", process, None, {"name": name})
            yield _meta("process_sort_index", process, None, {"sort_index": CLIENTS if process >= GROUPS else process})
        for (process, track), name in sorted(self.tracks.items()):
            yield _meta("thread_name", process, track, {"name": name})
            yield _meta("thread_sort_index", process, track, {"sort_index": track})


def _slice(process: int, track: int, name: str, start_us: float, end_us: float, args: str) -> str:
    times = f'"ts":{start_us!r},"dur":{end_us - start_us!r}'
    return f'{{"ph":"X","name":{name},"pid":{process},"tid":{track},{times},"args":{args}}}'


def _meta(name: str, process: int, track: int | None, args: dict[str, object]) -> str:
    place = {"pid": process} if track is None else {"pid": process, "tid": track}
    return json.dumps({"ph": "M", "name": name, **place, "args": args}, separators=(",", ":"))
