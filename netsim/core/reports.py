"""What a server learns with the updates that arrive, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What came with the updates of a round: an entry for each of its clients, -1 or NaN where nothing arrived.

    A client whose update is lost, late, aborted or under way has told nothing: the server knows only for how long it has waited
    (`RoundOutcome.latency_s` and `censored`).
    """

    staleness: IntArray
    """(n,) aggregations that changed the model from the version sent to the client up to this one, not included; where nothing is
    trained, the rounds that closed in between."""
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


_COUNTS = ("staleness", "bytes_down", "bytes_up")
_MEASURES = ("elapsed_s", "download_s", "compute_s", "upload_s", "loss", "loss_rms")
