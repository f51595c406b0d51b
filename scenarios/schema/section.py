"""Base of the tables of the scenario file: common refusals, and the names of keys in them."""

import ast
import inspect
import textwrap
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from scenarios.schema.errors import did_you_mean

Tables = dict[str, Any]
"""Tables of a scenario file as plain data, as TOML reads them."""
NO_VALUE = "none"
"""The value by which an optional key has no value, as if it were left out: `--set server.deadline_s=none`."""


class Section(BaseModel):
    """A table of the scenario file: unknown keys, wrong types and infinities are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,
        protected_namespaces=(),
    )

    moved: ClassVar[dict[str, str]] = {}
    """Former keys of the table, each with its replacement."""
    names: ClassVar[frozenset[str]] = frozenset()
    """Optional keys whose values are users' names, so that NO_VALUE is a name there."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # What keys mean is read from the source when it is asked for: pydantic's `use_attribute_docstrings` does so as the models
        # are imported, every time, and only for a model's own fields, not for those of a dataclass that it is derived from.
        described = handler(schema)
        docs = {name: doc for base in reversed(cls.__mro__) for name, doc in attribute_docs(base).items()}
        keys = handler.resolve_ref_schema(described)["properties"]
        for name, field in cls.model_fields.items():
            key = keys[field.alias or name]
            if (field.alias or name) in optional_keys(cls):
                # TOML has no null, so `"none"` stands for it. A default of null means that the key may be absent.
                kinds = [kind for kind in key.get("anyOf", ()) if kind != {"type": "null"}]
                key["anyOf"] = [*kinds, {"const": NO_VALUE}]
            # Not what the table that the key holds says of itself: as pydantic does it.
            if name in docs and field.description is None and handler.resolve_ref_schema(key).get("description") != docs[name]:
                key["description"] = docs[name]
        return described

    @model_validator(mode="before")
    @classmethod
    def _drop_absent(cls, value: object) -> object:
        # A grid, `--set` and TOML have no null; all optional keys default to None, so that the key can be left out.
        if isinstance(value, dict) and NO_VALUE in [entry for entry in value.values() if isinstance(entry, str)]:
            optional = optional_keys(cls)
            return {key: entry for key, entry in value.items() if not (key in optional and entry == NO_VALUE)}
        return value

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        # Check names first, so that a misspelt key is not also reported as a missing one.
        if isinstance(value, dict):
            keys = section_keys(cls)
            unknown = [key for key in value if key not in keys]
            if unknown:
                key = unknown[0]
                if key in cls.moved:
                    raise problem((key,), value[key], cls.moved[key])
                raise problem((key,), value[key], f"unknown key; {did_you_mean(str(key), keys)}")
        return value


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """Return the strings below the fields that a section or a dataclass itself declares, by the fields' names; else none."""
    if "__dataclass_fields__" not in vars(cls) and not (issubclass(cls, BaseModel) and vars(cls).get("__annotations__")):
        return {}
    try:
        source = inspect.getsource(cls)
    except OSError:  # in a section made from a constructor, whose keys have their own descriptions
        return {}
    (declared,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(declared, ast.ClassDef)
    docs = {}
    for field, below in zip(declared.body, declared.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


@cache
def optional_keys(model: "type[Section]") -> frozenset[str]:
    """Return the keys of a section for which NO_VALUE means None: keys that may be None, unless "none" is a word or a name
    there.
    """
    found = {field.alias or name: _kinds(field.annotation) for name, field in model.model_fields.items() if field.default is None}
    emptied = {key for key, kinds in found.items() if type(None) in kinds and NO_VALUE not in kinds}
    return frozenset(emptied - model.names)


def _kinds(annotation: object) -> list[Any]:
    """Return the members of a union; members of a Literal as values."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [kind for member in get_args(annotation) for kind in _kinds(member)]
    return [annotation]


def section_keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of a section, as a user writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def problem(place: tuple[str | int, ...], value: object, text: str) -> ValidationError:
    """Return a refusal of one key, by its place below the section that is being validated."""
    return ValidationError.from_exception_data("scenario", [InitErrorDetails(type=refusal(text), loc=place, input=value)])


def missing(key: str, value: object) -> ValidationError:
    """Return the refusal of a table that lacks `key`, which other keys make necessary."""
    return ValidationError.from_exception_data("scenario", [InitErrorDetails(type="missing", loc=(key,), input=value)])


def refusal(text: str) -> PydanticCustomError:
    """Return a refusal of the value that is being validated."""
    return PydanticCustomError("refused", "{text}", {"text": text})


def default_table() -> Any:
    """Return the default of a key that holds a table: an empty table.

    A section object as default would make pydantic build a second validator beside that of the whole scenario.
    """
    return Field(default={})
