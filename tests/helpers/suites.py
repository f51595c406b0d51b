"""Cases of one test, shared out between the default suite and the slow one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def each_nth(n: int, cases: Iterable[Any], first: int = 0) -> list[Any]:
    """Return all cases for `parametrize`; the default suite takes each n-th from `first` on, the slow suite all others.

    A tuple is a case of several arguments. Choose n without a common factor with the lengths of the lists whose product
    the cases are: each value of each list then occurs in the default suite.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if number % n == first else pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
