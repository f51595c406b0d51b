"""Independent books of a run: its tables recounted from the scenario alone, without a line of the engine.

Each account is a function of a `Ledger` that yields what is wrong. An account that a scenario does not concern yields nothing.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.helpers.memory_recorder import MemoryRecorder

Row = dict[str, Any]
Tables = Mapping[str, Any]
ENDS = ("delivered", "lost", "late", "aborted")
CLOSE = 1e-9
UNKNOWN = math.nan
"""Stands for a number of a client that the accounts cannot tell, as one that runs over the clients of a group."""


@dataclass
class Ledger:
    """The scenario of a run, complete, and the rows of its tables; NaN is None."""

    scenario: Tables
    rounds: list[Row]
    clients: list[Row]
    others: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of server."""
        return str(self.scenario["server"].get("kind", "synchronous"))

    @property
    def keeps_updates(self) -> bool:
        """True if an update may take several attempts."""
        return self.kind == "asynchronous"

    def key(self, name: str) -> Any:
        """Return the value of a dotted key, None if it is absent."""
        value: Any = self.scenario
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def number_of(self, name: str, row: Row) -> float | None:
        """Return the number that a key holds for the client of a row: None if it is absent, UNKNOWN if it is neither a number,
        nor a list of them, nor one for each group."""
        value = self.key(name)
        if isinstance(value, Mapping):
            value = value.get("by_group", {}).get(row.get("group"), UNKNOWN)
        if isinstance(value, list):
            value = value[row["client"]]
        if value is None:
            return None
        return float(value) if isinstance(value, int | float) else UNKNOWN

    def bytes_of(self, way: str, row: Row) -> float:
        """Return the bytes of a model or an update (`way` down, up) of the client of a row, UNKNOWN if the file does not say."""
        payload = self.scenario["payload"]
        encoded = payload[{"up": "compression", "down": "down_compression"}[way]]["kind"] != "none"
        size = UNKNOWN if encoded or payload["trained_share"] != 1 else self.number_of(f"payload.{way}_bytes", row) or 0.0
        return size if math.isnan(size) else math.ceil(size) + payload["header_bytes"]


def ledger_of(folder: Path, scenario: Tables) -> Ledger:
    """Return the ledger of a folder of a run."""
    rows = {file.stem: [_plain(row) for row in pq.read_table(file).to_pylist()] for file in folder.glob("*.parquet")}
    return Ledger(scenario, rows.pop("rounds"), rows.pop("clients", []), rows)


def ledger_of_records(records: MemoryRecorder, scenario: Tables) -> Ledger:
    """Return the ledger of a run in memory."""
    kept = {"rounds": "rounds", "clients": "updates", "jams": "jams", "messages": "messages", "probes": "probes"}
    rows = {name: [_plain(row._asdict()) for row in getattr(records, table)] for name, table in kept.items()}
    return Ledger(scenario, rows.pop("rounds"), rows.pop("clients"), {name: table for name, table in rows.items() if table})


def _plain(row: Row) -> Row:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def attempts_end_once(book: Ledger) -> Iterator[str]:
    """An attempt has one row and one end, and the rounds count each of them once."""
    keys = Counter((row["round"], row["client"]) for row in book.clients)
    yield from (f"attempt {key} has {count} rows" for key, count in keys.items() if count > 1)
    yield from (f"outcome {row['outcome']}" for row in book.clients if row["outcome"] not in (*ENDS, "in_flight"))
    yield from (f"no end: {row}" for row in book.clients if row["outcome_s"] is None)
    begun, ended = 0, 0
    for row in book.rounds:
        begun, ended = begun + row["selected"], ended + sum(row[name] for name in ENDS)
        if begun != ended + row["in_flight"]:
            yield f"round {row['round']}: {begun} were selected, {ended} ended, {row['in_flight']} are in flight"


def ends_fall_into_rounds(book: Ledger) -> Iterator[str]:
    """Up to each close, the rounds count the attempts that ended before it, and those at the same instant or not."""
    for name in ENDS:
        times = sorted(row["outcome_s"] for row in book.clients if row["outcome"] == name)
        yield from _compare_sums(book, name, [(time, 1) for time in times])


