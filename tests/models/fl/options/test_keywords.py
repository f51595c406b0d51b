"""Options of users' functions: which keys are allowed, and which must be there."""

from __future__ import annotations

import pytest

from models.errors import ParameterError
from models.fl.options.keywords import check_options


def layers(width: int, depth: int = 2) -> None: ...


def anything(width: int, **more: int) -> None: ...


def test_unknown_and_missing_keys_are_named() -> None:
    check_options("network", layers, {"width": 3})
    with pytest.raises(ParameterError, match=r"network\.height = 1: unknown key; allowed are: width, depth"):
        check_options("network", layers, {"width": 3, "height": 1})
    with pytest.raises(ParameterError, match=r"network\.width: missing; it has no default"):
        check_options("network", layers, {"depth": 1})


def test_a_function_that_takes_any_keyword_needs_those_with_a_name_only() -> None:
    check_options("network", anything, {"width": 3})
    check_options("network", anything, {"width": 3, "height": 1})
    with pytest.raises(ParameterError, match=r"network\.width: missing; it has no default"):
        check_options("network", anything, {"height": 1})
