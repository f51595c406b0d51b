"""Relations between two runs: a change of a scenario that must change nothing, or must change all results in a known way.

python -m tests.reliability.metamorphic SEED COUNT

Of each drawn world and relation, the tables of both runs are compared row by row. `every_case` lists each relation with each
server and each section of `worlds`, for the slow suite.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built, copied
from tests.reliability.campaign import gather, options, say, table
from tests.reliability.worlds import COUNT, SECTIONS, SERVERS, drawn_world, world_of

Tables = dict[str, Any]
RECORDS = ("rounds", "updates", "jams", "detections", "messages", "beliefs", "probes")
TIMES = 8.0
"""Factor of all times. A power of two changes no digit of a float."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A change of a scenario, and how the records of the changed run follow from those of the first one."""

    change: Callable[[Tables], Tables | None]
    """Return the tables of the changed scenario, or None where the relation says nothing about it."""
    factor: Callable[[str], float] = lambda column: 1.0
    """Return the factor of a column."""
    ignored: frozenset[str] = frozenset()
    """Columns that may differ."""
    tolerance: float = 0.0
    """Relative and absolute difference that rounding may cause."""
    play: Callable[[Tables], MemoryRecorder] | None = None
    """Run the changed scenario; None: as usual."""
    row: Callable[[Any], Any] = lambda row: row
    """Return a row of the changed run as it was in the first one, or None for a row to leave out."""
    ordered: bool = True
    """False if the order of rows may differ."""


def play(tables: Tables) -> MemoryRecorder:
    """Run a scenario and return its records."""
    simulation, records = built(tables)
    simulation.run()
    simulation.close()
    return records


def play_in_pieces(tables: Tables) -> MemoryRecorder:
    """Run a scenario round by round, looking at every update in flight between rounds."""
    simulation, records = built(tables)
    while simulation.ended is None:
        simulation.run(until_round=simulation.server.round + 1)
        assert all(update.client == client for client, update in simulation.server.clients.in_flight.items())
    simulation.close()
    return records


def play_resumed(tables: Tables) -> MemoryRecorder:
    """Run a scenario for three rounds, save its state, and go on from that state in another simulation."""
    first, begun = built(tables)
    first.run(until_round=3)
    if first.ended is not None:
        first.close()
        return begun
    second, rest = built(tables)
    second.load_state_dict(copied(first.state_dict()))
    second.run()
    second.close()
    for name in RECORDS:
        getattr(rest, name)[:0] = getattr(begun, name)
    return rest


def play_more_rounds(tables: Tables) -> MemoryRecorder:
    """Run more rounds, and return the records of the first ones."""
    rounds = tables["rounds"]
    simulation, records = built(tables | {"rounds": rounds + 3})
    simulation.run(until_round=rounds)
    simulation.close()
    return records


def _setting(changes: Mapping[str, Any], unless: Iterable[str] = (), only: Callable[[Tables], bool] = lambda tables: True) -> Any:
    """Return the change that sets keys where `unless` is absent and `only` holds."""

    def change(tables: Tables) -> Tables | None:
        if not only(tables) or any(_value(tables, key) is not None for key in (*changes, *unless)):
            return None
        return override(tables, changes)

    return change


def _value(tables: Any, key: str) -> Any:
    for part in key.split("."):
        tables = tables.get(part) if isinstance(tables, dict) else None
    return tables


def _kind(*kinds: str) -> Callable[[Tables], bool]:
    return lambda tables: tables["server"].get("kind", "synchronous") in kinds


def complete(tables: Tables) -> Tables:
    """Return the tables with all defaults written out."""
    return parse(tables).model_dump(exclude_none=True, by_alias=True)


