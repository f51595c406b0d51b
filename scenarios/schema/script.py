"""The key `script`: a user's generator function, by its name or as a table with further arguments."""

import inspect
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from scenarios.registry.components import OWN_CLASS, component_of
from scenarios.registry.kinds import resolve
from scenarios.schema.errors import UserError
from scenarios.schema.section import refusal


def _read(value: object) -> object:
    """Return a script given by name or as a function as a table with that `kind`; a table unchanged."""
    return {"kind": value} if isinstance(value, str) or inspect.isfunction(value) else value


def _check(section: Any) -> object:
    """Return the table of the script; refuse a `kind` that is no generator function with the world as its first argument."""
    try:
        function = resolve("script", section.kind)
    except UserError as error:
        raise refusal(str(error)) from error
    if not inspect.isgeneratorfunction(function):
        raise refusal("must be a generator function, `def script(world): ...`, with a `yield` in it")
    arguments = list(inspect.signature(function).parameters.values())
    if not arguments or arguments[0].kind is not arguments[0].POSITIONAL_OR_KEYWORD:
        raise refusal("must take the world as its first argument: `def script(world): ...`")
    return section


class _ByName:
    """Adds to the JSON Schema of the table that a script may be given by its name alone."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        name = {"type": "string", "pattern": OWN_CLASS, "description": "A generator function, as package.module:function."}
        return {"anyOf": [name, handler(schema)]}


def script_field() -> object:
    """Return the type of the field that holds the script, if there is one."""
    script: Any = Annotated[component_of("script"), BeforeValidator(_read), AfterValidator(_check), _ByName()]
    return Optional[script]  # noqa: UP045 (an annotation that is made here)
