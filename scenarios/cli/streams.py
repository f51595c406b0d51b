"""The output streams of the command: they handle unencodable letters, a closed reader, and a full disk."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_GONE = (errno.EPIPE, errno.EIO)
"""Error numbers of a pipe whose reader has ended (`| head`), and of a closed terminal."""


class Output:
    """A text stream that keeps the first write error and drops later text.

    So a command whose output cannot be shown still completes its files.
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

    def _try(self, operation: Any, *arguments: Any) -> None:
        """Call a method of the stream. Keep its error, and do nothing after the first one."""
        if self.error is not None:
            return
        try:
            operation(*arguments)
        except OSError as error:
            self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def output_streams() -> Iterator[None]:
    """Make standard output and standard error accept everything that the command prints within the block.

    Letters missing in the encoding of a stream are shown as "?". Raises OSError at the end of the block if standard output
    could not be written, except if its reader has ended. Errors of standard error are dropped: there is no place to show them.
    """
    stdout, stderr = sys.stdout, sys.stderr
    for stream in (stdout, stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    guarded = Output(stdout)
    sys.stdout, sys.stderr = guarded, Output(stderr)
    try:
        yield
    finally:
        guarded.flush()
        sys.stdout, sys.stderr = stdout, stderr
        _settle(stdout)
        if guarded.error is not None and guarded.error.errno not in _GONE:
            raise guarded.error


def _settle(stream: Any) -> None:
    """Flush a stream, or drop its text: otherwise the interpreter would fail at its end with another exit code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        # After a failed flush the text is still buffered. Closing the stream, which fails too, drops it.
        with suppress(OSError, ValueError):
            stream.close()
