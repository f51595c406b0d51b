"""From a TOML file and overrides to a checked `Scenario`, and back; every refusal in the user's terms."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from scenarios.errors import UserError, did_you_mean
from scenarios.parts import ByGroup, Ramp, part_fields
from scenarios.schema import Scenario

FOLDER = Path(__file__).parent
_SHOWN = 5


def read_file(path: str | Path) -> dict[str, Any]:
    """The tables of a scenario file, as they stand. A name without a folder may be that of a scenario that comes with netsim."""
    place = Path(path)
    if not place.exists() and place.parent == Path() and (FOLDER / place.with_suffix(".toml").name).exists():
        place = FOLDER / place.with_suffix(".toml").name
    try:
        return tomllib.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        shipped = [file.name for file in FOLDER.glob("*.toml")]
        raise UserError(f"scenario file {str(path)!r} does not exist; {did_you_mean(place.name, shipped)}") from error
    except IsADirectoryError as error:
        raise UserError(f"scenario file {str(path)!r} is a folder; name a .toml file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"scenario file {str(path)!r} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"scenario file {str(path)!r} is not valid TOML: {error}; mend the file at that place") from error


def parse_assignment(text: str) -> tuple[str, Any]:
    """`policy.alpha=10` as a key and a TOML value; a bare word is a string."""
    key, sign, value = text.partition("=")
    key = key.strip()
    if not sign or not key:
        raise UserError(f"--set {text!r}: must be of the form KEY=VALUE, such as policy.alpha=10")
    return key, parse_value(value.strip())


def parse_value(text: str) -> Any:
    """A TOML value; what is none is taken as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def override(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `tables` with dotted keys replaced, in order. A new `x.kind` drops the other keys of x."""
    result = deepcopy(dict(tables))
    for key, value in changes.items():
        *path, last = key.split(".")
        table: Any = result
        for name in path:
            table = _entry(table, name, key)
        if isinstance(table, list):
            table[_position(table, last, key)] = deepcopy(value)
            continue
        if not isinstance(table, dict):
            raise UserError(f"{key} = {value!r}: {'.'.join(path)} is not a table, so it has no key {last!r}")
        if last == "kind" and table.get("kind") != value:
            table.clear()
        table[last] = deepcopy(value)
    return result


def _entry(table: Any, name: str, key: str) -> Any:
    if isinstance(table, list):
        return table[_position(table, name, key)]
    if not isinstance(table, dict):
        raise UserError(f"{key}: {name!r} is below something that is not a table")
    return table.setdefault(name, {})


def _position(table: list[Any], name: str, key: str) -> int:
    if not name.isdigit() or int(name) >= len(table):
        raise UserError(f"{key}: {name!r} must be a position in a list of {len(table)}, counted from 0")
    return int(name)


def parse(tables: Mapping[str, Any], source: str = "scenario") -> Scenario:
    """The checked scenario; raises UserError that names every wrong key (the first few), its value and what is allowed."""
    try:
        return Scenario.model_validate(dict(tables))
    except ValidationError as error:
        lines = [_explain(tables, problem) for problem in error.errors()]
        lines = list(dict.fromkeys(lines))
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        raise UserError("\n".join(f"{source}: {line}" for line in lines[:_SHOWN] + more)) from error


def load(path: str | Path, changes: Iterable[str] = ()) -> Scenario:
    """Read, override (`KEY=VALUE` each) and check a scenario file; raises UserError."""
    tables = read_file(path)
    return parse(override(tables, dict(parse_assignment(text) for text in changes)), str(path))


def to_toml(scenario: Scenario) -> str:
    """The complete scenario, defaults filled in; reading it gives the same scenario."""
    return tomli_w.dumps(scenario.model_dump(exclude_none=True, by_alias=True))


def _explain(tables: Mapping[str, Any], problem: Any) -> str:
    place = _real_keys(tables, problem["loc"], problem["type"])
    key = ".".join(str(name) for name in place) or "the scenario"
    kind = problem["type"]
    if kind == "missing":
        return f"{key} is missing; add it (see `netsim schema`)"
    value = _shown(problem["input"])
    if kind == "extra_forbidden":
        return f"{key} = {value}: unknown key; {did_you_mean(str(place[-1]), _siblings(tables, place))}"
    message = str(problem["msg"])
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
    return f"{key} = {value}: {message[0].lower() + message[1:]}"


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _real_keys(tables: Any, loc: tuple[str | int, ...], kind: str) -> list[str | int]:
    # pydantic puts the branches of a union among the keys: what the user did not write is left out, but for a missing key.
    keys: list[str | int] = []
    for i, name in enumerate(loc):
        if (isinstance(tables, dict) and name in tables) or (
            isinstance(tables, list) and isinstance(name, int) and name < len(tables)
        ):
            tables = tables[name]  # type: ignore[index]
            keys.append(name)
        elif (kind == "missing" and i == len(loc) - 1) or kind == "refused":
            keys.append(name)
    return keys


def _siblings(tables: Any, place: list[str | int]) -> list[str]:
    model: Any = Scenario
    for name in place[:-1]:
        tables = tables[name]
        if isinstance(model, type) and issubclass(model, BaseModel) and name in model.model_fields:
            model = model.model_fields[str(name)]
        model = _inner(model, tables)
    return list(part_fields(model)) if model is not None else []


def _inner(annotation: Any, value: Any) -> Any:
    """The model that describes `value` under a field or an annotation."""
    for marker in getattr(annotation, "metadata", ()):
        if hasattr(marker, "model") and isinstance(value, dict):
            return marker.model(value.get("kind", ""))
    annotation = getattr(annotation, "annotation", annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(value, dict) and "by_group" in value:
        return ByGroup
    if isinstance(value, dict) and "from" in value:
        return Ramp
    for inner in get_args(annotation):
        found = _inner(inner, value)
        if found is not None:
            return found
    return None
