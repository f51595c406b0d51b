"""Outcomes of the updates of each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.results.run import OUTCOMES

if TYPE_CHECKING:
    import pandas as pd


def outcome_counts(clients: pd.DataFrame) -> pd.DataFrame:
    """Count the outcomes of each client's updates: indexed by client, a column for each outcome, even if it never occurred."""
    import pandas as pd

    counts = pd.crosstab(clients["client"], clients["outcome"].astype(str))
    return counts.reindex(columns=list(OUTCOMES), fill_value=0).astype("int64")