def _multiply(value: Any, factor: float) -> Any:
    if isinstance(value, dict):
        return {key: _multiply(inner, factor) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_multiply(inner, factor) for inner in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(value * factor) if isinstance(value, int) else value * factor


def _scale_keys(value: Any, factor: Callable[[str], float]) -> Any:
    if isinstance(value, dict):
        return {
            key: _multiply(inner, factor(key)) if factor(key) != 1.0 else _scale_keys(inner, factor)
            for key, inner in value.items()
        }
    return [_scale_keys(inner, factor) for inner in value] if isinstance(value, list | tuple) else value


def _power_of_seconds(key: str) -> int:
    """Return 1 for a key or column in seconds or joules, -1 for one in something per second, 0 for any other."""
    if key.endswith("_per_s"):
        return -1
    return 1 if key.endswith(("_s", "_j")) or key.startswith("seconds_per_") or "_s_per_" in key else 0


def double_bytes(tables: Tables) -> Tables:
    """Return the scenario with all sizes and all bandwidths doubled."""
    if _value(tables, "policy.kind") in ("fedcs", "refl", "tifl") and "probe" not in tables:
        # They send requests and answers: without the section their sizes are not among the keys.
        tables = tables | {"probe": {}}
    return _scale_keys(complete(tables), lambda key: 2.0 if "bytes" in key and key != "client_state_bytes" else 1.0)


def stretch_times(tables: Tables) -> Tables | None:
    """Return the scenario with all times eight times as long."""
    if "script" in tables or _value(tables, "availability.path"):
        return None
    tables = _scale_keys(complete(tables), lambda key: TIMES ** _power_of_seconds(key))
    for jammer in tables.get("jammers", []):
        if "dwell_s" in jammer and "start" in jammer:
            jammer["start"] *= TIMES
    return tables


def repeat_parameters(tables: Tables) -> Tables | None:
    """Return the scenario with change points after which the laws are the same."""
    tables, found = deepcopy(tables), False
    for section in ("downlink", "compute", "uplink", "channels"):
        link = tables.get(section, {})
        law = {name: value for name, value in link.get("delay", {}).items() if name not in ("kind", "path")}
        if law and "changes" not in link and "random_changes" not in link:
            link["changes"] = [{"at_s": 1.7, "delay": law}]
            found = True
    return tables if found else None


def unreached_changes(**when: Any) -> Callable[[Tables], Tables | None]:
    """Return the change that adds change points which no run reaches."""

    def change(tables: Tables) -> Tables | None:
        tables, found = deepcopy(tables), False
        for section in ("downlink", "compute", "uplink", "channels"):
            link = tables.get(section, {})
            law = {name: value for name, value in link.get("delay", {}).items() if name.endswith("_s")}
            if law and "random_changes" not in link:
                link["changes"] = [*link.get("changes", []), when | {"delay": _multiply(law, 2.0)}]
                found = True
        return tables if found else None

    return change


def bandwidths_as_laws(tables: Tables) -> Tables | None:
    """Return the scenario with each constant bandwidth written as a law of bandwidth."""
    tables, found = deepcopy(tables), False
    for section in ("downlink", "uplink", "opinions", "peers"):
        link = tables.get(section, {})
        if "bandwidth_bytes_per_s" in link and "changes" not in link:
            link["bandwidth"] = {"kind": "constant", "bytes_per_s": link.pop("bandwidth_bytes_per_s")}
            found = True
    return tables if found else None


def bandwidths_as_traces(tables: Tables) -> Tables | None:
    """Return the scenario with each constant bandwidth written as a trace of several equal steps."""
    tables, found = deepcopy(tables), False
    for section in ("downlink", "uplink", "opinions", "peers"):
        link = tables.get(section, {})
        rate = link.get("bandwidth_bytes_per_s")
        if isinstance(rate, float) and "changes" not in link:
            del link["bandwidth_bytes_per_s"]
            link["bandwidth"] = {"kind": "trace", "time_s": [0.0, 0.3, 0.9], "bytes_per_s": [rate] * 3, "offset": "random"}
            found = True
    return tables if found else None


def values_by_group(tables: Tables) -> Tables | None:
    """Return the scenario with each parameter of a law of delay given by group, all groups alike."""
    tables, found = deepcopy(tables), False
    if "groups" in tables["clients"]:
        return None
    tables["clients"]["groups"] = [{"name": "a", "count": 4}, {"name": "b", "count": COUNT - 4}]
    for section in ("downlink", "compute", "uplink"):
        law = tables.get(section, {}).get("delay", {})
        for name, value in law.items():
            if isinstance(value, float):
                law[name] = {"by_group": {"a": value, "b": value}}
                found = True
    return tables if found else None


def _huge_link(section: str) -> Callable[[Tables], Tables | None]:
    return _setting(
        {f"{section}.shared": {"bandwidth_bytes_per_s": 1e15}}, only=lambda tables: _value(tables, f"{section}.bandwidth") is None
    )


NUMBERS = [5, 2, 7, 0, 8, 3, 1, 6, 4]
"""New numbers of the clients 0, 1, .. of a permuted world."""
_ANY_ORDER: Tables = {"policy": {"kind": "tests.reliability.by_rank:ByRank", "ranks": list(range(COUNT))}}


def give_ranks(tables: Tables) -> Tables:
    """Return the scenario with a policy that goes by ranks of clients, and not by their numbers."""
    return override(tables, _ANY_ORDER) if _kind("synchronous", "semi-synchronous", "buffered")(tables) else tables


def permute_clients(tables: Tables) -> Tables | None:
    """Return the scenario with the clients in another order: all values that a list gives each client, and their ranks."""
    if not _is_fixed(tables):
        return None

    def move(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: move(inner, name) for name, inner in value.items()}
        if key == "clients" and isinstance(value, list):
            return sorted(NUMBERS[client] for client in value)
        if isinstance(value, list) and len(value) == COUNT and not isinstance(value[0], dict):
            return [value[NUMBERS.index(place)] for place in range(COUNT)]
        return [move(inner, key) for inner in value] if isinstance(value, list) else value

    return move(give_ranks(tables))


def _is_fixed(tables: Tables) -> bool:
    """Return True if nothing in the world is drawn, and no client is chosen by its number."""
    apart = ("script", "availability", "channels", "jammers", "slots")
    sections = [tables.get(name, {}) for name in ("downlink", "compute", "uplink")]
    laws = [law for section in sections for law in section.values() if isinstance(law, dict)]
    fixed = all(law.get("kind", "constant") in ("constant", "perfect") and "count" not in law for law in laws)
    drawn = any("mean_up_s" in outage or "mean_up_rounds" in outage for outage in tables.get("outages", []))
    # Ties at one instant are broken by number.
    different = isinstance(_value(tables, "compute.delay.value_s"), list)
    return fixed and different and not drawn and not any(name in tables for name in apart)


def add_client(tables: Tables) -> Tables | None:
    """Return the scenario with one more client, which is always absent and of which nothing is drawn for others."""
    apart = ("channels", "jammers", "slots", "availability", "script")
    if any(name in tables for name in apart):
        return None
    if any(name in _value(tables, "policy.kind") for name in ("pause", "bsfl", "clustered")) if "policy" in tables else False:
        return None
    changes: Tables = {"clients.count": COUNT + 1, "availability": {"kind": "tests.reliability.by_rank:AllButLast"}}
    if "policy" in tables:
        changes["policy"] = {"kind": "tests.reliability.by_rank:ByRank", "ranks": list(range(COUNT + 1))}

    def lengthen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: lengthen(inner) for key, inner in value.items()}
        if isinstance(value, list) and len(value) == COUNT and not isinstance(value[0], dict):
            return [*value, value[-1]]
        return [lengthen(inner) for inner in value] if isinstance(value, list) else value

    return override(lengthen(tables), changes)