def bytes_recounted(book: Ledger) -> Iterator[str]:
    """An attempt has the bytes that the scenario says, and the rounds add up what was begun in each of them."""
    probes = book.others.get("probes", [])
    if "learner" not in book.scenario:
        for row in book.clients:
            for way, step in (("down", "download_start_s"), ("up", "upload_start_s")):
                size, sent = book.bytes_of(way, row), row[f"bytes_{way}"]
                known = row[step] is not None or book.keeps_updates
                if not (math.isnan(size) or sent in (0, size)) or (sent and not known):
                    yield f"{way}: {sent} bytes in {row}"
                if row[step] is None and sent and not book.keeps_updates:
                    yield f"{way}: bytes, but nothing was sent in {row}"
                # Peers send each other models; their trainings have no transfer.
                sends = way == "up" and book.scenario["server"]["kind"] != "peers"
                if sends and row[step] is not None and size and not sent and not book.keeps_updates:
                    yield f"up: no bytes in {row}"
    for way, step in (("down", "download_start_s"), ("up", "upload_start_s")):
        column = f"bytes_{way}"
        told, found = sum(row[column] for row in book.rounds), sum(row[column] for row in (*book.clients, *probes))
        last_s = book.rounds[-1]["end_s"] if book.rounds else 0.0
        after = sum(row[column] for row in (*book.clients, *probes) if (row[step] or 0.0) >= last_s)
        if not found - after <= told <= found:
            yield f"{column}: the rounds hold {told}, the attempts {found}, of them {after} after the last close"
        if way == "up" and not probes and not book.keeps_updates:
            begun = sorted((row[step], row[column]) for row in book.clients if row[step] is not None)
            yield from _compare_sums(book, column, begun)


def _compare_sums(book: Ledger, column: str, events: list[tuple[float, int]]) -> Iterator[str]:
    """Compare the sums of a column of rounds with (time, amount) up to each close, with and without what falls on the close."""
    told = before = upto = 0
    first = second = 0
    for row in book.rounds:
        told += row[column]
        while first < len(events) and events[first][0] < row["end_s"]:
            before += events[first][1]
            first += 1
        while second < len(events) and events[second][0] <= row["end_s"]:
            upto += events[second][1]
            second += 1
        if not before <= told <= upto:
            yield f"round {row['round']}: {column} adds up to {told}, and {before} to {upto} are in the attempts"
            return


def ages_recounted(book: Ledger) -> Iterator[str]:
    """Ages count from the round of the last delivered attempt."""
    if book.keeps_updates:
        yield from _ages_of_slots(book)


def _ages_of_slots(book: Ledger) -> Iterator[str]:
    """With the asynchronous server ages are 1 after a delivery, and grow by 1 in every other round."""
    count = book.scenario["clients"]["count"]
    age, last_s = [1] * count, [0.0] * count
    attempts = defaultdict(list)
    for row in book.clients:
        attempts[row["round"]].append(row)
    for closed in book.rounds:
        delivered = {row["client"]: row for row in attempts[closed["round"]] if row["outcome"] == "delivered"}
        for row in attempts[closed["round"]]:
            expected = 1 if row["client"] in delivered else age[row["client"]] + 1
            if row["age_after_rounds"] not in (expected, None):
                yield f"age_after_rounds is {row['age_after_rounds']}, not {expected}: {row}"
        age = [1 if client in delivered else before + 1 for client, before in enumerate(age)]
        for client, row in delivered.items():
            last_s[client] = row["outcome_s"]
        for row in attempts[closed["round"]]:
            since_s = closed["end_s"] - last_s[row["client"]]
            if row["age_after_s"] is not None and not math.isclose(row["age_after_s"], since_s, rel_tol=CLOSE, abs_tol=CLOSE):
                yield f"age_after_s is {row['age_after_s']}, not {since_s}: {row}"
        mean = sum(age) / count
        variance = sum((one - mean) ** 2 for one in age)
        if closed["sum_age"] != sum(age) or not math.isclose(closed["age_variance"], variance, rel_tol=CLOSE, abs_tol=CLOSE):
            yield f"round {closed['round']}: ages {age} are told as {closed['sum_age']}, {closed['age_variance']}"


