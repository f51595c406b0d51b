"""Warnings of clients that are away: never there, one after the other, or for days."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netsim
from scenarios.runs.reading import override, parse
from scenarios.wiring.simulation import build


def away(folder: Path, *until_s: float | None, **changes: Any) -> list[Any]:
    """The cautions of a scenario in which the clients come at those times, None: never."""
    lines = [f"{client},{start},1e9" for client, start in enumerate(until_s) if start is not None]
    (folder / "there.csv").write_text("\n".join(["client,on_s,off_s", *lines]) + "\n")
    there = {"kind": "trace", "path": str(folder / "there.csv")}
    tables = {"name": "away", "rounds": 2, "clients": {"count": len(until_s)}, "policy": {"kind": "random"}}
    tables |= {"server": {"per_round": 2}, "uplink": {"delay": {"kind": "constant", "value_s": 1.0}}, "availability": there}
    built = build(parse(override(tables, changes)))
    built.simulation.run()
    shown = [caution.text for caution in built.cautions if caution.name == "nobody-comes"]
    assert bool(shown) == (built.simulation.server.round == 0)
    return shown


def test_a_wait_for_clients_that_outlasts_the_run_is_told_of(tmp_path: Path) -> None:
    day = 86400.0
    (told,) = away(tmp_path, 0.0, 3 * day, 4 * day, time_limit_s=3600.0)
    assert told == (
        "availability.kind = 'trace': 2 clients, which a round waits for, are present at 259200 s at the earliest, and "
        "time_limit_s = 3600.0 ends the run before; no round can begin: give other times of presence, or more time"
    )
    assert away(tmp_path, 0.0, 3 * day, 4 * day) == []
    assert away(tmp_path, 0.0, 10.0, 4 * day, time_limit_s=3600.0) == []
    assert away(tmp_path, 0.0, 3 * day, time_limit_s=3600.0, **{"server.when_short": "proceed"}) == []
    (told,) = away(tmp_path, 3 * day, None, time_limit_s=2e6, **{"server.when_short": "wait"})
    assert "are present never; no round can begin" in told


def presence(folder: Path, *intervals: str, **changes: Any) -> dict[str, str]:
    """The warnings about presence of a run, before and after, by name: three clients present in those intervals."""
    (folder / "there.csv").write_text("\n".join(["client,on_s,off_s", *intervals]) + "\n")
    there = {"kind": "trace", "path": str(folder / "there.csv")}
    tables: dict[str, Any] = {"name": "presence", "rounds": 3, "clients": {"count": 3}, "policy": {"kind": "random"}}
    tables |= {"server": {"per_round": 2}, "uplink": {"delay": {"kind": "constant", "value_s": 1.0}}, "availability": there}
    scenario = parse(override(tables, changes))
    told = netsim.run(scenario, out=folder / "run", overwrite=True, event_limit=5000).summary["warnings"]
    return {one["name"]: one["text"] for one in told if one["name"] in ("never-there", "nobody-comes", "long-wait")}


def test_clients_that_are_never_there_are_told_of(tmp_path: Path) -> None:
    told = presence(tmp_path, "0,0,1e9", "2,0,1e9")
    assert told == {
        "never-there": "availability.kind = 'trace': 1 of 3 clients are never present, client 1 first among them; give them "
        "times of presence, or fewer clients"
    }
    assert presence(tmp_path, "0,0,1e9", "1,5e8,1e9", "2,0,1e9") == {}


def test_clients_that_come_one_after_the_other_never_make_a_round(tmp_path: Path) -> None:
    # Each is there for a third of the time; no two of them are at once.
    turns = ["0,0,10", "1,10,20", "2,20,30"]
    told = presence(tmp_path, *turns, **{"availability.repeat_s": 30.0, "server.when_short": "wait"})
    assert list(told) == ["nobody-comes"]
    assert "2 clients, which a round waits for, are present not before" in told["nobody-comes"]
    assert "the first round waits at least so long" in told["nobody-comes"]
    # A limit beyond what was looked at ends nothing "before".
    limit = {"availability.repeat_s": 30.0, "time_limit_s": 1e12, "server.when_short": "wait"}
    assert presence(tmp_path, *turns, **limit) == told
    told = presence(tmp_path, *turns, **{"time_limit_s": 25.0, "server.when_short": "wait"})
    assert "are present never; no round can begin" in told["nobody-comes"]
    assert presence(tmp_path, *turns, **{"availability.repeat_s": 30.0, "server.when_short": "proceed"}) == {}
    # They meet in the third turn.
    turns[2] = "2,19,30"
    assert presence(tmp_path, *turns, **{"availability.repeat_s": 30.0, "server.when_short": "wait"}) == {}


def test_a_wait_of_days_is_told_of_in_whichever_round(tmp_path: Path) -> None:
    everyone = [f"{client},{{}},{{}}" for client in range(3)]
    gap = [line.format(*times) for line in everyone for times in ((0, 1.5), (200_000, 1e9))]
    told = presence(tmp_path, *gap, **{"server.when_short": "wait"})
    assert told == {
        "long-wait": "availability.kind = 'trace': round 3 waited 2.31 days (199998.5 s) until enough clients were there; give "
        "other times of presence, or let rounds do with fewer clients"
    }
    first = [line.format(100_000, 1e9) for line in everyone]
    assert "round 1 waited 1.16 days (100000 s)" in presence(tmp_path, *first)["long-wait"]
    soon = [line.format(*times) for line in everyone for times in ((0, 1.5), (80_000, 1e9))]
    assert presence(tmp_path, *soon, **{"server.when_short": "wait"}) == {}
