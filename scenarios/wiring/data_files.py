"""Data files that a scenario names: the user's own, or one that comes with netsim."""

from __future__ import annotations

import os
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "library"


def data_file(path: str) -> Path:
    """The file at `path`; where there is none, the one of that name that comes along, if the path is a bare name."""
    place = Path(path)
    # Of a name that no file can have, such as one too long, Path.is_file would raise.
    if not os.path.isfile(place) and place.parent == Path():
        return next((file for file in sorted(LIBRARY.rglob("*")) if file.name == place.name), place)
    return place
