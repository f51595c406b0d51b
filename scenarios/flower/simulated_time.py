"""Simulated time for an app: while its code runs, `time` and `datetime` tell the simulated time, and `sleep` lets it pass.

Names that the app or flwr bound before are replaced, too. Other threads, and netsim itself, see real time.
"""

from __future__ import annotations

import datetime as datetimes
import sys
import threading
import time as times
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EPOCH_S = 1_577_836_800.0
"""Time of day at the beginning of a run: 2020-01-01 00:00 UTC, so that what an app writes does not depend on the day."""
_REAL = {name: getattr(times, name) for name in ("time", "monotonic", "perf_counter", "sleep")}
_REAL |= {f"{name}_ns": getattr(times, f"{name}_ns") for name in ("time", "monotonic", "perf_counter")}
_DATETIME = datetimes.datetime


class AppTime:
    """Time as the code of an app sees it. `now_s` returns the simulated seconds; `sleep` lets so many pass."""

    def __init__(self, now_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self.now_s, self.sleep = now_s, sleep
        self.thread = threading.get_ident()
        self.inside = False
        """True while code of the app runs."""


_present: AppTime | None = None


def _app_time() -> AppTime | None:
    """Return the time of the app whose code calls this; None: none of an app."""
    present = _present
    return present if present is not None and present.inside and threading.get_ident() == present.thread else None


def _clock(name: str, start_s: float) -> Callable[[], Any]:
    real = _REAL[name]

    def seconds() -> Any:
        app = _app_time()
        return real() if app is None else start_s + app.now_s()

    def nanoseconds() -> Any:
        app = _app_time()
        return real() if app is None else int(start_s) * 10**9 + round(app.now_s() * 1e9)

    return nanoseconds if name.endswith("_ns") else seconds


def _sleep(seconds: float) -> None:
    app = _app_time()
    if app is None:
        _REAL["sleep"](seconds)
        return
    if not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    app.sleep(float(seconds))


class _Like(type):
    """Lets the class stand for `datetime` in tests of instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _DATETIME)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _DATETIME)


class _SimulatedDatetime(_DATETIME, metaclass=_Like):
    """`datetime` whose present is the simulation's; what it makes are plain datetimes."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _DATETIME(*args, **kwargs)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        app = _app_time()
        return _DATETIME.now(tz) if app is None else _DATETIME.fromtimestamp(EPOCH_S + app.now_s(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(datetimes.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Any:
        return _DATETIME.fromtimestamp(timestamp, tz)


_REPLACED: dict[str, Any] = {name: _clock(name, EPOCH_S if name.startswith("time") else 0.0) for name in _REAL if name != "sleep"}
_REPLACED["sleep"] = _sleep
_BY_REAL = {id(_REAL[name]): replaced for name, replaced in _REPLACED.items()} | {id(_DATETIME): _SimulatedDatetime}


@contextmanager
def simulated(app: AppTime, is_app: Callable[[str], bool]) -> Iterator[None]:
    """Give the code of an app its simulated time within the block; `is_app`: True for names of the app's modules.

    Names that modules of flwr or of the app hold are replaced for the block, also those of modules that the block imports.
    """
    global _present
    before, _present = _present, app
    imported = frozenset(sys.modules)
    changed: list[tuple[Any, str, Any]] = []

    def replace(module: Any, name: str, value: Any) -> None:
        changed.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    for name, value in _REPLACED.items():
        replace(times, name, value)
    replace(datetimes, "datetime", _SimulatedDatetime)
    for module_name, module in list(sys.modules.items()):
        if module is not None and (module_name.partition(".")[0] == "flwr" or is_app(module_name)):
            for name, value in list(vars(module).items()):
                if id(value) in _BY_REAL:
                    replace(module, name, _BY_REAL[id(value)])
    try:
        yield
    finally:
        _present = before
        for module, name, value in reversed(changed):
            setattr(module, name, value)
        # Modules that were imported in the block have bound the replacements.
        back = {id(replaced): _REAL[name] for name, replaced in _REPLACED.items()} | {id(_SimulatedDatetime): _DATETIME}
        for module_name in sys.modules.keys() - imported:
            module = sys.modules[module_name]
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in back:
                    setattr(module, name, back[id(value)])


@contextmanager
def inside(app: AppTime, value: bool) -> Iterator[None]:
    """Run code of the app (`value`), or code of netsim that the app called."""
    before, app.inside = app.inside, value
    try:
        yield
    finally:
        app.inside = before