def _back(row: Any) -> Any:
    return row._replace(client=NUMBERS.index(row.client)) if hasattr(row, "client") else row


_JOULES = frozenset({"compute_j", "send_j", "receive_j", "idle_j", "besides_j", "batteries_empty"})
_BUDGETS = frozenset({"epsilon", "leak", "max_leak"})
_WORK = frozenset({"samples", "steps"})
_NUMBERS = frozenset({"number", "begun_after", "closed_after"})
"""Numbers of attempts, which follow those of clients where all of them begin in one instant."""
_ROUNDING = 1e-9
_PERFECT = {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.5, "loss_bad": 0.0}
_SCHEDULE = {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}
_POWERS = {"idle_w": 0.25, "compute_w": 4.0, "send_w": 2.0, "receive_w": 1.0}
_FIRST_ALL = _setting({"server.first": 4}, only=lambda tables: _kind("synchronous")(tables) and _four(tables))


RELATIONS: dict[str, Relation] = {
    "bytes and bandwidths doubled": Relation(double_bytes, factor=lambda column: 2.0 if "bytes" in column else 1.0),
    "times stretched": Relation(stretch_times, factor=lambda column: TIMES ** _power_of_seconds(column)),
    "clients permuted": Relation(permute_clients, row=_back, ordered=False, tolerance=_ROUNDING, ignored=_NUMBERS),
    "a client that is never there": Relation(add_client, ignored=frozenset({"idle_j"})),
    "resumed": Relation(lambda tables: tables, play=play_resumed),
    "in pieces, looked at": Relation(lambda tables: tables, play=play_in_pieces),
    "more rounds to come": Relation(lambda tables: tables if _lasting(tables) else None, play=play_more_rounds),
    "a script that does nothing": Relation(_setting({"script": "tests.golden.scripts:nothing"})),
    "a script that looks on": Relation(_setting({"script": "tests.reliability.scripts:watch"})),
    "metering": Relation(_setting({"energy": _POWERS}), ignored=_JOULES),
    "batteries that last": Relation(_setting({"energy": _POWERS | {"battery": {"capacity_j": 1e9}}}), ignored=_JOULES),
    "accounting": Relation(
        _setting({"privacy": {"sensitivity": 1.0, "schedule": _SCHEDULE}}, only=lambda t: not _private(t)), ignored=_BUDGETS
    ),
    "an outage after the end": Relation(_setting({"outages": [{"name": "far", "from_s": 1e9}]})),
    "an outage after the last round": Relation(_setting({"outages": [{"name": "far", "from_round": 10**9}]})),
    "change points to the same values": Relation(repeat_parameters),
    "a change point never reached, by time": Relation(unreached_changes(at_s=1e9)),
    "a change point never reached, by round": Relation(unreached_changes(at_round=10**9)),
    "a sub-channel for each client": Relation(_setting({"uplink.sub_channels": COUNT})),
    "a huge shared uplink": Relation(_huge_link("uplink"), tolerance=_ROUNDING),
    "a huge shared downlink": Relation(_huge_link("downlink"), tolerance=_ROUNDING),
    "bandwidths as laws": Relation(bandwidths_as_laws, tolerance=_ROUNDING, ordered=False),
    "bandwidths as traces": Relation(bandwidths_as_traces, tolerance=_ROUNDING, ordered=False),
    "values by group": Relation(values_by_group, ignored=frozenset({"group"})),
    "certain success, up": Relation(_setting({"uplink.channel": {"kind": "bernoulli", "success": 1.0}})),
    "bursts that lose nothing, up": Relation(_setting({"uplink.channel": _PERFECT})),
    "bursts that lose nothing, down": Relation(_setting({"downlink.channel": _PERFECT})),
    "clients that stay": Relation(_setting({"availability": {"kind": "markov", "mean_on_s": 1e15, "mean_off_s": 1e-6}})),
    "a far deadline": Relation(_setting({"server.deadline_s": 1e6}, only=_kind("synchronous", "safa", "fl-fa", "fl-da"))),
    "a far time limit": Relation(_setting({"time_limit_s": 1e6})),
    "a far bound on staleness": Relation(
        # With a bound a model is made of all that has arrived, also of more than the buffer holds in one instant.
        _setting(
            {"server.staleness_bound": 10**6},
            unless=["server.pacing"],
            only=lambda tables: _kind("buffered")(tables) and not _has_ties(tables),
        )
    ),
    "the first n of n": Relation(_FIRST_ALL, ignored=frozenset({"close_rule"})),
    "reports of phases": Relation(_setting({"clients.report_phases": True})),
    "a reward": Relation(_setting({"metrics.reward": {"kind": "pause-reward"}}), ignored=frozenset({"reward", "genie_reward"})),
    "samples that take no time": Relation(
        _setting({"work": {"steps": 3, "batch_size": 4}, "clients.data_sizes": 20}, only=lambda tables: _blind(tables)),
        ignored=_WORK,
    ),
    "messages one by one": Relation(_setting({"output.messages_table": True}, only=_kind("fl-da"))),
    "models and updates sent again when lost, of which none is": Relation(
        _setting(
            {"downlink.max_resends": 3, "uplink.max_resends": 3},
            unless=[
                *(f"{link}.{key}" for link in ("downlink", "uplink") for key in ("channel", "changes", "bandwidth", "shared")),
                *("channels", "outages", "script", "network", "edges", "peers"),
            ],
        )
    ),
    "opinions sent again when lost, of which none is": Relation(
        _setting({"opinions.max_resends": 3}, unless=["opinions.channel", "outages", "script"], only=_kind("fl-fa", "fl-da"))
    ),
    "messages sent again when lost, of which none is": Relation(
        _setting(
            {"peers.max_resends": 3},
            unless=["peers.channel", "peers.outages", "outages", "script", "availability", "energy"],
            only=_kind("fl-da"),
        )
    ),
    "a jammer that has spent its budget": Relation(
        _setting(
            {"jammers": [{"name": "idle", "law": {"kind": "random"}, "budget": 0, "dwell_s": 0.4}]},
            only=lambda t: "channels" in t,
        ),
        ignored=frozenset({"jammed", "jam_dwells"}),
    ),
}


