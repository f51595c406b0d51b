"""Check of the keys of a scenario's tables against the keyword arguments of the functions that receive them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from models.errors import ParameterError


def check_options(
    table: str, function: Callable[..., object], options: Mapping[str, Any], *, supplied: tuple[str, ...] = ()
) -> None:
    """Check that `options` are keyword arguments of `function`, and that none without a default is missing.

    `table`: name of the table `options`, for messages. `supplied`: arguments that the program supplies, which are no options.

    Raises:
        ParameterError: names the table, the key, and the allowed keys.
    """
    parameters: dict[str, inspect.Parameter] = {}
    takes_any = False
    for name, parameter in inspect.signature(function).parameters.items():
        # `*args` and `**more` are no keys themselves.
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind is not parameter.VAR_POSITIONAL and name not in supplied:
            parameters[name] = parameter
    allowed = ", ".join(parameters) or "none"
    for key, value in options.items():
        if key not in parameters and not takes_any:
            raise ParameterError(f"{table}.{key}", value, f"unknown key; allowed are: {allowed}")
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in options:
            raise ParameterError(f"{table}.{key}", None, "missing; it has no default", shown="")