def budgets_recounted(book: Ledger) -> Iterator[str]:
    """Each participation of a client spends the next budget of the schedule, and leaks add up."""
    schedule = book.key("privacy.schedule")
    if schedule is None or schedule["kind"] not in ("geometric", "explicit") or book.key("privacy.mechanism") == "none":
        return
    on_upload = book.key("privacy.charge_on") == "upload"
    charged = [row for row in book.clients if row["epsilon"] is not None]
    for row in book.clients:
        sent = row["upload_start_s"] is not None
        if not book.keeps_updates and on_upload and sent != (row["epsilon"] is not None):
            yield f"sent and not charged, or the other way: {row}"
        if not on_upload and row["outcome"] == "delivered" and row["epsilon"] is None:
            yield f"delivered and not charged: {row}"
    of_client = defaultdict(list)
    for row in sorted(charged, key=lambda row: row["round"]):
        of_client[row["client"]].append(row)
    for rows in of_client.values():
        leak = 0.0
        for number, row in enumerate(rows, 1):
            budget = _budget(schedule, number)
            leak += budget
            if not math.isclose(row["epsilon"], budget, rel_tol=CLOSE) or not math.isclose(row["leak"], leak, rel_tol=CLOSE):
                yield f"participation {number} spends {budget}, in all {leak}: {row}"
    largest = max((row["leak"] for row in charged), default=0.0)
    if book.rounds and book.rounds[-1]["max_leak"] > largest * (1 + CLOSE):
        yield f"the largest leak is told as {book.rounds[-1]['max_leak']}, and {largest} was spent"


def _budget(schedule: Tables, number: int) -> float:
    if schedule["kind"] == "explicit":
        return float(schedule["epsilons"][number - 1]) if number <= len(schedule["epsilons"]) else 0.0
    eta = schedule["eta"]
    return float(schedule["epsilon_total"] * (math.exp(eta) - 1) * math.exp(-eta * number))


def clients_do_one_thing(book: Ledger) -> Iterator[str]:
    """The attempts of a client do not overlap in time."""
    of_client = defaultdict(list)
    for row in book.clients:
        of_client[row["client"]].append((row["selected_s"], row["outcome_s"], row["round"]))
    for client, spans in of_client.items():
        for earlier, later in itertools.pairwise(sorted(spans)):
            if later[0] < earlier[1]:
                yield f"client {client} is in rounds {earlier[2]} and {later[2]} at once"


def channels_carry_one(book: Ledger) -> Iterator[str]:
    """No more uploads than sub-channels are under way, and none beside another on one sub-channel, except with contention."""
    sending = [
        (row["upload_start_s"], row["upload_end_s"], row)
        for row in book.clients
        if row["upload_start_s"] is not None and row["upload_end_s"] is not None
    ]
    limit = book.key("uplink.sub_channels")
    if limit is not None:
        changes = sorted(itertools.chain.from_iterable(((start, 1), (end, -1)) for start, end, _ in sending))
        under_way = 0
        for time, change in changes:
            under_way += change
            if under_way > limit:
                yield f"{under_way} uploads at {time} s on {limit} sub-channels"
                break
    if "channels" not in book.scenario:
        return
    of_channel = defaultdict(list)
    for start, end, row in sending:
        of_channel[row["channel"]].append((start, end, row))
    for channel, spans in of_channel.items():
        ordered = sorted(spans, key=lambda span: span[:2])
        for earlier, later in itertools.pairwise(ordered):
            together = later[0] < earlier[1] and later[1] > later[0]
            if together and not book.key("server.contention"):
                yield f"sub-channel {channel} is used twice at {later[0]} s"
            if together and "delivered" in (earlier[2]["outcome"], later[2]["outcome"]):
                yield f"two meet on sub-channel {channel} at {later[0]} s, and one is delivered"