def _four(tables: Tables) -> bool:
    """Return True if a round has four clients at most."""
    return tables["server"]["per_round"] == 4 and tables["policy"]["kind"] != "all"


def _private(tables: Tables) -> bool:
    """Return True if the policy goes by budgets."""
    return any(name in (_value(tables, "policy.kind") or "") for name in ("pause", "bsfl"))


def _blind(tables: Tables) -> bool:
    """Return True if neither a policy nor a law goes by samples."""
    return (_value(tables, "policy.kind") or "random") in ("random", "all") and not _kind("compass")(tables)


def _lasting(tables: Tables) -> bool:
    """Return True if the scenario does not depend on the number of rounds."""
    horizon = ("glr-cucb", "m-exp3", "aoi-aware", "adversarial")
    text = repr((tables.get("scheduler"), tables.get("policy"), _value(tables, "channels.states")))
    return not any(name in text for name in (*horizon, "breakpoints")) and "random_changes" not in repr(tables)


def broken(name: str, tables: Tables, first: MemoryRecorder | None = None) -> str | None:
    """Return the first place where the relation of that name fails, "" if it holds, None if it says nothing about the world."""
    relation = RELATIONS[name]
    changed = relation.change(tables)
    if changed is None or (relation.tolerance and _has_ties(tables)):
        return None
    start = give_ranks(tables) if name == "clients permuted" else tables
    if name == "a client that is never there" and "policy" in tables:
        start = override(tables, _ANY_ORDER)
    try:
        second = (relation.play or play)(changed)
    except UserError:
        return None
    # A run may end in an error of its own in both; only a difference counts.
    before = play(start) if first is None or start is not tables else first
    return difference(before, second, relation)


