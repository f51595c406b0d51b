"""The output of the command: letters that it cannot show, a reader that has gone, and a full disk behind it."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_GONE = (errno.EPIPE, errno.EIO)
"""Errors of a pipe whose reader has ended (`| head`), and of a terminal that was closed."""


class Output:
    """A text stream that keeps the first error of writing, and drops what is written after it.

    A command whose output cannot be shown any more still completes its files.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """First error of the stream, or None."""

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, do: Any, *arguments: Any) -> None:
        if self.error is not None:
            return
        try:
            do(*arguments)
        except OSError as error:
            self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def output_streams() -> Iterator[None]:
    """Let standard output and standard error take all that the command prints within the block.

    A letter that the encoding of a stream lacks is shown as "?". Raises OSError at the end of the block if standard output could
    not be written, but for a reader that has gone; an error of standard error has no place to be told.
    """
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    out = Output(sys.stdout)
    sys.stdout, sys.stderr = out, Output(sys.stderr)
    try:
        yield
    finally:
        out.flush()
        sys.stdout, sys.stderr = before
        _settle(before[0])
        if out.error is not None and out.error.errno not in _GONE:
            raise out.error


def _settle(stream: Any) -> None:
    """Write what a stream holds, or drop it: the interpreter would complain of it at its end, with another exit code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        # A failed flush keeps the text; closing the stream, which fails likewise, drops it.
        with suppress(OSError, ValueError):
            stream.close()
