"""Messages in one direction: the rows of numbers that arrive, and the bytes of a message. torch is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from models.errors import AnswerError, ParameterError
from models.fl.compression.bits import NUMBER, Generators, whole_bytes
from models.fl.options.demands import Demands
from models.fl.protocols import Compression

if TYPE_CHECKING:
    from torch import Tensor

NO_MODEL = "leaves out of a model what its receiver cannot add again"
"""Reason for which a compression that does not work with whole models is refused for them."""


class Messages:
    """Messages in one direction: rows (n, d) that hold tensors of `tensors` numbers each.

    `role`: key of the compression in the scenario, for messages of errors. `others` numbers are sent uncompressed beside the
    rows. `models`: a row is a whole model, not the difference of two. `report_bytes` are added to every message.

    Raises:
        ParameterError: the compression does not work with models, or is for studies in which nothing is trained.
    """

    def __init__(
        self,
        *,
        role: str,
        compression: Compression,
        tensors: Sequence[int],
        others: int,
        models: bool = False,
        report_bytes: int = 0,
    ) -> None:
        self._role, self._compression, self._tensors = role, compression, list(tensors)
        self.exact = compression.exact
        """True if messages arrive unchanged."""
        self.error_feedback = compression.error_feedback
        """True if the numbers left out of a client's message are added to its next one."""
        if compression.ratio is not None:
            reason = "is for studies without a [learner]; this one's values are compressed: choose another kind"
            raise ParameterError(f"{role}.ratio", compression.ratio, reason)
        if models and not compression.whole_models:
            raise ParameterError(role, compression, NO_MODEL, shown="")
        size = compression.message_bytes(self._tensors)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise AnswerError(role, "message_bytes", size, "must be a whole number of bytes >= 0")
        self.bytes = size + whole_bytes(NUMBER * others) + report_bytes
        """Bytes of one message."""

    def receive(self, rows: Tensor, generators: Generators) -> Tensor:
        """Return the rows (n, d) that arrive if `rows` (n, d), all finite, are sent. `generators`: random generator of each row.

        Raises:
            AnswerError: a user's own compression returned something else than such rows.
        """
        if self.exact:
            return rows
        arrived = self._compression.compress(rows, self._tensors, generators)
        is_tensor = isinstance(arrived, type(rows))
        if not is_tensor or arrived.shape != rows.shape:
            answer = tuple(arrived.shape) if is_tensor else type(arrived).__name__
            raise AnswerError(self._role, "compress", answer, f"must be a tensor of shape {tuple(rows.shape)}")
        return arrived


class BothWays(NamedTuple):
    """Messages in both directions."""

    up: Messages
    """Messages of updates."""
    down: Messages
    """Messages of models."""


def both_ways(up: Compression, down: Compression, tensors: Sequence[int], others: int, demands: Demands) -> BothWays:
    """Return the messages of updates, compressed by `up`, and those of models, compressed by `down`.

    `tensors`: numbers of each compressed tensor. `others`: further numbers, sent uncompressed. `demands`: of the method of
    aggregation, which may add vectors and bytes.
    """
    uncompressed = others + demands.vectors * sum(tensors)
    return BothWays(
        Messages(role="compression", compression=up, tensors=tensors, others=uncompressed, report_bytes=demands.report_bytes),
        Messages(role="down_compression", compression=down, tensors=tensors, others=uncompressed, models=True),
    )