def _has_ties(tables: Tables) -> bool:
    """Return True if events may fall into one instant, of which rounding would change the order."""
    law = tables["compute"].get("delay", {})
    alike = law.get("kind") == "constant" and not isinstance(law["value_s"], list)
    return alike or _value(tables, "server.pacing") == "latency"


def difference(first: MemoryRecorder, second: MemoryRecorder, relation: Relation) -> str:
    """Return the first difference between two records that the relation does not allow, or ""."""
    for name in RECORDS:
        before = getattr(first, name)
        after = [row for row in map(relation.row, getattr(second, name)) if row is not None]
        if name in ("messages", "beliefs") and not before:
            continue  # written in one of the runs only
        if len(before) != len(after):
            return f"{name}: {len(before)} rows, then {len(after)}"
        if not relation.ordered:
            before, after = (sorted(rows, key=lambda row: (row.round, getattr(row, "client", 0))) for rows in (before, after))
        for old, new in zip(before, after, strict=True):
            for column in old._fields:
                one, other = getattr(old, column), getattr(new, column)
                if column not in relation.ignored and not _agree(one, other, relation, column):
                    place = f"{name}, round {old.round}, client {getattr(old, 'client', '-')}, {column}"
                    return f"{place}: {one!r}, then {other!r}"
    return ""


