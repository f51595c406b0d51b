"""Parts of a scenario whose keys follow from a constructor: the section `{kind = "gaussian", mean_s = 0.2, ...}` of any class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from models.delays import PerClient
from scenarios.errors import UserError, did_you_mean
from scenarios.registry import INJECTED, known, resolve


class Section(BaseModel):
    """A table of the scenario file: unknown keys, wrong types and infinities are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )


class Ramp(Section):
    """A number that runs over the clients of a group: the i-th of n gets from + (to - from) i / n, i = 1..n."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)
    start: float = Field(alias="from")
    to: float


class ByGroup(Section):
    """One value or ramp for each group of clients, by the group's name."""

    by_group: dict[str, float | Ramp]


PerClientSpec = float | Ramp | ByGroup | list[float]
_FORMS = "a number, { from = .., to = .. }, { by_group = { NAME = .. } } or a list with one number a client"


def _read_per_client(value: Any) -> Any:
    if isinstance(value, Ramp | ByGroup):
        return value
    if isinstance(value, dict):
        return (ByGroup if "by_group" in value else Ramp).model_validate(value)
    if isinstance(value, list) and value and all(_is_number(entry) for entry in value):
        return [float(entry) for entry in value]
    if _is_number(value):
        return float(value)
    raise PydanticCustomError("per_client", "must be {forms}", {"forms": _FORMS})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


_PER_CLIENT_JSON = {
    "description": f"A knob that may differ between clients: {_FORMS}.",
    "anyOf": [
        {"type": "number"},
        {
            "type": "object",
            "properties": {"from": {"type": "number"}, "to": {"type": "number"}},
            "required": ["from", "to"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"by_group": {"type": "object"}},
            "required": ["by_group"],
            "additionalProperties": False,
        },
        {"type": "array", "items": {"type": "number"}},
    ],
}
PerClientField = Annotated[Any, BeforeValidator(_read_per_client), WithJsonSchema(_PER_CLIENT_JSON)]


class Part(Section):
    """What all parts share: the name of the class."""

    kind: str

    def knobs(self) -> dict[str, Any]:
        """The constructor's keywords as the scenario gives them."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}


@cache
def part_model(group: str, kind: str) -> type[Part]:
    """The section that describes the class behind `kind`; raises UserError where there is no such class."""
    target = resolve(group, kind)
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    fields: dict[str, Any] = {"kind": (Literal[kind], kind) if ":" not in kind else (str, kind)}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in INJECTED:
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise UserError(f"{kind!r}: argument {name!r} of its constructor must be keyword-only (put it after a '*')")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (PerClientField if hints.get(name) == PerClient else hints.get(name, Any), default)
    return create_model(kind, __base__=Part, __doc__=inspect.getdoc(target), **fields)


def per_client_knobs(group: str, kind: str) -> frozenset[str]:
    """The knobs of a part that may differ between clients."""
    target = resolve(group, kind)
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return frozenset(name for name, hint in hints.items() if hint == PerClient)


def injected(target: Any) -> frozenset[str]:
    """Which of the builder's keywords the constructor of a class takes."""
    return INJECTED & set(inspect.signature(target).parameters)


def part_fields(model: type[BaseModel]) -> list[str]:
    """The keys of a section, as a user writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def problem(place: tuple[str | int, ...], value: Any, text: str) -> ValidationError:
    """A refusal of one key, by its place below the section that is being validated."""
    kind = PydanticCustomError("refused", "{text}", {"text": text})
    return ValidationError.from_exception_data("scenario", [InitErrorDetails(type=kind, loc=place, input=value)])


class _PartOf:
    """Marks a field as a part of a group: validated by the model of its `kind`, described as any of the known kinds.

    `described`: models written out for kinds whose classes must not be imported to read a scenario; `own`: the user's own.
    """

    def __init__(self, group: str, described: Mapping[str, type[Part]] | None, own: type[Part] | None) -> None:
        self.group = group
        self.described = described
        self.own = own

    def kinds(self) -> list[str]:
        """The names to choose from."""
        return list(self.described if self.described is not None else known(self.group))

    def model(self, kind: str) -> type[Part]:
        """The section for `kind`; raises UserError."""
        if kind == "by-group" and self.group == "delay":
            return DelayByGroup
        if self.described is None:
            return part_model(self.group, kind)
        if ":" in kind and self.own is not None:
            return self.own
        if kind not in self.described:
            raise UserError(f"unknown {self.group} {kind!r}; {did_you_mean(kind, self.described)}")
        return self.described[kind]

    def read(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise PydanticCustomError(
                "part", "must be a table with a key `kind`, one of: {kinds}", {"kinds": ", ".join(self.kinds())}
            )
        try:
            model = self.model(value["kind"])
        except UserError as error:
            raise problem(("kind",), value["kind"], str(error)) from error
        return model.model_validate(value)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        kinds = [self.model(kind).model_json_schema() for kind in self.kinds()]
        for kind in kinds:
            kind["required"] = ["kind", *kind.get("required", [])]
        if self.described is None or self.own is not None:
            kinds.append(
                {
                    "type": "object",
                    "title": "a class of your own",
                    "properties": {"kind": {"type": "string", "pattern": "^[\\w.]+:\\w+$"}},
                    "required": ["kind"],
                }
            )
        return {"anyOf": kinds}


def part_of(group: str, *, described: Mapping[str, type[Part]] | None = None, own: type[Part] | None = None) -> Any:
    """The type of a field that holds a part of `group`."""
    marker = _PartOf(group, described, own)
    return Annotated[Any, BeforeValidator(marker.read), marker]


class DelayByGroup(Part):
    """Different kinds of delay law for different groups of clients."""

    kind: Literal["by-group"] = "by-group"
    groups: dict[str, part_of("delay")]  # type: ignore[valid-type]


def construct(section: Part, group: str, path: str, keywords: dict[str, Any], supplied: dict[str, Any]) -> Any:
    """Build the object a part describes; `keywords` are its knobs, resolved, and `supplied` what the builder can inject.

    Raises UserError with the key's full path where the constructor refuses a value.
    """
    target = resolve(group, section.kind)
    wanted = {name: supplied[name] for name in injected(target) if name in supplied}
    try:
        return target(**keywords, **wanted)
    except ValueError as error:
        raise UserError(at_path(path, str(error))) from error


def at_path(path: str, message: str) -> str:
    """A constructor's complaint begins with the name of its argument: put the section in front of it."""
    names_argument = re.match(r"[A-Za-z_][\w.\[\]]* = ", message)
    return f"{path}.{message}" if names_argument else f"{path}: {message}"
