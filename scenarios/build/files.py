"""Data files that a scenario names: the user's own, or one that comes with netsim."""

from __future__ import annotations

from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "library"


def data_file(path: str) -> Path:
    """The file at `path`; where there is none, the one of that name that comes along, if the path is a bare name."""
    place = Path(path)
    if not place.is_file() and place.parent == Path():
        return next(iter(sorted(LIBRARY.rglob(place.name))), place)
    return place