def _agree(one: Any, other: Any, relation: Relation, column: str) -> bool:
    if one is None or other is None or isinstance(one, str | bool):
        return one is other or one == other
    expected = one * relation.factor(column)
    if expected == other or (math.isnan(expected) and math.isnan(other)):
        return True
    return math.isclose(expected, other, rel_tol=relation.tolerance, abs_tol=relation.tolerance)


WORLDS: dict[str, dict[str, str]] = {
    "plain": {},
    "constants": {"times": "constants", "down": "own bandwidth", "up": "shared, own limits", "energy": "metering"},
    "bandwidths": {"times": "long downloads", "down": "own bandwidth", "up": "own sizes", "losses": "bernoulli"},
    "traces": {"up": "shared, varying", "outages": "drawn", "privacy": "budgets that end"},
    "sub-channels": {"channels": "states", "presence": "markov", "times": "long uploads"},
    "late losses": {"times": "changes in time", "server": "cancels", "losses": "bursts", "down": "losses"},
    **{f"{topic}: {name}": {topic: name} for topic, sections in SECTIONS.items() for name in sections},
}
"""Sections of the worlds of `every_case`."""


@functools.cache
def _world(server: str, name: str) -> tuple[Tables, MemoryRecorder] | None:
    """Return a world of `WORLDS` and its records, or None if the server does not allow it."""
    tables = world_of(server, WORLDS[name])
    try:
        return tables, play(tables)
    except UserError:
        return None


def every_case() -> Iterator[tuple[str, str, str]]:
    """Yield server, world and relation."""
    yield from itertools.product(SERVERS, WORLDS, RELATIONS)


def checked_case(server: str, name: str, relation: str) -> str | None:
    """Return what `broken` says of a relation in a world of `WORLDS`; None if the server does not allow the world."""
    world = _world(server, name)
    return None if world is None else broken(relation, *world)


def check(seed: int, number: int) -> dict[str, str]:
    """Return the kind of result (good, not applicable, broken) of a drawn world and relation, and what is wrong."""
    rng = Random(f"metamorphic/{seed}/{number}")
    tables = drawn_world(rng, most=3)
    tables["rounds"] = 6
    name = rng.choice(list(RELATIONS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        wrong = broken(name, tables)
    if wrong is None:
        return {"kind": "not applicable", "about": name}
    return {"kind": "broken" if wrong else "good", "about": f"{name} | {tables['description']} | {wrong}"}


def campaign() -> int:
    """Run the campaign of the command line and return the number of broken relations."""
    given = options("metamorphic")
    found = gather(given, lambda numbers: ((number, check(given.seed, number)) for number in numbers))
    wrong = {number: result for number, result in found.items() if result["kind"] == "broken"}
    for number, result in sorted(wrong.items()):
        say(f"{number}: {result['about']}")
    table((result["kind"] for result in found.values()), f"{len(found)} worlds")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if campaign() else 0)
