"""Components of a scenario that are not netsim's: classes and functions of the user's own, and the keys that name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.registry.kinds import BUILT_IN, known_names
from scenarios.schema.scenario import Scenario

OWN_FUNCTIONS = ("learner.local_training", "learner.metrics")
"""Keys that hold functions of the user's own, beside every `kind`."""


@dataclass(frozen=True)
class OwnComponent:
    """A class or function behind a key of a scenario that is not netsim's."""

    path: str
    """The key, such as "learner.aggregation.kind"."""
    kind: str
    """Name in the scenario."""
    place: str
    """Place, as "module:Name"."""


def own_components(scenario: Scenario) -> list[OwnComponent]:
    """Return all users' components of a scenario, without those of other variants of its sweep, which a run does not use."""
    # Look names up in all groups at once: entry points of different groups hardly ever share a name. The first group counts.
    named: dict[str, str] = {}
    for group, built_in in reversed(BUILT_IN.items()):
        named |= {name: place for name, place in known_names(group).items() if name not in built_in}
    return list(_find_components(scenario.model_dump(exclude={"sweep"}, exclude_none=True, by_alias=True), "", named))


def _find_components(value: object, path: str, named: Mapping[str, str]) -> Iterator[OwnComponent]:
    """Yield the users' components in `value`, which is at `path` of a scenario; `named`: addresses of registered names."""
    items: Iterable[tuple[Any, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, inner in items:
        key_path = f"{path}.{key}" if path else str(key)
        if isinstance(inner, str) and (key == "kind" or path in OWN_FUNCTIONS or key_path in OWN_FUNCTIONS):
            place = inner if ":" in inner else named.get(inner)
            if place is not None:
                yield OwnComponent(key_path, inner, place)
        yield from _find_components(inner, key_path, named)
