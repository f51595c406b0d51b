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
    """Reports that arrived with the updates of a round: an entry for each selected client, -1 or NaN without a delivered
    update.

    Of updates that are lost, late, aborted or in flight the server knows only how long it has waited (`RoundOutcome.latency_s`
    and `censored`).
    """

    staleness: IntArray
    """Staleness (n,): number of aggregations that changed the model after the version sent to the client, this one not
    included; without training, number of rounds that closed in between.
    """
    samples: IntArray
    """Samples (n,) that local training processed; -1 also if unknown (neither `[learner]` nor `[work]`)."""
    steps: IntArray
    """Steps (n,) that local training took; -1 also if unknown."""
    bytes_down: IntArray
    """Bytes (n,) of the model sent for the update."""
    bytes_up: IntArray
    """Bytes (n,) of the update."""
    elapsed_s: FloatArray
    """Seconds (n,) from the sending of the model to the arrival of the update."""
    download_s: FloatArray
    """Duration (n,) of the download, seconds; NaN unless clients report their phases (`clients.report_phases`)."""
    compute_s: FloatArray
    """Duration (n,) of local training, seconds; NaN unless clients report their phases."""
    upload_s: FloatArray
    """Duration (n,) of the upload without the wait for a sub-channel, seconds; NaN unless clients report their phases."""
    loss: FloatArray
    """Mean loss (n,) of the first pass over the client's samples, each sample before the step that uses it.

    NaN also without training, and unless the policy sets `needs_losses`.
    """
    loss_rms: FloatArray
    """Root mean square (n,) of the losses of all samples of that pass; NaN in the same cases as `loss`."""

    @classmethod
    def nothing(cls, clients: int) -> Reports:
        """Return empty reports of `clients` clients: no update arrived."""
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
    """Clients (n,) selected in this round, in the order of selection."""
    latency_s: FloatArray
    """Seconds (n,) from selection to delivery; if censored, the time after which the server stopped waiting."""
    censored: BoolArray
    """True (n,) if no update arrived before the round closed: it was lost, late or aborted, or is still in flight."""
    updates: FloatArray | None = None
    """Model updates (number delivered, d) in the order of the delivered clients, for a policy with `needs_updates`."""
    read: Callable[[], Reports] | None = None
    """Function that builds the reports; None: nothing arrived."""

    @cached_property
    def reports(self) -> Reports:
        """Reports of the updates that arrived, built at the first access."""
        return Reports.nothing(len(self.clients)) if self.read is None else self.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Answers of clients that were probed before a selection. Arrays have an entry for each, in the order of the request."""

    clients: IntArray
    """Clients (d,) that were probed."""
    answered: BoolArray
    """False (d,) if the model or the answer was lost, the client went away, or the answer was late."""
    loss: FloatArray
    """Mean loss (d,) of the present model on the client's samples; NaN without an answer, and without training."""
    elapsed_s: FloatArray
    """Seconds (d,) from sending the model to the arrival of the answer; NaN without an answer."""
    accuracy: FloatArray | None = None
    """Accuracy (d,) of the present model on the client's own test data, NaN without an answer; None if not requested."""

    @classmethod
    def without_clients(cls) -> Probed:
        """Return the answers of a round in which no client was asked."""
        none = np.zeros(0)
        return cls(clients=np.zeros(0, np.int64), answered=np.zeros(0, np.bool_), loss=none, elapsed_s=none)


NOBODY_PROBED = Probed.without_clients()
