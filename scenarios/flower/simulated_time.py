"""Simulated time for an app: while its code runs, `time` and `datetime` tell the simulated time, and `sleep` lets it pass.

Names that the app or flwr bound before are replaced, too. Other threads, netsim itself, and other libraries see real time: they
wait for threads and processes of their own.
"""

from __future__ import annotations

import datetime as datetimes
import os
import sys
import sysconfig
import threading
import time as times
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EPOCH_S = 1_577_836_800.0
"""Time of day at the beginning of a run: 2020-01-01 00:00 UTC, so that what an app writes does not depend on the day."""
_REAL = {name: getattr(times, name) for name in ("time", "monotonic", "perf_counter", "sleep")}
_REAL |= {f"{name}_ns": getattr(times, f"{name}_ns") for name in ("time", "monotonic", "perf_counter")}
_DATETIME = datetimes.datetime
_LIBRARIES = ("<frozen ", *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")))
"""Beginnings of the names of files of the standard library and of installed packages."""


def is_library_file(file: str) -> bool:
    """Return True for the name of a file of the standard library or of an installed package, flwr excepted."""
    return file.startswith(_LIBRARIES) and f"{os.sep}flwr{os.sep}" not in file


class AppTime:
    """Time for the code of an app.

    `now_s` returns the simulated seconds; `sleep` advances them. `is_file` returns True for file names of the app.
    """

    def __init__(self, now_s: Callable[[], float], sleep: Callable[[float], object], is_file: Callable[[str], bool]) -> None:
        self.now_s, self.sleep = now_s, sleep
        self.thread = threading.get_ident()
        self.in_app_code = False
        """True while code of the app runs."""
        self._is_file = is_file
        self._sees_app_time: dict[str, bool] = {}

    def is_for(self, file: str) -> bool:
        """Return True if code in `file` sees simulated time: all code but that of installed packages other than flwr."""
        # Answers are kept, because code asks for the time often.
        if file not in self._sees_app_time:
            self._sees_app_time[file] = self._is_file(file) or not is_library_file(file)
        return self._sees_app_time[file]


_present: AppTime | None = None


def _app_time(caller: types.FrameType) -> AppTime | None:
    """Return the app's time if `caller` is code that sees it, else None, for real time."""
    present = _present
    if present is None or not present.in_app_code or threading.get_ident() != present.thread:
        return None
    return present if present.is_for(caller.f_code.co_filename) else None


def _clock(name: str, start_s: float) -> Callable[[], Any]:
    """Return the replacement of a clock of the module `time`, which shows `start_s` at the beginning of the run."""
    real = _REAL[name]

    def seconds() -> Any:
        """Return simulated seconds to code of the app, real ones to other code."""
        app = _app_time(sys._getframe(1))
        return real() if app is None else start_s + app.now_s()

    def nanoseconds() -> Any:
        """Return simulated nanoseconds to code of the app, real ones to other code."""
        app = _app_time(sys._getframe(1))
        # Integers: a float of nanoseconds since 1970 would round to hundreds of them.
        return real() if app is None else int(start_s) * 10**9 + round(app.now_s() * 1e9)

    return nanoseconds if name.endswith("_ns") else seconds


def _sleep(seconds: float) -> None:
    """Sleep in simulated time for code of the app, in real time for other code."""
    app = _app_time(sys._getframe(1))
    if app is None:
        _REAL["sleep"](seconds)
        return
    if not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    app.sleep(float(seconds))


class _DatetimeMeta(type):
    """Metaclass by which `isinstance` treats the class like `datetime`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _DATETIME) if cls is _SimulatedDatetime else type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _DATETIME) if cls is _SimulatedDatetime else type.__subclasscheck__(cls, subclass)


def _present_datetime(caller: types.FrameType, zone: Any) -> datetimes.datetime:
    """Return the present date and time in `zone` as `caller` sees it."""
    app = _app_time(caller)
    return _DATETIME.now(zone) if app is None else _DATETIME.fromtimestamp(EPOCH_S + app.now_s(), zone)


class _SimulatedDatetime(_DATETIME, metaclass=_DatetimeMeta):
    """`datetime` whose present is simulated. Its results are plain datetimes."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _DATETIME(*args, **kwargs) if cls is _SimulatedDatetime else _DATETIME.__new__(cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return the present date and time, as the caller sees it."""
        return _present_datetime(sys._getframe(1), tz)

    @classmethod
    def utcnow(cls) -> Any:
        """Return the present date and time in UTC without a zone, as the caller sees it."""
        return _present_datetime(sys._getframe(1), datetimes.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """Return the present local date and time, as the caller sees it."""
        return _present_datetime(sys._getframe(1), None)

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Any:
        """Return a plain datetime of a time stamp."""
        return _DATETIME.fromtimestamp(timestamp, tz)


class _DatetimeModule(types.ModuleType):
    """The module `datetime`, whose class `datetime` is the simulated one for code of the app.

    Other code must get the real class: an extension module checks its layout when it is imported, perhaps while the app runs.
    """

    @property
    def datetime(self) -> Any:
        """The class that the caller sees: simulated for code of the app, else the real one."""
        return _DATETIME if _app_time(sys._getframe(1)) is None else _SimulatedDatetime


_REPLACED: dict[str, Any] = {name: _clock(name, EPOCH_S if name.startswith("time") else 0.0) for name in _REAL if name != "sleep"}
_REPLACED["sleep"] = _sleep
_BY_REAL = {id(_REAL[name]): replaced for name, replaced in _REPLACED.items()} | {id(_DATETIME): _SimulatedDatetime}


@contextmanager
def simulate_time(app: AppTime, is_app: Callable[[str], bool]) -> Iterator[None]:
    """Give the code of an app its simulated time within the block.

    `is_app`: function that returns True for names of the app's modules. Clocks that modules of flwr or of the app have
    imported by name are replaced, and restored after the block, also in modules that are imported within it.
    """
    global _present
    before, _present = _present, app
    imported = frozenset(sys.modules)
    changed: list[tuple[Any, str, Any]] = []

    def replace(module: Any, name: str, value: Any) -> None:
        """Set an attribute of a module, and list the value from before in `changed`."""
        changed.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    for name, value in _REPLACED.items():
        replace(times, name, value)
    module_class, datetimes.__class__ = datetimes.__class__, _DatetimeModule
    for module_name, module in list(sys.modules.items()):
        if module is not None and (module_name.partition(".")[0] == "flwr" or is_app(module_name)):
            for name, value in list(vars(module).items()):
                if id(value) in _BY_REAL:
                    replace(module, name, _BY_REAL[id(value)])
    try:
        yield
    finally:
        _present = before
        datetimes.__class__ = module_class
        for module, name, value in reversed(changed):
            setattr(module, name, value)
        # Modules that were imported in the block have bound the replacements.
        originals = {id(replaced): _REAL[name] for name, replaced in _REPLACED.items()} | {id(_SimulatedDatetime): _DATETIME}
        for module_name in sys.modules.keys() - imported:
            module = sys.modules[module_name]
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in originals:
                    setattr(module, name, originals[id(value)])


@contextmanager
def mark_code(app: AppTime, *, is_app: bool) -> Iterator[None]:
    """Mark the code of the block as the app's, or as netsim's, called by the app; then restore the mark from before."""
    before, app.in_app_code = app.in_app_code, is_app
    try:
        yield
    finally:
        app.in_app_code = before
