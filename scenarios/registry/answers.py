"""Checks of what users' components return to the engine: each answer has the form that its Protocol says.

`scenarios.registry.protocols` adds them to users' classes; netsim's own answers are not checked. What a policy, a scheduler, a
jammer, a compression or a trainer decides is checked where it is used, and so it is not checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import wraps
from inspect import getattr_static, isfunction
from numbers import Real
from typing import Any

import numpy as np

from netsim.core.errors import AnswerError

Check = Callable[..., str]
"""Function of an answer, the component and the arguments of the call: the form that the answer must have, empty if it has it."""

_CHECKS = "netsim_checks_answers"
"""Attribute that marks methods whose answers are checked."""


def check_answers(group: str, target: type) -> None:
    """Let each method of a user's class that `ANSWERS` lists raise AnswerError for an answer of another form."""
    for name, check in ANSWERS.get(group, {}).items():
        method = getattr_static(target, name, None)
        if isfunction(method) and not hasattr(method, _CHECKS):
            setattr(target, name, _checked(method, group, name, check))


def _checked(method: Callable[..., object], group: str, name: str, check: Check) -> Callable[..., object]:
    """Return `method` with a check of its answers."""

    @wraps(method)
    def checked(component: object, *arguments: object, **keywords: object) -> object:
        answer = method(component, *arguments, **keywords)
        form = check(answer, component, *arguments, *keywords.values())
        if form:
            place = f"{type(component).__module__}:{type(component).__qualname__}"
            raise AnswerError(group, name, answer, f"must be {form}", name=place)
        return answer

    setattr(checked, _CHECKS, True)
    return checked


def _numbers(low: float = 0.0, high: float = np.inf, *, endless: bool = False, words: str = "finite and >= 0") -> Check:
    """Return the check of a number for each entity, from `low` to `high`; `endless`: inf is one. The entities come last."""

    def check(answer: object, component: object, *arguments: Sized) -> str:
        count = len(arguments[-1])
        valid = isinstance(answer, np.ndarray) and answer.shape == (count,) and answer.dtype.kind in "fiub"
        if valid and count:
            least, most = np.asarray(answer).min(), np.asarray(answer).max()  # NaN if one of them is
            valid = bool(least >= low and most <= high and (endless or np.isfinite(most)))
        return "" if valid else f"an array of {count} numbers, each {words}"

    return check


def _flags(answer: object, component: object, *arguments: Sized) -> str:
    """Check a truth value for each entity."""
    count = len(arguments[-1])
    valid = isinstance(answer, np.ndarray) and answer.shape == (count,) and answer.dtype.kind == "b"
    return "" if valid else f"an array of {count} truth values"


def _flag(answer: object, *call: object) -> str:
    """Check one truth value."""
    return "" if isinstance(answer, bool | np.bool_) else "True or False"


def _budget(answer: object, *call: object) -> str:
    """Check the budget of a release."""
    return "" if isinstance(answer, Real) and 0 <= float(answer) < np.inf else "a finite number >= 0"


def _leaks(answer: object, component: object, releases: Any) -> str:
    """Check the leak after each number of releases."""
    valid = isinstance(answer, np.ndarray) and answer.shape == np.shape(releases) and answer.dtype.kind in "fiu"
    valid = valid and bool(np.isfinite(np.asarray(answer)).all()) and bool((np.asarray(answer) >= 0).all())
    return "" if valid else f"an array of shape {np.shape(releases)}, of finite numbers >= 0"


def _rewards(answer: object, *call: object) -> str:
    """Check the rewards of the selected set and of the genie's."""
    valid = isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(reward, Real) for reward in answer)
    return "" if valid else "the rewards of the policy and of the genie, as a tuple of two numbers"


def _law_in_force(answer: object, *call: object) -> str:
    """Check a law of the sub-channels, with the time until which it is in force."""
    valid = isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[0], "good") and isinstance(answer[1], Real)
    return "" if valid else "the law of the channels in force and the time until which it is, as a tuple"


def _permutation(answer: object, component: object, view: object, ranked: list[int]) -> str:
    """Check the channels of the clients, which are those ranked."""
    valid = isinstance(answer, list | tuple | np.ndarray) and len(answer) == len(ranked) and set(answer) == set(ranked)
    return "" if valid else f"the channels {ranked} in the order of the clients that have them"


def _models(answer: object, *call: object) -> str:
    """Check numbers of models."""
    valid = isinstance(answer, Iterable) and all(isinstance(model, int | np.integer) for model in answer)
    return "" if valid else "numbers of models"


def _arrays_of_presence(answer: object, component: Any, now_s: float, draws: object) -> str:
    """Check the presence of the clients, which `advance` brings up to `now_s`."""
    on, next_s = np.asarray(component.on), np.asarray(component.next_change_s)
    valid = on.ndim == 1 and on.dtype.kind == "b" and next_s.shape == on.shape and next_s.dtype.kind == "f"
    valid = valid and bool((next_s > now_s).all())
    return "" if valid else f"followed by on (K,), truth values, and next_change_s (K,), times after {now_s:g} s"


_SECONDS = _numbers()
_TIMES = _numbers(-np.inf, endless=True, words="a time in seconds or inf")
ANSWERS: dict[str, dict[str, Check]] = {
    "policy": {"index": _numbers(-np.inf, endless=True, words="a number or inf")},
    "delay": {"quantile": _SECONDS, "mean_s": _SECONDS},
    "noise": {"quantile": _SECONDS},
    "bandwidth": {
        "ends_s": _TIMES,
        "served_bytes": _SECONDS,
        "rate": _SECONDS,
        "next_change_s": _TIMES,
        "mean_rate": _numbers(np.nextafter(0, 1), words="finite and > 0"),
        "peak_rate": _numbers(endless=True, words=">= 0"),
        "stops_s": _TIMES,
    },
    "channel": {"good": _flags, "success_probability": _numbers(high=1.0, words="from 0 to 1")},
    "availability": {"advance": _arrays_of_presence},
    "schedule": {"epsilon": _budget, "leak": _leaks},
    "reward": {"measure": _rewards},
    "states": {"at": _law_in_force},
    "matcher": {"match": _permutation},
    "detector": {"update": _flag},
    "protocol": {"kept": _models},
}
"""Group -> method -> check of its answers."""
