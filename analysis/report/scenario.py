"""The sections of a report on the scenario, and on how to run it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.documents.blocks import Block, Bullets, Code, Facts, Section, Table, Text
from analysis.documents.numbers import MISSING, format_number, format_percent
from analysis.documents.run_names import missing_words, runs_in_words
from analysis.results.run import Run
from analysis.results.sweep import Sweep

_MOST_VALUES = 6
"""Most values of a key that are listed where variants differ."""
_NOT_COMPARED = ("name", "description", "seed", "sweep", "output")
"""Keys of a scenario in which variants may differ without being different experiments."""


def scenario_changes(base: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield a text KEY = VALUE for each key in which `other` differs from `base`, or "without KEY".

    Both are scenarios, or tables of a scenario at `path`. A component of another kind is written whole, because the keys of the
    old kind mean nothing for the new one.
    """
    for key in dict.fromkeys([*base, *other]):
        if not path and key in _NOT_COMPARED:
            continue
        old, new = base.get(key), other.get(key)
        if old == new:
            continue
        name = f"{path}{key}"
        if isinstance(old, dict) and isinstance(new, dict) and old.get("kind") == new.get("kind"):
            yield from scenario_changes(old, new, f"{name}.")
        elif new is None:
            yield f"without {name}"
        else:
            yield f"{name} = {_value_text(new)}"


