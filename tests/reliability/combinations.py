"""Random valid combinations of sections: servers, learners, compression, privacy, energy, presence, outages, scripts, jammers.

python -m tests.reliability.combinations SEED COUNT
python -m tests.reliability.combinations SEED --show 12

Each is checked like a world of `swarm`, and by the independent books of `ledger`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.reliability.swarm import campaign
from tests.reliability.worlds import drawn_world

LEARNING = 0.15
"""Share of the combinations in which something is trained. These take the most time."""


def combination(seed: int, number: int, folder: Path) -> dict[str, Any]:
    """Return the tables of the combination of that number. It needs no files in `folder`."""
    return drawn_world(Random(f"combinations/{seed}/{number}"), most=8, learning=LEARNING)


if __name__ == "__main__":
    sys.exit(1 if campaign("combinations", combination) else 0)
