"""Durations of the phases of updates, row by row and on average."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("download_s", "compute_s", "wait_s", "upload_s")


def phase_durations(clients: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of each phase of the attempts `clients`, a row for each; NaN where a phase did not end.

    `wait_s` is the time between phases: before the download, before the computation, and for a sub-channel before the upload.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            "download_s": clients["download_end_s"] - clients["download_start_s"],
            "compute_s": clients["compute_end_s"] - clients["compute_start_s"],
            "wait_s": (clients["download_start_s"] - clients["selected_s"])
            + (clients["compute_start_s"] - clients["download_end_s"])
            + (clients["upload_start_s"] - clients["compute_end_s"]),
            "upload_s": clients["upload_end_s"] - clients["upload_start_s"],
        },
        columns=list(PHASES),
    )


def phase_means(clients: pd.DataFrame) -> pd.DataFrame:
    """Return mean seconds and count of the phases that ended, those cut short included: a row a phase."""
    import pandas as pd

    durations = phase_durations(clients)
    return pd.DataFrame({"mean_s": durations.mean(), "count": durations.count()})
