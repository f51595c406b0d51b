"""The state of a run that goes on from a saved state is that state, for the features of the recorded cases."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from scenarios.runs.reading import load
from scenarios.wiring.simulation import build

FEATURES = Path(__file__).parents[1] / "golden" / "features"
IN_OTHER_FOLDERS = {"flower", "transfers"}
"""Features whose scenario needs files of another folder."""


@pytest.mark.each_nth(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({path.stem for path in FEATURES.glob("*.toml")} - IN_OTHER_FOLDERS))
def test_a_state_that_is_loaded_is_saved_again(name: str) -> None:
    scenario = load(str(FEATURES / f"{name}.toml"))
    for cut in (2, scenario.rounds - 1):
        first, second = (build(scenario, learner=False).simulation for _ in range(2))
        first.run(until_round=cut)
        state = first.state_dict()
        second.load_state_dict(deepcopy(state))
        assert repr(second.state_dict()) == repr(state)
