"""Events of the Trace Event Format, as lines of JSON, from the tables of a run.

A process of the viewer is a group of tracks that folds; a track is a row of slices. The server, the jammers and each group of
clients are processes; a client, or a jammed sub-channel, is a track. Times are in microseconds. Letters of `ph`: X slice,
C counter, i mark, b and e begin and end of an async slice, s and f start and end of an arrow, M name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from analysis.perfetto.columns import json_texts, row_objects, times_us

if TYPE_CHECKING:
    import pyarrow as pa

SERVER, CLIENTS, JAMMERS, MESSAGES, GROUPS = 1, 2, 3, 4, 10
"""Numbers of processes of the viewer; from `GROUPS` on, one for each group of clients."""
_NAMES = {SERVER: "server", CLIENTS: "clients", JAMMERS: "jamming", MESSAGES: "messages between clients"}
# Phase of an attempt, with the columns of its start and its end.
_PHASES = (
    ("download", "download_start_s", "download_end_s"),
    ("compute", "compute_start_s", "compute_end_s"),
    ("wait", "compute_end_s", "upload_start_s"),
    ("upload", "upload_start_s", "upload_end_s"),
)
# Columns of each table that the viewer shows when a slice is selected.
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
_JAMMED = {
    "channels": "sub-channel",
    "network": "cable",
    "peers": "link",
    "opinions": "opinion",
    "uplink": "uplink",
    "downlink": "downlink",
}
"""Words for what jammers jam, by the table that describes it."""
_TRACKS = 1 << 24
"""Tracks of the jammers of one target, at most."""
# Columns of the rounds table that are drawn as curves.
_COUNTERS = ("accuracy", "in_flight", "max_leak", "sum_age", "disagreement", "batteries_empty")
_INSTANT_US = 1e-3
"""Resolution of the viewer in microseconds. An arrow is attached to a slice, so that slice must be at least this long."""


@dataclass
class Events:
    """Maker of the events of one trace. It collects the tracks that they lie on, which `name_events` names in the end."""

    jammed: Mapping[str, str] = field(default_factory=dict)
    """Target of each jammer, by the jammer's name (`Run.jammed`)."""
    flows: int = 0
    """Number of ids given out to arrows and to messages so far."""
    tracks: dict[tuple[int, int], str] = field(default_factory=dict)
    """Process and track to the name of the track."""
    groups: dict[str, int] = field(default_factory=dict)
    """Group of clients to its process."""

    def round_events(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each round, and the counters at its close."""
        self.tracks[SERVER, 0] = "rounds"
        numbers, args = json_texts(table.column("round")), row_objects(table, _ARGUMENTS["rounds"])
        (starts, _), (ends, _) = times_us(table, "start_s"), times_us(table, "end_s")
        counters = [(name, json_texts(table.column(name))) for name in _COUNTERS if name in table.column_names]
        for i, number in enumerate(numbers):
            yield _slice(SERVER, 0, f'"round {number}"', starts[i], ends[i], args[i])
            for name, values in counters:
                if values[i]:
                    yield f'{{"ph":"C","name":"{name}","pid":{SERVER},"ts":{ends[i]!r},"args":{{"{name}":{values[i]}}}}}'

    def attempt_events(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each phase of each attempt, a mark for its outcome, and arrows from and to the rounds."""
        yield from self._client_events(table, "clients", "", with_arrows=True)

    def probe_events(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each phase of each probe and a mark for its outcome, without arrows."""
        yield from self._client_events(table, "probes", "probe: ", with_arrows=False)

    def _client_events(self, table: pa.Table, table_name: str, prefix: str, *, with_arrows: bool) -> Iterator[str]:
        """Yield the events of attempts or probes, on the tracks of their clients: slices of phases, then marks of outcomes.

        Names begin with `prefix`. `with_arrows`: True to draw arrows from rounds to downloads and from uploads to rounds.
        """
        clients, outcomes = table.column("client").to_pylist(), json_texts(table.column("outcome"))
        args = row_objects(table, _ARGUMENTS[table_name])
        processes = self._processes(table, clients)
        times = {column: times_us(table, column) for phase in _PHASES for column in phase[1:]}
        outcomes_us, _ = times_us(table, "outcome_s")
        for phase, start, end in _PHASES:
            (starts_us, has_started), (ends_us, has_ended) = times[start], times[end]
            label, is_wait = json.dumps(prefix + phase), phase == "wait"
            arrow = phase if with_arrows and phase in ("download", "upload") else ""
            for i, client in enumerate(clients):
                # Every computed update has a start of a wait; it waited only if an upload followed.
                if not has_started[i] or (is_wait and not has_ended[i]):
                    continue
                # A phase that the end of the attempt cut short ends there.
                end_us = ends_us[i] if has_ended[i] else outcomes_us[i]
                yield _slice(processes[i], client, label, starts_us[i], end_us, args[i])
                # Every model came from a round, but only delivered updates reach one.
                has_arrow = arrow == "download" or (arrow == "upload" and outcomes[i] == '"delivered"')
                if has_arrow and end_us - starts_us[i] > _INSTANT_US:
                    yield from self._arrow_to_round(arrow, processes[i], client, starts_us[i], end_us)
        for i, client in enumerate(clients):
            if outcomes[i] != '"in_flight"':
                label = json.dumps(prefix + json.loads(outcomes[i]))
                mark = f'{{"ph":"i","s":"t","name":{label},"pid":{processes[i]},"tid":{client}'
                yield f'{mark},"ts":{outcomes_us[i]!r},"args":{args[i]}}}'

    def _arrow_to_round(self, phase: str, process: int, client: int, start_us: float, end_us: float) -> Iterator[str]:
        """Yield the arrow of a model from its round to a client, or of an update from a client to the round of its arrival."""
        client_track, server_track = (process, client), (SERVER, 0)
        if phase == "download":
            yield from self._arrow("model", server_track, start_us, client_track, start_us)
        else:
            # Just before its end: the arrival may close the round, and the arrow must end on the slice of that round.
            yield from self._arrow("update", client_track, start_us, server_track, end_us - _INSTANT_US)

    def _processes(self, table: pa.Table, clients: list[int]) -> list[int]:
        """Return the process of the client of each row (n,), and list the tracks of these clients."""
        column = table.column("group") if "group" in table.column_names else None
        if column is None or column.null_count == len(clients):
            processes = [CLIENTS] * len(clients)
        else:
            groups = [group or "" for group in column.to_pylist()]
            for group in dict.fromkeys(groups):
                self.groups.setdefault(group, GROUPS + len(self.groups))
            processes = [self.groups[group] for group in groups]
        for process, client in zip(processes, clients, strict=True):
            self.tracks[process, client] = f"client {client}"
        return processes

    def jam_events(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each dwell of a jammer, on the track of what it jams."""
        jammers = table.column("jammer").to_pylist()
        names, args = json_texts(table.column("jammer")), row_objects(table, _ARGUMENTS["jams"])
        (starts, _), (ends, _) = times_us(table, "start_s"), times_us(table, "end_s")
        # Targets with equal numbers, such as sub-channel 1 and cable 1, have tracks of their own.
        targets = list(dict.fromkeys(self.jammed.values()))
        tracks = []
        for jammer, number in zip(jammers, table.column("channel").to_pylist(), strict=True):
            target = self.jammed[jammer]
            track = number + _TRACKS * targets.index(target)
            self.tracks[JAMMERS, track] = f"{_JAMMED[target]} {number}"
            tracks.append(track)
        for i, track in enumerate(tracks):
            yield _slice(JAMMERS, track, names[i], starts[i], ends[i], args[i])

    def message_events(self, table: pa.Table) -> Iterator[str]:
        """Yield a slice for each message from sending to arrival, and an arrow from its sender to its receiver if it arrived.

        The slice is an async event, because other slices of a track must nest, and messages may overtake each other.
        """
        sources, targets = table.column("source").to_pylist(), table.column("target").to_pylist()
        protocols, args = json_texts(table.column("protocol")), row_objects(table, _ARGUMENTS["messages"])
        (sent, _), (ends, _) = times_us(table, "sent_s"), times_us(table, "end_s")
        outcomes = json_texts(table.column("outcome"))
        # Number of a node to its name; the server has the number -1.
        names: dict[int, str] = {}
        for node in dict.fromkeys([*sources, *targets]):
            names[node] = "server" if node < 0 else str(node)
            self.tracks[MESSAGES, node] = "server" if node < 0 else f"client {node}"
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            # The protocol is a text of JSON: the rest of the name goes before its closing quote.
            protocol = protocols[i]
            common = f'"cat":{protocol},"name":{protocol[:-1]} {source} to {names[target]}","pid":{MESSAGES},"tid":{source}'
            common += f',"id":{self.flows}'
            yield f'{{"ph":"b","ts":{sent[i]!r},"args":{args[i]},{common}}}'
            yield f'{{"ph":"e","ts":{ends[i]!r},{common}}}'
            if outcomes[i] != '"delivered"':
                self.flows += 1
                continue
            sender, receiver = (MESSAGES, source), (MESSAGES, target)
            yield _slice(*sender, f'"sends to {names[target]}"', sent[i], sent[i] + _INSTANT_US, args[i])
            yield _slice(*receiver, f'"receives from {source}"', ends[i], ends[i] + _INSTANT_US, args[i])
            yield from self._arrow("message", sender, sent[i], receiver, ends[i])

    def _arrow(self, name: str, start: tuple[int, int], start_us: float, end: tuple[int, int], end_us: float) -> Iterator[str]:
        """Yield the two ends of an arrow; `start` and `end` are (process, track)."""
        common = f'"cat":"{name}","name":"{name}","id":{self.flows}'
        self.flows += 1
        yield f'{{"ph":"s",{common},"pid":{start[0]},"tid":{start[1]},"ts":{start_us!r}}}'
        yield f'{{"ph":"f","bp":"e",{common},"pid":{end[0]},"tid":{end[1]},"ts":{end_us!r}}}'

    def name_events(self) -> Iterator[str]:
        """Yield the events that name processes and tracks and set their order."""
        with_tracks = {process for process, _ in self.tracks}
        names = {process: name for process, name in _NAMES.items() if process in with_tracks}
        names |= {process: f"clients: {group or 'in no group'}" for group, process in self.groups.items()}
        for process, name in names.items():
            # Groups of clients take the place of the clients.
            sort_index = CLIENTS if process >= GROUPS else process
            yield _meta("process_name", process, None, {"name": name})
            yield _meta("process_sort_index", process, None, {"sort_index": sort_index})
        for (process, track), name in sorted(self.tracks.items()):
            yield _meta("thread_name", process, track, {"name": name})
            yield _meta("thread_sort_index", process, track, {"sort_index": track})


def _slice(process: int, track: int, name: str, start_us: float, end_us: float, args: str) -> str:
    """Return a slice as JSON; `name` and `args` are JSON already."""
    times = f'"ts":{start_us!r},"dur":{end_us - start_us!r}'
    return f'{{"ph":"X","name":{name},"pid":{process},"tid":{track},{times},"args":{args}}}'


def _meta(name: str, process: int, track: int | None, args: dict[str, object]) -> str:
    """Return an event that names a track, or a process if `track` is None, or sets its place in the order."""
    place = {"pid": process} if track is None else {"pid": process, "tid": track}
    return json.dumps({"ph": "M", "name": name, **place, "args": args}, separators=(",", ":"))
