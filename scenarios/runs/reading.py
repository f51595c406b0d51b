"""Conversion of a TOML file and overrides to a checked `Scenario`, and back, with messages in terms of the file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from models.data_files import text_of
from scenarios.registry.in_process import replace_classes
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.scenario import Scenario
from scenarios.schema.section import NO_VALUE, Tables

FOLDER = Path(__file__).parents[1] / "library"
APP_FILE = "pyproject.toml"
"""Name of a TOML file that is no scenario: it belongs to a Flower app."""
_MOST_MESSAGES = 5
"""Largest number of wrong keys in the message of an error."""
_MOST_LEVELS = 32
"""Largest depth of nested tables."""
Changes = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Dotted keys with their new values."""


def shipped_files() -> list[Path]:
    """Return the scenario files that come with netsim."""
    return sorted(file for file in FOLDER.rglob("*.toml") if file.name != APP_FILE)


def read_file(path: str | Path) -> Tables:
    """Return the tables of a scenario file, unchecked; raises UserError. A name without a folder may name a library scenario."""
    file = Path(path)
    shipped = {file.stem: file for file in shipped_files()}
    try:
        if not file.is_file() and file.parent == Path():
            file = shipped.get(str(path).removesuffix(".toml"), file)
        return _check_depth(tomllib.loads(text_of(file)), str(path))
    except FileNotFoundError as error:
        nearby = [file.name for file in Path().glob("*.toml")]
        raise UserError(f"scenario file {str(path)!r} does not exist; {did_you_mean(file.name, [*shipped, *nearby])}") from error
    except IsADirectoryError as error:
        raise UserError(f"scenario file {str(path)!r} is a folder; name a .toml file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"scenario file {str(path)!r} cannot be read: {error}; name a text file in UTF-8") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, and what too long a number or too deep a table raise
        raise UserError(f"scenario file {str(path)!r} is not valid TOML: {error}; fix the file at that place") from error


def _check_depth(tables: Tables, path: str) -> Tables:
    """Return `tables`; raise UserError if tables and lists are nested deeper than `_MOST_LEVELS`."""
    level: list[Any] = [tables]
    depth = 0
    while level:
        depth += 1
        if depth > _MOST_LEVELS:
            raise UserError(
                f"scenario file {path!r} has tables within each other more than {_MOST_LEVELS} times; no key has so many"
            )
        next_level: list[Any] = []
        for table in level:
            entries = table.values() if isinstance(table, dict) else table
            next_level += [entry for entry in entries if isinstance(entry, dict | list)]
        level = next_level
    return tables


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """Return the key and the value of a setting such as "policy.alpha=10"; raises UserError that names the `option`."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise UserError(f"{option} {text!r}: must be of the form KEY=VALUE, such as policy.alpha=10")
    if key.count(".") >= _MOST_LEVELS:
        raise UserError(f"{option} {key[:40]}..: has {key.count('.') + 1} levels; no key has more than {_MOST_LEVELS}")
    return key, parse_value(value.strip())


def parse_value(text: str) -> object:
    """Return a text as a TOML value; a text that is no TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def override(tables: Mapping[str, object], changes: Changes) -> Tables:
    """Return a copy of `tables` with dotted keys set, in order; missing tables are added.

    To set `x.kind` to another value drops the other keys of x. Raises UserError if a part of a key is no table.
    """
    result = deepcopy(dict(tables))
    pairs = changes.items() if isinstance(changes, Mapping) else changes
    for key, value in pairs:
        *path, last = key.split(".")
        table: Any = result
        for i, name in enumerate(path):
            table = _entry(table, name, ".".join(path[:i]), key)
        if isinstance(table, list):
            table[_position(table, last, key)] = deepcopy(value)
            continue
        if not isinstance(table, dict):
            raise UserError(f"{key} = {value!r}: {'.'.join(path)} is not a table, so it has no key {last!r}")
        if last == "kind" and table.get("kind") != value:
            table.clear()
        table[last] = deepcopy(value)
    return result


def _entry(table: object, name: str, above: str, key: str) -> object:
    """Return the entry `name` of a table or list, a new table if it is missing; raises UserError. `above`: path of the table."""
    if isinstance(table, list):
        return table[_position(table, name, key)]
    if not isinstance(table, dict):
        raise UserError(f"{key}: {above} is not a table, so it has no key {name!r}")
    return table.setdefault(name, {})


def _position(table: list[Any], name: str, key: str) -> int:
    """Return the index in a list that a part of a key names; raises UserError."""
    if not (name.isascii() and name.isdigit()) or int(name) >= len(table):
        raise UserError(f"{key}: {name!r} must be a position in a list of {len(table)}, counted from 0")
    return int(name)


def parse(tables: Mapping[str, object], source: str = "scenario") -> Scenario:
    """Return the checked scenario. Raises UserError that names the first few wrong keys, with values and allowed values."""
    try:
        return Scenario.model_validate(dict(tables))
    except ValidationError as error:
        # A key with several possible types has an error for each of them: join these to one line.
        reasons_of: dict[str, list[str]] = {}
        for refused_key, reason in dict.fromkeys(_explain(tables, problem) for problem in error.errors()):
            reasons_of.setdefault(refused_key, []).append(reason)
        optional_keys = set()
        for problem in error.errors()[:_MOST_MESSAGES]:
            if _may_be_left_out(tables, problem):
                refused_key, _ = _explain(tables, problem)
                optional_keys.add(refused_key)
        lines = []
        for refused_key, reasons in reasons_of.items():
            remedy = f', or "{NO_VALUE}" to leave it out' if refused_key in optional_keys else ""
            lines.append(f"{refused_key}{', or '.join(reasons)}{remedy}")
        if len(lines) > _MOST_MESSAGES:
            lines[_MOST_MESSAGES:] = [f"and {len(lines) - _MOST_MESSAGES} more"]
        raise UserError("\n".join(f"{source}: {line}" for line in lines)) from error


def read(path: str | Path, assignments: Iterable[str] = ()) -> Tables:
    """Return the tables of a scenario file with `KEY=VALUE` overrides; raises UserError."""
    return override(read_file(path), [parse_assignment(text) for text in assignments])


def load(path: str | Path, changes: Iterable[str] = ()) -> Scenario:
    """Read, override (`KEY=VALUE` each) and check a scenario file; raises UserError."""
    return parse(read(path, changes), str(path))


def to_toml(scenario: Scenario) -> str:
    """Return the complete scenario, defaults filled in; reading it gives the same scenario."""
    return tomli_w.dumps(_kind_first(replace_classes(scenario.model_dump(exclude_none=True, by_alias=True))))


def _kind_first(value: object) -> Any:
    """Return a copy of `value` with the key `kind` first in every table, because it decides which other keys are allowed."""
    if isinstance(value, list):
        return [_kind_first(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    # The sort is stable: all other keys stay in their order.
    keys = sorted(value, key=lambda key: bool(key != "kind"))
    return {key: _kind_first(value[key]) for key in keys}


# Messages in terms of a TOML file for pydantic's kinds of errors; other kinds keep pydantic's message.
_ERROR_TEXTS = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "greater_than": "must be > {gt:g}",
    "greater_than_equal": "must be >= {ge:g}",
    "less_than": "must be < {lt:g}",
    "less_than_equal": "must be <= {le:g}",
    "literal_error": "must be {expected}",
    "too_short": "must hold at least {min_length}",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "value_error": "{error}",
}


_VALUE_ERRORS = frozenset(_ERROR_TEXTS) - {"string_type", "string_pattern_mismatch", "too_short", "value_error"}
"""Kinds of errors for which NO_VALUE may be a remedy. Keys of text are left out: they would take it as text."""


def _explain(tables: Mapping[str, Any], problem: Any) -> tuple[str, str]:
    """Return two texts about an error of pydantic: the refused key with its value, and the reason."""
    kind = problem["type"]
    key = ".".join(str(name) for name in _written_keys(tables, problem["loc"], kind)) or "the scenario"
    if kind == "missing":
        return f"{key} is missing; add it (see `netsim schema`)", ""
    message = _ERROR_TEXTS[kind].format(**problem.get("ctx", {})) if kind in _ERROR_TEXTS else problem["msg"]
    if kind in ("int_type", "float_type") and isinstance(problem["input"], dict | list):
        message += "; give one: this key has no values by client or group"
    return f"{key} = {_value_text(problem['input'])}: ", message[0].lower() + message[1:]


def _may_be_left_out(tables: Mapping[str, Any], problem: Any) -> bool:
    """Return True if NO_VALUE would be accepted in place of a refused value, which one more validation shows."""
    if problem["type"] not in _VALUE_ERRORS:
        return False
    keys = _written_keys(tables, problem["loc"], problem["type"])
    changed: Any = deepcopy(dict(tables))
    table = changed
    for key in keys[:-1]:
        table = table[key]
    if not keys or not isinstance(table, dict) or keys[-1] not in table:
        return False
    table[keys[-1]] = NO_VALUE
    try:
        Scenario.model_validate(changed)
    except ValidationError as error:
        # Errors of other keys do not count.
        still_refused = [_written_keys(changed, other["loc"], other["type"]) for other in error.errors()]
        return all(refused[: len(keys)] != keys for refused in still_refused)
    return True


def _value_text(value: object) -> str:
    """Return a value as JSON for a message, shortened to 80 characters."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True, by_alias=True)
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _written_keys(tables: Any, loc: tuple[str | int, ...], kind: str) -> list[str | int]:
    """Return the path of keys of an error, as the user wrote it."""
    # pydantic adds the branches of a union to the path of keys: keep only names that the user wrote, and the missing key.
    keys: list[str | int] = []
    for i, name in enumerate(loc):
        is_key = isinstance(tables, dict) and name in tables
        is_index = isinstance(tables, list) and isinstance(name, int)
        is_written = is_key or is_index
        if is_written:
            tables = tables[name]
        is_missing_key = kind == "missing" and i == len(loc) - 1
        # An own refusal may name a key that is absent. A branch that is a function has its call as a name, with brackets.
        is_refused_key = kind == "refused" and "(" not in str(name)
        if is_written or is_missing_key or is_refused_key:
            keys.append(name)
    return keys
