"""Reports to the server: the outcome of a closed round, and answers to probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Reports that came with the updates of a round: an entry for each client, -1 or NaN where no update arrived.

    A client whose update is lost, late, aborted or under way has reported nothing: the server knows only how long it has waited
    (`RoundOutcome.latency_s` and `censored`).
    """

    staleness: IntArray
    """(n,) aggregations that changed the model from the version sent to the client up to this one, not included; where nothing is
    trained, the rounds that closed in between."""
    samples: IntArray
    """(n,) samples that local training processed; -1 also where the number is unknown (neither `[learner]` nor `[work]`)."""
    steps: IntArray
    """(n,) steps that it took; -1 likewise."""
    bytes_down: IntArray
    """(n,) bytes of the model that was sent for it."""
    bytes_up: IntArray
    """(n,) bytes of the update."""
    elapsed_s: FloatArray
    """(n,) from the sending of the model to the arrival of the update."""
    download_s: FloatArray
    """(n,) how long the download took; NaN unless clients report their phases (`clients.report_phases`)."""
    compute_s: FloatArray
    """(n,) how long local training took; NaN likewise."""
    upload_s: FloatArray
    """(n,) how long the upload took, without waiting for a sub-channel; NaN likewise."""
    loss: FloatArray
    """(n,) mean loss of the first pass over the client's samples, as training saw them: each before the step that it was used in.
    NaN where nothing is trained, too, and unless the policy says `needs_losses`."""
    loss_rms: FloatArray
    """(n,) root mean square of the losses of all samples of that pass; NaN likewise."""

    @classmethod
    def nothing(cls, clients: int) -> Reports:
        """Nothing arrived from any of so many clients."""
        return cls(
            **{name: np.full(clients, -1) for name in _COUNTS},
            **{name: np.full(clients, np.nan) for name in _MEASURES},
        )


_COUNTS = ("staleness", "samples", "steps", "bytes_down", "bytes_up")
_MEASURES = ("elapsed_s", "download_s", "compute_s", "upload_s", "loss", "loss_rms")


@dataclass(frozen=True)
class RoundOutcome:
    """Outcome of a round as its policy sees it."""

    round: int
    start_s: float
    end_s: float
    clients: IntArray
    """(n,) the clients selected in this round, in the order of selection."""
    latency_s: FloatArray
    """(n,) from selection to delivery; where censored, the time after which the server stopped waiting."""
    censored: BoolArray
    """(n,) True where no update arrived before the round closed: lost, late or aborted, or still in flight."""
    updates: FloatArray | None = None
    """(number delivered, d) model updates in the order of the delivered clients, for a policy that says `needs_updates`."""
    read: Callable[[], Reports] | None = None
    """Puts the reports together; None: nothing arrived."""

    @cached_property
    def reports(self) -> Reports:
        """Reports of the updates that arrived, built when first read."""
        return Reports.nothing(len(self.clients)) if self.read is None else self.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Answers of clients that were asked before a selection; each array has an entry for each, in the order asked."""

    clients: IntArray
    """(d,) who was asked."""
    answered: BoolArray
    """(d,) False where the model or the answer was lost, the client went away, or the answer was late."""
    loss: FloatArray
    """(d,) mean loss of the present model on the client's samples; NaN where it did not answer, and where nothing is trained."""
    elapsed_s: FloatArray
    """(d,) from sending the model to the arrival of the answer; NaN where it did not answer."""
    accuracy: FloatArray | None = None
    """(d,) accuracy of the present model on test data of the client's own, NaN where it did not answer; None: that was not
    asked for."""

    @classmethod
    def nobody(cls) -> Probed:
        """Return the answers of a round in which no client was asked."""
        none = np.zeros(0)
        return cls(clients=np.zeros(0, np.int64), answered=np.zeros(0, np.bool_), loss=none, elapsed_s=none)


NOBODY_PROBED = Probed.nobody()