def outages_destroy(book: Ledger) -> Iterator[str]:
    """A transmission during an outage is not delivered, and an outage is no cause outside its time."""
    for outage in book.key("outages") or []:
        clients = outage.get("clients", range(book.scenario["clients"]["count"]))
        if "from_s" not in outage or isinstance(clients, str):
            continue
        start, end = outage["from_s"], outage.get("to_s", math.inf)
        for row in book.clients:
            ways = ((row["download_start_s"], row["download_end_s"]), (row["upload_start_s"], row["upload_end_s"]))
            sent = [(a, b) for a, b in ways if a is not None and b is not None and row["client"] in clients]
            hit = any(a < end and b > start for a, b in sent)
            touched = any(a <= end and b >= start for a, b in sent)
            if hit and row["outcome"] == "delivered" and not book.keeps_updates:
                yield f"delivered through {outage['name']}: {row}"
            if row.get("cause") == outage["name"] and not touched:
                yield f"lost to {outage['name']}, which was not there: {row}"


def presence_is_kept(book: Ledger) -> Iterator[str]:
    """With a trace of presence, an attempt begins and ends while its client is present."""
    path = book.key("availability.path")
    simple = book.key("availability.kind") == "trace" and book.key("availability.repeat_s") is None
    if not simple or path is None or "script" in book.scenario:
        return
    spans = defaultdict(list)
    with Path(path).open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if "on_s" not in line:
                return
            spans[int(line["client"])].append((float(line["on_s"]), float(line["off_s"])))
    for row in book.clients:
        end = row["outcome_s"]
        if not any(on <= row["selected_s"] < off and end <= off for on, off in spans[row["client"]]):
            yield f"its client was absent: {row}"
        if row["outcome"] == "delivered" and any(end == off for _, off in spans[row["client"]]):
            yield f"delivered as its client left: {row}"


def rounds_close_as_said(book: Ledger) -> Iterator[str]:
    """Rounds close when the rule of the server says."""
    server, rounds = book.scenario["server"], book.rounds
    for before, after in itertools.pairwise(rounds):
        if after["start_s"] < before["end_s"]:
            yield f"round {after['round']} starts before the last one ended"
    if book.kind == "semi-synchronous":
        for row in rounds:
            if not math.isclose(row["end_s"], row["round"] * server["round_s"], rel_tol=CLOSE):
                yield f"round {row['round']} ends at {row['end_s']}"
    if book.kind == "buffered" and server.get("pacing", "deliveries") == "deliveries" and "staleness_bound" not in server:
        yield from _closes_of_full_buffers(book)
    # Where edges aggregate, a round of the cloud closes with their models; the attempts of clients are of their rounds.
    if book.kind == "synchronous" and "edges" not in book.scenario:
        yield from _closes_of_single_rounds(book)


def _closes_of_full_buffers(book: Ledger) -> Iterator[str]:
    """A buffered round closes at the delivery that fills its buffer; later ones of the same instant count for the next rounds."""
    buffer, left_over = book.scenario["server"]["buffer"], 0
    times = [row["outcome_s"] for row in book.clients if row["outcome"] == "delivered"]
    for row in book.rounds:
        arrived = left_over + row["delivered"]
        before = left_over + sum(row["start_s"] < time < row["end_s"] for time in times)
        # Fewer where nobody is left at work.
        if arrived < buffer and row["in_flight"]:
            yield f"round {row['round']} has {arrived}"
        if before >= buffer and row["start_s"] < row["end_s"]:
            yield f"round {row['round']} has {before} before its end"
        left_over = max(arrived - buffer, 0)