def _value_text(value: Any) -> str:
    """Return a value of a scenario as TOML would write it, roughly; of a long list the first 8 entries."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        shown = ", ".join(map(_value_text, value[:8]))
        return f"[{shown}, .. {len(value)} values]" if len(value) > 8 else f"[{shown}]"
    return f"{value:.10g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def variants_table(sweep: Sweep) -> Table:
    """Return the table of the variants of a sweep: the keys in which each differs from the baseline, and its number of runs."""
    first = {variant: sweep.runs(variant)[0] for variant in sweep.variants}
    base = first[sweep.baseline].scenario
    rows = []
    for variant, run in first.items():
        words = "; ".join(scenario_changes(base, run.scenario)) or "the same scenario"
        seeds = sum(entry.variant == variant for entry in sweep.entries)
        rows.append([sweep.labels[variant], "the baseline" if variant == sweep.baseline else words, f"{seeds}"])
    caption = f"The variants, and how their scenarios differ from that of {sweep.labels[sweep.baseline]}"
    return Table("variants", caption, (["variant", "scenario", "runs"], rows), words=(0, 1))


def scenario_facts(runs: Sequence[Run]) -> Facts:
    """Return the main facts of the scenarios of `runs`; where runs differ, their values are joined by "or"."""
    scenarios = [run.scenario for run in runs]
    pairs = [
        ("clients", _join_alternatives(_clients_text(scenario.get("clients") or {}) for scenario in scenarios)),
        ("server", _server_text([scenario.get("server") or {} for scenario in scenarios])),
        ("who takes part", _join_alternatives(str((scenario.get("policy") or {}).get("kind", "")) for scenario in scenarios)),
        ("sub-channels", _join_alternatives(map(_channels_text, scenarios))),
        ("learning", _join_alternatives(_learner_text(scenario.get("learner") or {}) for scenario in scenarios)),
        ("ends", _join_alternatives(map(_end_text, scenarios))),
    ]
    return Facts([(name, value) for name, value in pairs if value])


def _join_alternatives(texts: Iterable[str]) -> str:
    """Return the distinct texts that are not empty, joined by "or"; of many, the first few and the number of others."""
    distinct = [text for text in dict.fromkeys(texts) if text]
    shown = (
        distinct if len(distinct) <= _MOST_VALUES else [*distinct[:_MOST_VALUES], f"others ({len(distinct) - _MOST_VALUES:,})"]
    )
    return " or ".join(shown)


def _clients_text(clients: Mapping[str, Any]) -> str:
    """Return the number of clients and of each group, as text; "" if the scenario does not state it."""
    if "count" not in clients:
        return ""
    groups = [
        f"{group['name']}: {group['count']:,}" if "count" in group else f"{group['name']}: {format_percent(group['share'])}"
        for group in clients.get("groups") or []
    ]
    return f"{clients['count']:,}" + (f" ({', '.join(groups)})" if groups else "")


def _server_text(servers: Sequence[Mapping[str, Any]]) -> str:
    """Return the kinds of the servers of several runs and the values of their keys, as text."""
    # The kind of a user's own class is written MODULE:CLASS.
    own = [server for server in servers if ":" in str(server.get("kind", ""))]
    known = [server for server in servers if server not in own]
    parts = [_join_alternatives(str(server.get("kind", "")) for server in servers)]
    for key in _SERVER_PHRASES:
        with_key = [server for server in known if isinstance(server.get(key), int | float)]
        text = _join_alternatives(_server_phrase(key, server) for server in with_key)
        if text and len(with_key) < len(servers):
            text = f"{text}, or none" if len(known) == len(servers) else text
        parts.append(text)
    # The keys of a user's server have a meaning only for its class, so they are shown verbatim.
    keys = dict.fromkeys(key for server in own for key in server if key != "kind")
    parts += [
        _join_alternatives(f"{key} = {_value_text(server[key])}" for server in own if server.get(key) is not None) for key in keys
    ]
    return ", ".join(part for part in parts if part)


# Key of a built-in server to what it means; `_PHRASES_OF_ONE`: if its value is 1.
_SERVER_PHRASES = {
    "per_round": "{:,} clients a round",
    "first": "a round closes with the first {:,}",
    "concurrency": "{:,} at work at a time",
    "buffer": "a model of every {:,} updates",
    "deadline_s": "a deadline of {:g} s",
    "round_s": "rounds of {:g} s",
}
_PHRASES_OF_ONE = {"per_round": "one client a round", "buffer": "a model of every update"}


def _server_phrase(key: str, server: Mapping[str, Any]) -> str:
    """Return a phrase that says what the value of a key of a built-in server means."""
    if key == "buffer" and server.get("pacing") == "latency":
        return "models paced by latency"
    return _PHRASES_OF_ONE[key] if server[key] == 1 and key in _PHRASES_OF_ONE else _SERVER_PHRASES[key].format(server[key])


def _channels_text(scenario: Mapping[str, Any]) -> str:
    """Return the number of sub-channels and their scheduler, as text; "" if there are none."""
    channels = scenario.get("channels") or {}
    if not channels:
        return ""
    kind = (scenario.get("scheduler") or {}).get("kind")
    return f"{channels.get('count', MISSING)}" + (f", assigned by {kind}" if kind else "")


def _learner_text(learner: Mapping[str, Any]) -> str:
    """Return the kinds of the parts of a learner, as text."""
    if not learner:
        return "none: times are simulated, nothing is trained"
    names = {"data": "data", "partition": "shares", "network": "network", "optimizer": "optimiser"}
    kinds = {name: (learner.get(part) or {}).get("kind") for part, name in names.items()}
    return ", ".join(f"{name}: {kind}" for name, kind in kinds.items() if kind)


def _end_text(scenario: Mapping[str, Any]) -> str:
    """Return the planned end of a run, as text."""
    rounds, limit = scenario.get("rounds"), scenario.get("time_limit_s")
    words = [f"after {rounds:,} rounds"] if isinstance(rounds, int) else []
    return ", or ".join([*words, *([f"at {limit:,.10g} s"] if limit is not None else [])])


def completeness_blocks(runs: Sequence[Run], sweep: Sweep | None) -> list[Block]:
    """Return blocks on whether the results are complete: number of runs, reasons why they ended, and balance of their books.

    `sweep`: None for a single run.
    """
    ends = Counter(str(run.summary.get("ended", "not said")) for run in runs)
    ended = "; ".join(f"{reason}: {count}" for reason, count in ends.items())
    counted = [run.summary["books"] for run in runs if run.summary.get("books")]
    unbalanced = sum(not books.get("balanced", True) for books in counted)
    pairs = [("why runs ended", ended)]
    if counted:
        books = (
            f"{unbalanced} of {len(counted)} runs do not balance: their figures are wrong"
            if unbalanced
            else "balanced in every run"
        )
        pairs.append(("books (updates begun = ended + in flight)", books))
    if sweep is not None:
        pairs.insert(0, ("runs", f"{len(sweep)} of {len(sweep) + len(sweep.missing)} planned"))
    blocks: list[Block] = [Facts(pairs)]
    if sweep is not None and sweep.missing:
        blocks.append(Text(missing_words(sweep), lead="Incomplete.", warning=True))
    if unbalanced:
        blocks.append(Text("The figures of runs whose books do not balance are wrong.", lead="Books.", warning=True))
    return blocks


def warning_blocks(runs: Sequence[Run]) -> list[Block]:
    """Return a list of the warnings in the summaries of `runs`, each once, with the runs that have it; may be empty."""
    runs_by_warning: dict[str, list[tuple[str, int]]] = {}
    for run in runs:
        for warning in run.summary.get("warnings") or ():
            runs_by_warning.setdefault(str(warning["text"]), []).append((run.label, run.seed))
    items = []
    for text, affected in runs_by_warning.items():
        items.append(f"{text} ({'all runs' if len(affected) == len(runs) else runs_in_words(affected)})")
    return [Text("What the scenario and its runs were warned of:", warning=True), Bullets(items)] if items else []


def settings_sections(run: Run, runs: Sequence[Run], sweep: Sweep | None, command: str) -> list[Section]:
    """Return the last sections of a report: the complete scenario of `run`, versions, commands, and completeness of `runs`.

    `sweep`: None for a single run. `command`: the command that writes the report.
    """
    text = run.source.scenario_text().strip()
    summary = "The complete scenario, defaults filled in" + (f", of {run.label}, seed {run.seed}" if sweep is not None else "")
    sections = [Section("Settings", [Code(text, "toml", summary=summary)])]
    versions: dict[str, dict[str, None]] = {}
    for other in runs:
        for name, version in dict(other.summary.get("versions") or {}).items():
            versions.setdefault(name, {})[str(version)] = None
    if versions:
        sections.append(Section("Versions", [Facts([(name, " and ".join(numbers)) for name, numbers in versions.items()])]))
    run_command = "netsim run scenario.toml" if sweep is None else "netsim run VARIANT/seed-SEED/scenario.toml"
    words = "The scenario of a run, with the same version of netsim, gives the same tables. This report was written by:"
    sections.append(Section("Commands", [Text(words), Code(f"{run_command}\n{command}", "sh")]))
    wall_s = sum(float(other.summary.get("wall_time_s") or 0.0) for other in runs)
    taken = [Text(f"The simulation took {format_number(wall_s)} s of the machine's time, all runs together.")] if wall_s else []
    sections.append(Section("Completeness", [*completeness_blocks(runs, sweep), *taken]))
    return sections
