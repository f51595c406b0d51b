"""Stages of an update: their names, columns, and the power that a client draws in them."""

from __future__ import annotations

from typing import NamedTuple

from netsim.clients.power.power_integral import COMPUTING, RECEIVING, SENDING

DOWNLOAD, COMPUTE, WAIT, UPLOAD, ENDED, KEPT = "download", "compute", "wait", "upload", "ended", "kept"
"""Phases of an update; kept: it is finished, could not be delivered, and waits for its next attempt."""


class Stage(NamedTuple):
    """A phase of an attempt that has columns of its own."""

    name: str
    start: str
    """Column of the time at which it starts."""
    end: str
    """Column of the time at which it ends."""
    power: int
    """State of the client during the stage (`netsim.clients.power.power_integral`)."""
    joules: str
    """Column of the energy that the client draws."""


DOWNLOADING = Stage(DOWNLOAD, "download_start_s", "download_end_s", RECEIVING, "receive_j")
TRAINING = Stage(COMPUTE, "compute_start_s", "compute_end_s", COMPUTING, "compute_j")
UPLOADING = Stage(UPLOAD, "upload_start_s", "upload_end_s", SENDING, "send_j")
STAGES = (DOWNLOADING, TRAINING, UPLOADING)
"""The stages of an attempt, in order."""
STAGE_OF = {stage.name: stage for stage in STAGES}
"""Stages by phase."""
