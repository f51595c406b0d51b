"""The plan of a sweep: which fault of several is told."""

from __future__ import annotations

import pytest

from scenarios.schema.errors import UserError
from scenarios.sweeps.plan import plan
from tests.helpers.small_scenario import small_tables


def test_an_unknown_key_of_a_variant_is_told_before_a_baseline_that_is_none() -> None:
    tables = small_tables("sweep.baseline=slow")
    tables["sweep"]["variants"][0]["set"] = {"policy.allpha": 3}
    with pytest.raises(UserError, match=r"policy\.allpha = 3: unknown key; did you mean"):
        plan(tables, "small.toml")


def test_a_baseline_that_is_no_variant_is_refused() -> None:
    with pytest.raises(UserError, match=r"sweep\.baseline = 'slow': no such variant"):
        plan(small_tables("sweep.baseline=slow"), "small.toml")
