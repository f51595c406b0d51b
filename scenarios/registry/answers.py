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
"""Check of an answer. It is called with the answer, the component and the arguments of the call; it returns the form that the
answer must have, as text for the error, or "" if the answer has this form."""

_CHECKS = "netsim_checks_answers"
"""Attribute that marks methods whose answers are checked."""


def check_answers(group: str, target: type) -> None:
    """Let the methods of a user's class that `ANSWERS` lists raise AnswerError for an answer of a wrong form."""
    for name, check in ANSWERS.get(group, {}).items():
        method = getattr_static(target, name, None)
        if isfunction(method) and not hasattr(method, _CHECKS):
            setattr(target, name, _wrap_method(method, group, name, check))


def _wrap_method(method: Callable[..., object], group: str, name: str, check: Check) -> Callable[..., object]:
    """Return a function that calls `method`, checks its answer, and raises AnswerError for one of a wrong form."""

    @wraps(method)
    def call_and_check(component: object, *arguments: object, **keywords: object) -> object:
        """Return the answer of `method` unchanged; raise AnswerError, which names the class and the form, if it is wrong."""
        answer = method(component, *arguments, **keywords)
        form = check(answer, component, *arguments, *keywords.values())
        if form:
            place = f"{type(component).__module__}:{type(component).__qualname__}"
            raise AnswerError(group, name, answer, f"must be {form}", name=place)
        return answer

    setattr(call_and_check, _CHECKS, True)
    return call_and_check


def _number_check(low: float = 0.0, high: float = np.inf, *, endless: bool = False, words: str = "finite and >= 0") -> Check:
    """Return a check of arrays with a number from `low` to `high` for each entity: client or sub-channel.

    The entities must be the last argument of the call; NaN is never allowed. `endless`: True if inf is allowed. `words`: the
    limits, for the error.
    """

    def check(answer: object, component: object, *arguments: Sized) -> str:
        """Return "" for an array (n,) of numbers within the limits, one for each of the n entities; otherwise the right form."""
        count = len(arguments[-1])
        valid = isinstance(answer, np.ndarray) and answer.shape == (count,) and answer.dtype.kind in "fiub"
        if valid and count:
            least, most = np.asarray(answer).min(), np.asarray(answer).max()  # both are NaN if any number is
            valid = bool(least >= low and most <= high and (endless or np.isfinite(most)))
        return "" if valid else f"an array of {count} numbers, each {words}"

    return check


def _check_flags(answer: object, component: object, *arguments: Sized) -> str:
    """Check an array with a truth value for each entity; the entities are the last argument of the call."""
    count = len(arguments[-1])
    valid = isinstance(answer, np.ndarray) and answer.shape == (count,) and answer.dtype.kind == "b"
    return "" if valid else f"an array of {count} truth values"


def _check_flag(answer: object, *call: object) -> str:
    """Check one truth value."""
    return "" if isinstance(answer, bool | np.bool_) else "True or False"


def _check_budget(answer: object, *call: object) -> str:
    """Check the privacy budget of a release."""
    return "" if isinstance(answer, Real) and 0 <= float(answer) < np.inf else "a finite number >= 0"


def _check_leaks(answer: object, component: object, releases: Any) -> str:
    """Check the privacy leaks after these numbers of `releases`: an array of the same shape."""
    valid = isinstance(answer, np.ndarray) and answer.shape == np.shape(releases) and answer.dtype.kind in "fiu"
    valid = valid and bool(np.isfinite(np.asarray(answer)).all()) and bool((np.asarray(answer) >= 0).all())
    return "" if valid else f"an array of shape {np.shape(releases)}, of finite numbers >= 0"


def _check_rewards(answer: object, *call: object) -> str:
    """Check two rewards: of the set that the policy selected, and of the genie's."""
    valid = isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(reward, Real) for reward in answer)
    return "" if valid else "the rewards of the policy and of the genie, as a tuple of two numbers"


def _check_law_in_force(answer: object, *call: object) -> str:
    """Check a pair: the law of the sub-channels in force, and the time until which it is."""
    valid = isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[0], "good") and isinstance(answer[1], Real)
    return "" if valid else "the law of the channels in force and the time until which it is, as a tuple"


def _check_permutation(answer: object, component: object, view: object, ranked: list[int]) -> str:
    """Check the channels of the clients: the channels `ranked`, in any order."""
    valid = isinstance(answer, list | tuple | np.ndarray) and len(answer) == len(ranked) and set(answer) == set(ranked)
    return "" if valid else f"the channels {ranked} in the order of the clients that have them"


def _check_models(answer: object, *call: object) -> str:
    """Check the numbers by which models are stored."""
    valid = isinstance(answer, Iterable) and all(isinstance(model, int | np.integer) for model in answer)
    return "" if valid else "numbers of models"


def _check_presence(answer: object, component: Any, now_s: float, draws: object) -> str:
    """Check the arrays `on` and `next_change_s` of the component, which `advance` has brought up to `now_s`."""
    on, next_s = np.asarray(component.on), np.asarray(component.next_change_s)
    valid = on.ndim == 1 and on.dtype.kind == "b" and next_s.shape == on.shape and next_s.dtype.kind == "f"
    valid = valid and bool((next_s > now_s).all())
    return "" if valid else f"followed by on (K,), truth values, and next_change_s (K,), times after {now_s:g} s"


_SECONDS = _number_check()
_TIMES = _number_check(-np.inf, endless=True, words="a time in seconds or inf")
ANSWERS: dict[str, dict[str, Check]] = {
    "policy": {"index": _number_check(-np.inf, endless=True, words="a number or inf")},
    "delay": {"quantile": _SECONDS, "mean_s": _SECONDS},
    "noise": {"quantile": _SECONDS},
    "bandwidth": {
        "ends_s": _TIMES,
        "served_bytes": _SECONDS,
        "rate": _SECONDS,
        "next_change_s": _TIMES,
        "mean_rate": _number_check(np.nextafter(0, 1), words="finite and > 0"),
        "peak_rate": _number_check(endless=True, words=">= 0"),
        "stops_s": _TIMES,
    },
    "channel": {"good": _check_flags, "success_probability": _number_check(high=1.0, words="from 0 to 1")},
    "availability": {"advance": _check_presence},
    "schedule": {"epsilon": _check_budget, "leak": _check_leaks},
    "reward": {"measure": _check_rewards},
    "states": {"at": _check_law_in_force},
    "matcher": {"match": _check_permutation},
    "detector": {"update": _check_flag},
    "protocol": {"kept": _check_models},
}
"""Group -> method -> check of its answers."""