def _closes_of_single_rounds(book: Ledger) -> Iterator[str]:
    """A synchronous round closes at its first n deliveries, the end of its last attempt, or its deadline.

    With `at_least`, it waits past the deadline for so many deliveries, while so many can still arrive.
    """
    server = book.scenario["server"]
    of_round = defaultdict(list)
    for row in book.clients:
        of_round[row["round"]].append(row)
    for row in book.rounds:
        attempts = of_round[row["round"]]
        opened = min((one["selected_s"] for one in attempts), default=row["end_s"])
        # An attempt is late because the round closed before its end.
        ends = sorted(one["outcome_s"] for one in attempts if one["outcome"] not in ("in_flight", "late"))
        arrived = sorted(one["outcome_s"] for one in attempts if one["outcome"] == "delivered")
        expected = ends[-1] if len(ends) == len(attempts) and ends else math.inf
        if "first" in server and len(arrived) >= server["first"]:
            expected = min(expected, arrived[server["first"] - 1])
        if "deadline_s" in server:
            expected = min(expected, max(opened + server["deadline_s"], _end_of_wait(attempts, server.get("at_least"))))
        if attempts and book.key("policy.kind") != "fedcs" and not math.isclose(row["end_s"], expected, rel_tol=CLOSE):
            yield f"round {row['round']} closes at {row['end_s']}, not at {expected}"


def _end_of_wait(attempts: Sequence[Row], at_least: int | None) -> float:
    """Return when `at_least` attempts are delivered, or fewer can still be."""
    if at_least is None or len(attempts) < at_least:
        return -math.inf
    ended = sorted(
        (one["outcome_s"], one["outcome"] == "delivered") for one in attempts if one["outcome"] not in ("in_flight", "late")
    )
    delivered = failed = 0
    for time_s, arrived in ended:
        delivered, failed = delivered + arrived, failed + (not arrived)
        if delivered >= at_least or len(attempts) - failed < at_least:
            return float(time_s)
    return math.inf


def joules_are_watts_times_seconds(book: Ledger) -> Iterator[str]:
    """An attempt draws the power of each phase for its length; all clients together draw some power all the time."""
    energy = book.key("energy")
    if energy is None or book.keeps_updates:
        return
    steps = {"receive_j": "download", "compute_j": "compute", "send_j": "upload"}
    for row in book.clients:
        for column, step in steps.items():
            start, end = row[f"{step}_start_s"], row[f"{step}_end_s"]
            power = book.number_of(f"energy.{column.removesuffix('_j')}_w", row)
            if power is None or math.isnan(power) or (start is not None and end is None):
                continue
            expected = 0.0 if start is None else power * (end - start)
            if not math.isclose(row[column], expected, rel_tol=1e-6, abs_tol=1e-9):
                yield f"{column} is not {expected}: {row}"
    still = "battery" not in energy and book.key("availability.kind") == "always" and "script" not in book.scenario
    # What tests, opinions and messages draw comes on top of that.
    still = still and not any(row.get("besides_j") for row in book.rounds)
    powers = {column: book.number_of(f"energy.{column.removesuffix('_j')}_w", {"client": 0}) for column in (*steps, "idle_j")}
    if still and book.rounds and all(powers.values()) and not any(isinstance(value, list | dict) for value in energy.values()):
        seconds = sum(row[column] / power for row in book.rounds for column, power in powers.items() if power)
        expected = book.scenario["clients"]["count"] * book.rounds[-1]["end_s"]
        if not math.isclose(seconds, expected, rel_tol=1e-6):
            yield f"clients draw some power for {seconds} s of {expected} s"


