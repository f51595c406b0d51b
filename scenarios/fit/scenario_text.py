"""Text of a fitted scenario, with comments: number of durations, censored share and intervals of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from scenarios.fit.amounts import FittedSpeed
from scenarios.fit.durations import FittedLaw, round_digits
from scenarios.fit.estimate import LINKS, Estimates, LinkFit, LossFit, PhaseFit
from scenarios.fit.log import RATES
from scenarios.schema.section import Tables

_TABLE = {"download": "downlink", "compute": "compute", "upload": "uplink", "total": "compute"}
"""The table of a scenario that a phase fills; the sum of all phases goes into `compute`."""
_SPEEDS = {"download": "bandwidth_bytes_per_s", "compute": "samples_per_s", "upload": "bandwidth_bytes_per_s"}
"""The key of the speed of a phase."""
_LOSSES = {"download": "downlink", "upload": "uplink", "total": "uplink"}
"""The table of a scenario that gets the losses of a phase."""


def scenario_text(estimates: Estimates, name: str, folder: Path) -> str:
    """Return the fitted scenario, called `name`, as TOML with comments. `folder`: folder of the files that it names."""
    log = estimates.log
    total = len(log.attempts()) or len(log.rows)
    head = [
        f"# Fitted to {_join_lines(log.source)}: {total} attempts of {len(log.names)} clients in {len(log.classes)} classes.",
        "# n: durations; cut off: those of which only a bound is known; [..]: 95 % intervals.",
    ]
    tables: Tables = {
        "name": name,
        "rounds": max(1, log.rounds),
        "clients": {"count": len(log.names), "devices": str(folder / "devices.csv")},
        "server": {"per_round": min(estimates.per_round, len(log.names))},
        "policy": {"kind": "random"},
    }
    if estimates.first is not None:
        tables["server"]["first"] = min(estimates.first, tables["server"]["per_round"])
    if estimates.deadline_s is not None:
        tables["server"]["deadline_s"] = round_digits(estimates.deadline_s)
    presence = estimates.presence
    if presence is not None:
        path = {"path": str(folder / "presence.csv")} if presence.kind == "trace" else {}
        tables["availability"] = {**presence.table, **path}
        tables["server"]["when_short"] = "proceed"
        values = ", ".join(_interval_text(name, value) for name, value in presence.parameters.items()) or "as measured"
        head.append(f"# presence: n = {presence.number} intervals; {presence.kind}: {_join_lines(values)}")
    text = "\n".join(head) + "\n" + tomli_w.dumps(tables)
    for phase in log.phases():
        fits = [estimates.phases[phase, group] for group in log.classes if (phase, group) in estimates.phases]
        links = [fit for (link, _), fit in estimates.links.items() if link == LINKS.get(phase)]
        losses = [estimates.losses[phase, group] for group in log.classes if (phase, group) in estimates.losses]
        text += _link_text(links, folder) if links else _phase_text(fits) + _changes_text(fits)
        if losses and any(loss.laws[0].kind != "perfect" for loss in losses):
            text += _loss_text(losses)
    return text + _amounts_text(estimates)


def _join_lines(text: str) -> str:
    """Return the text on one line, for a comment."""
    return " ".join(text.split())


def _phase_text(fits: list[PhaseFit]) -> str:
    """Return the table of a phase as text, with a comment for each class."""
    comments = [comment for fit in fits for part in (fit, *fit.later) for comment in _comments(part)]
    phase, speeds = fits[0].phase, {fit.group: fit.speed for fit in fits if fit.speed is not None}
    if len(speeds) < len(fits):
        laws = {fit.group: fit.law.table() for fit in fits}
        keys: Tables = {"delay": _join_classes(laws)}
        return "\n" + "\n".join(comments) + f"\n[{_TABLE[phase]}]\n" + _toml_lines(keys)
    keys = {"delay": {"kind": "constant", "value_s": _join_numbers(speeds, lambda speed: speed.overhead_s.value)}}
    keys[_SPEEDS[phase]] = _join_numbers(speeds, lambda speed: 1.0 / speed.seconds_per_unit.value)
    if phase == "compute":
        keys["noise"] = {"kind": "log-normal", "sigma": _join_numbers(speeds, lambda speed: speed.sigma.value)}
    else:
        comments.append("# The spread of the bandwidth is not part of this scenario: its mean is.")
    return "\n" + "\n".join(comments) + f"\n[{_TABLE[phase]}]\n" + _toml_lines(keys)


def _comments(fit: PhaseFit) -> list[str]:
    """Return the comment about the estimates of a phase of a class, as a list of one; it names the first round after a change."""
    since = f" from round {fit.first_round}" if fit.first_round > 1 else ""
    if fit.speed is not None:
        return [_speed_comment(fit.group + since, fit.speed)]
    return [_law_comment(fit, fit.law, since)]


def _join_classes(laws: Mapping[str, Mapping[str, object]]) -> Mapping[str, Any]:
    """Return the table for the laws of all classes: the law itself if there is one class, otherwise a law by group."""
    return next(iter(laws.values())) if len(laws) == 1 else {"kind": "by-group", "groups": laws}


def _changes_text(fits: list[PhaseFit]) -> str:
    """Return the change points of a phase as text, in order of rounds: `[[compute.changes]]` or those of another table."""
    text = ""
    parts = [part for fit in fits for part in fit.later]
    for part in sorted(parts, key=lambda part: (part.first_round, part.group)):
        keys: Tables = {"at_round": part.first_round}
        if len(fits) > 1:
            keys["clients"] = part.group
        if part.speed is None:
            keys["delay"] = {name: value for name, value in part.law.table().items() if name != "kind"}
        else:
            keys["delay"] = {"value_s": round_digits(part.speed.overhead_s.value)}
            keys[_SPEEDS[part.phase]] = round_digits(1.0 / part.speed.seconds_per_unit.value)
            if part.phase == "compute":
                keys["noise"] = {"sigma": round_digits(part.speed.sigma.value)}
        text += f"[[{_TABLE[part.phase]}.changes]]\n" + _toml_lines(keys)
    return text


def _link_text(links: list[LinkFit], folder: Path) -> str:
    """Return the table of a link as text: the law of its bandwidth, with a comment for each class."""
    link = links[0].link
    comments = []
    for fit in links:
        values = ", ".join(_interval_text(name, value) for name, value in fit.law.parameters.items())
        aic = ", ".join(f"{law.label} {law.aic:.1f}" for law in fit.laws if law.freedom)
        numbers = f"n = {fit.law.number} rates"
        comments.append(f"# {link}, {fit.group}: {numbers}; {fit.law.kind}: {values or 'as measured'}; AIC: {aic}")
    keys: Tables = {}
    if any(fit.overhead_s > 0 for fit in links):
        keys["delay"] = {"kind": "constant", "value_s": _join_numbers({fit.group: fit.overhead_s for fit in links}, float)}
    if links[0].law.kind == "trace":
        keys["bandwidth"] = {"kind": "trace", "path": str(folder / f"{link}.csv")}
    else:
        keys["bandwidth"] = _join_classes({fit.group: fit.law.table for fit in links})
    return "\n" + "\n".join(comments) + f"\n[{link}]\n" + _toml_lines(keys)


def _loss_text(losses: list[LossFit]) -> str:
    """Return the channel of a link as text, with a comment for each class."""
    comments = []
    for loss in losses:
        lost = loss.laws[0].lost
        aic = ", ".join(f"{law.kind} {law.aic:.1f}" for law in loss.laws)
        comments.append(
            f"# losses, {loss.group}: n = {loss.laws[0].number}, lost {lost.value:.4f} [{lost.low:.4f}, {lost.high:.4f}]; "
            f"AIC: {aic}"
        )
    return "\n".join(comments) + "\n" + _channel_text(_LOSSES[losses[0].phase], losses)


def _channel_text(table: str, losses: list[LossFit]) -> str:
    """Return the channel of a table as text. All classes get one kind: a Gilbert-Elliott chain if one of them needs it."""
    channel: dict[str, Any]
    if any(loss.laws[0].kind == "gilbert-elliott" for loss in losses):
        channel = {"kind": "gilbert-elliott"}
        chains = {loss.group: _chain_parameters(loss) for loss in losses}
        # All chains have the same parameters.
        for name in chains[losses[0].group]:
            by_class = {group: chain[name] for group, chain in chains.items()}
            channel[name] = _join_numbers(by_class, float)
    else:
        success = {loss.group: 1.0 - loss.laws[0].lost.value for loss in losses}
        channel = {"kind": "bernoulli", "success": _join_numbers(success, float)}
    return f"[{table}.channel]\n" + _toml_lines(channel)


def _chain_parameters(loss: LossFit) -> Mapping[str, float]:
    """Return the parameters of a Gilbert-Elliott chain. Independent losses become a chain with two equal states."""
    law = loss.laws[0]
    if law.kind == "gilbert-elliott":
        return law.parameters
    return {"to_bad": 0.5, "to_good": 0.5, "loss_good": law.lost.value, "loss_bad": law.lost.value}


def _amounts_text(estimates: Estimates) -> str:
    """Return the tables `[work]` and `[payload]` as text, if all classes have the amounts that fitted speeds refer to."""
    text = ""
    amounts: dict[str, dict[str, int]] = {}
    for (phase, group), fit in estimates.phases.items():
        if fit.speed is not None:
            amounts.setdefault(phase, {})[group] = round(fit.typical or 1.0)
    for (link, group), link_fit in estimates.links.items():
        amounts.setdefault(RATES[link], {})[group] = round(link_fit.typical)
    complete = {phase: sizes for phase, sizes in amounts.items() if len(sizes) == len(estimates.log.classes)}
    if "compute" in complete:
        text += "\n# An update trains on the median number of samples of its class.\n[work]\nsteps = 1\n"
        text += _toml_lines({"batch_size": _join_numbers(complete["compute"], int)})
    sizes = {key: complete[phase] for phase, key in (("download", "down_bytes"), ("upload", "up_bytes")) if phase in complete}
    if sizes:
        text += "\n# A message has the median size of its class.\n[payload]\n"
        text += _toml_lines({key: _join_numbers(values, int) for key, values in sizes.items()})
    return text


def _join_numbers(values: Mapping[str, object], value_of: Callable[[Any], float]) -> object:
    """Return the value of a key for all classes: one number if they are equal, otherwise a table `by_group`.

    `value_of`: function that returns the number of an entry of `values`.
    """
    numbers = {group: value_of(value) for group, value in values.items()}
    numbers = {group: number if isinstance(number, int) else round_digits(number) for group, number in numbers.items()}
    return next(iter(numbers.values())) if len(set(numbers.values())) == 1 else {"by_group": numbers}


def _interval_text(name: str, estimate: Any) -> str:
    """Return a parameter with its interval, for a comment."""
    return f"{name} {estimate.value:.4g} [{estimate.low:.4g}, {estimate.high:.4g}]"


def _law_comment(fit: PhaseFit, law: FittedLaw, since: str) -> str:
    """Return the comment about the law of a phase of a class."""
    durations = fit.durations
    values = ", ".join(_interval_text(key, value) for key, value in law.parameters.items()) or f"{len(law.values_s)} quantiles"
    numbers = f"n = {durations.number}, cut off {100 * durations.censored_share:.1f} %"
    return f"# {fit.phase}, {fit.group}{since}: {numbers}; {law.kind}: {values}"


def _speed_comment(group: str, speed: FittedSpeed) -> str:
    """Return the comment about the speed of a class."""
    values = (("overhead_s", speed.overhead_s), ("seconds_per_unit", speed.seconds_per_unit), ("sigma", speed.sigma))
    cut = 100 * speed.censored / speed.number
    return f"# {group}: n = {speed.number}, cut off {cut:.1f} %; " + ", ".join(_interval_text(*pair) for pair in values)


def _toml_lines(keys: Mapping[str, object]) -> str:
    """Return keys and values as lines of TOML, with nested tables inline."""
    return "".join(f"{key} = {_toml_value(value)}\n" for key, value in keys.items())


def _toml_value(value: object) -> str:
    """Return a value as TOML, with nested tables inline."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, str):
        return tomli_w.dumps({"x": value}).split("=", 1)[1].strip()
    if isinstance(value, Iterable):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return repr(value)


def _toml_key(key: str) -> str:
    """Return a key as TOML, quoted if it must be."""
    return key if key.replace("-", "_").isidentifier() else tomli_w.dumps({key: 0}).split("=", 1)[0].strip()
