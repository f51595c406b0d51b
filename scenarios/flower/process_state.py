"""State of the process that an app may change, beside random numbers and time; restored after its run."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOGGERS = (None, "flwr")
"""Names of the loggers that apps configure: the root and that of flwr."""


@contextmanager
def preserve_process() -> Iterator[None]:
    """Context manager: restore working folder, import path, environment, loggers and filters of warnings after the block."""
    folder, path, environment, loggers = os.getcwd(), list(sys.path), dict(os.environ), _loggers_state()
    with warnings.catch_warnings():
        try:
            yield
        finally:
            os.chdir(folder)
            sys.path[:] = path
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)
            for logger, level, handlers, disabled in loggers:
                logger.setLevel(level)
                logger.handlers[:], logger.disabled = handlers, disabled


def _loggers_state() -> list[tuple[logging.Logger, int, list[Any], bool]]:
    """Return the loggers that apps configure, with level, handlers and state."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    return [(logger, logger.level, list(logger.handlers), logger.disabled) for logger in loggers]
