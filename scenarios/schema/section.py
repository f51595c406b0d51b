"""Base of the tables of the scenario file: common refusals, and the names of keys in them."""

import ast
import inspect
import sys
from functools import cache
from types import ModuleType, UnionType
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
        """Return the JSON Schema of the table. Docstrings describe the keys, and optional keys also allow NO_VALUE."""
        # Docstrings are read from the source here, when a schema is wanted. Pydantic's `use_attribute_docstrings` would read them
        # at every import, and would miss the fields of a dataclass that a section derives from.
        described = handler(schema)
        docs: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            docs |= attribute_docs(base)
        key_schemas = handler.resolve_ref_schema(described)["properties"]
        for name, field in cls.model_fields.items():
            key = field.alias or name
            schema_of_key = key_schemas[key]
            if key in optional_keys(cls):
                # TOML has no null, so `"none"` stands for it. A default of null means that the key may be absent.
                kinds = [kind for kind in schema_of_key.get("anyOf", ()) if kind != {"type": "null"}]
                schema_of_key["anyOf"] = [*kinds, {"const": NO_VALUE}]
            # Like pydantic, do not repeat the description of the table that the key holds.
            table_text = handler.resolve_ref_schema(schema_of_key).get("description")
            if name in docs and field.description is None and table_text != docs[name]:
                schema_of_key["description"] = docs[name]
        return described

    @model_validator(mode="before")
    @classmethod
    def _drop_absent(cls, value: object) -> object:
        """Remove optional keys with the value NO_VALUE. It stands for their default None, which TOML and `--set` cannot write."""
        if isinstance(value, dict) and NO_VALUE in [entry for entry in value.values() if isinstance(entry, str)]:
            optional = optional_keys(cls)
            return {key: entry for key, entry in value.items() if not (key in optional and entry == NO_VALUE)}
        return value

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        """Refuse the first unknown key. This runs before pydantic's checks, which would also report a misspelt key as missing."""
        if isinstance(value, dict):
            keys = section_keys(cls)
            for key, entry in value.items():
                if key in cls.moved and key not in keys:
                    raise problem((key,), entry, cls.moved[key])
                if key not in keys:
                    raise problem((key,), entry, f"unknown key; {did_you_mean(str(key), keys)}")
        return value


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a section or dataclass, by field. Inherited fields are left out.

    Empty for any other class, and where there is no source.
    """
    if "__dataclass_fields__" not in vars(cls) and not (issubclass(cls, BaseModel) and vars(cls).get("__annotations__")):
        return {}
    class_node = _class_nodes(sys.modules[cls.__module__]).get(cls.__qualname__)
    if class_node is None:  # a section made from a constructor, whose keys have their own descriptions
        return {}
    docs = {}
    for field, below in zip(class_node.body, class_node.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


@cache
def _class_nodes(module: ModuleType) -> dict[str, ast.ClassDef]:
    """Return the definitions of classes in a module, by qualified name. Empty where there is no source.

    `inspect.getsource` of a class would parse the whole module again for each class.
    """
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return {}
    classes: dict[str, ast.ClassDef] = {}

    def collect(node: ast.AST, prefix: str) -> None:
        """Keep the classes below `node` by `__qualname__`, which is `prefix` and the name; the first of a name stays."""
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.ClassDef(name=name):
                    classes.setdefault(prefix + name, child)
                    collect(child, f"{prefix}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    collect(child, f"{prefix}{name}.<locals>.")
                case ast.stmt() | ast.excepthandler():
                    collect(child, prefix)

    collect(tree, "")
    return classes


@cache
def optional_keys(model: "type[Section]") -> frozenset[str]:
    """Return the keys of a section for which NO_VALUE ("none") means None.

    These are the keys whose default is None, except those for which "none" is a value of its own: a word of a Literal, or a name
    that the user chooses (`Section.names`).
    """
    keys = []
    for name, field in model.model_fields.items():
        if field.default is not None:
            continue
        options = _options(field.annotation)
        if type(None) in options and NO_VALUE not in options:
            keys.append(field.alias or name)
    return frozenset(keys) - model.names


def _options(annotation: object) -> list[Any]:
    """Return the alternatives of an annotation: the types of a union, and the values of a Literal.

    >>> _options(Literal["a", "b"] | int | None)
    ['a', 'b', <class 'int'>, <class 'NoneType'>]
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        return _options(get_args(annotation)[0])
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [option for member in get_args(annotation) for option in _options(member)]
    return [annotation]


def section_keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of a section, as a user writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def problem(place: tuple[str | int, ...], value: object, text: str) -> ValidationError:
    """Return the error that refuses a key. `place`: its path below the section being validated; `text`: reason and remedy."""
    return ValidationError.from_exception_data("scenario", [InitErrorDetails(type=refusal(text), loc=place, input=value)])


def missing(key: str, value: object) -> ValidationError:
    """Return the refusal of a table that lacks `key`, which other keys make necessary."""
    return ValidationError.from_exception_data("scenario", [InitErrorDetails(type="missing", loc=(key,), input=value)])


def refusal(text: str) -> PydanticCustomError:
    """Return the error that refuses the value being validated. `text`: reason and remedy; pydantic adds the path of the key."""
    return PydanticCustomError("refused", "{text}", {"text": text})


def default_table() -> Any:
    """Return the default of a key that holds a table: an empty table.

    A section object as default would make pydantic build a second validator beside that of the whole scenario.
    """
    return Field(default={})