def constant_links_take_their_time(book: Ledger) -> Iterator[str]:
    """On a link of constant delay and bandwidth a transmission takes the delay and the bytes over the bandwidth."""
    for section, step, way in (("downlink", "download", "down"), ("uplink", "upload", "up")):
        link = book.scenario.get(section, {})
        plain = link.get("delay", {}).get("kind", "constant") == "constant" and not {"shared", "bandwidth"} & link.keys()
        if not plain or link.get("changes") or "random_changes" in link or book.keeps_updates or "learner" in book.scenario:
            continue
        if {"script", "network"} & book.scenario.keys() or (way == "up" and "channels" in book.scenario):
            continue
        for row in book.clients:
            start, end = row[f"{step}_start_s"], row[f"{step}_end_s"]
            arrived = row["outcome"] in ("delivered", "late") if way == "up" else row["compute_start_s"] is not None
            if start is None or end is None or not arrived or (way == "up" and row["outcome"] == "late"):
                continue
            rate = book.number_of(f"{section}.bandwidth_bytes_per_s", row)
            delay = book.number_of(f"{section}.delay.value_s", row)
            if delay is None or math.isnan(delay + (rate or 0.0)):
                continue
            takes = delay + (row[f"bytes_{way}"] / rate if rate else 0.0)
            if not math.isclose(end - start, takes, rel_tol=1e-6, abs_tol=1e-9) and row[f"bytes_{way}"]:
                yield f"{step} should take {takes} s: {row}"


def versions_grow(book: Ledger) -> Iterator[str]:
    """The version never falls, and no client has a version that is not made yet."""
    versions = [0, *(row["version"] for row in book.rounds)]
    yield from (f"version {later} after {earlier}" for earlier, later in itertools.pairwise(versions) if later < earlier)
    last = book.rounds[-1]["round"] if book.rounds else 0
    # A slot that has not ended may have made models that no row of the rounds tells. Clients of edges have their edge's versions.
    of_rounds = not {"slots", "edges"} & book.scenario.keys()
    known = [row for row in book.clients if of_rounds and row["round"] <= last]
    yield from (f"version {row['version']} of {versions[-1]}: {row}" for row in known if row["version"] > versions[-1])


def jammers_hit_what_they_jam(book: Ledger) -> Iterator[str]:
    """A jammed transmission was on a jammed sub-channel at the time, and dwells count what they hit."""
    jams = book.others.get("jams")
    if jams is None or book.kind == "fl-da":
        return
    told = sum(row.get("jam_dwells") or 0 for row in book.rounds)
    if told > len(jams):
        yield f"{told} dwells are told of, {len(jams)} recorded"
    for row in book.clients:
        if row.get("jammed"):
            start, end = row["upload_start_s"], row["upload_end_s"]
            near = [jam for jam in jams if jam["channel"] == row["channel"]]
            if start is not None and end is not None and not any(jam["start_s"] <= end and jam["end_s"] >= start for jam in near):
                yield f"jammed, but nobody jams there: {row}"
            if row["outcome"] == "delivered":
                yield f"jammed and delivered: {row}"


def messages_end(book: Ledger) -> Iterator[str]:
    """Messages between clients end after they were sent, once, and the rounds count them."""
    messages = book.others.get("messages")
    if messages is None:
        return
    yield from (f"ends before it is sent: {row}" for row in messages if row["end_s"] is not None and row["end_s"] < row["sent_s"])
    if not all("messages" in row for row in book.rounds):
        return  # opinions alone, which the rounds do not count
    begun = sum(row["messages"] or 0 for row in book.rounds)
    ended = sum((row["messages_delivered"] or 0) + (row["messages_lost"] or 0) for row in book.rounds)
    flying = (book.rounds[-1]["messages_in_flight"] or 0) if book.rounds else 0
    if begun != ended + flying or begun > len(messages):
        yield f"{begun} messages, {ended} ended, {flying} in flight, {len(messages)} recorded"


ACCOUNTS: tuple[Callable[[Ledger], Iterator[str]], ...] = (
    attempts_end_once,
    ends_fall_into_rounds,
    bytes_recounted,
    ages_recounted,
    budgets_recounted,
    clients_do_one_thing,
    channels_carry_one,
    outages_destroy,
    presence_is_kept,
    rounds_close_as_said,
    joules_are_watts_times_seconds,
    constant_links_take_their_time,
    versions_grow,
    jammers_hit_what_they_jam,
    messages_end,
)


def problems(book: Ledger) -> list[str]:
    """Return what is wrong, each with the account that found it. Without a table of attempts there is nothing to recount."""
    if not book.clients:
        return []
    return [f"{account.__name__}: {text}" for account in ACCOUNTS for text in itertools.islice(account(book), 3)]
