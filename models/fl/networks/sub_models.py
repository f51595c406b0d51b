"""Choice of the trained and sent tensors of a network: sub-models and adapters. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from models.errors import ParameterError

_SHOWN = 8
"""Names of parameters that a message lists."""


def trained_tensors(names: Sequence[str], patterns: Sequence[str] | None) -> list[int]:
    """Return the places, among the `names` of a network's parameters, of those that match a pattern; None: of all.

    Raises:
        ParameterError: a pattern matches no name, or there is no pattern.
    """
    if patterns is None:
        return list(range(len(names)))
    if not patterns:
        raise ParameterError("trained", [], "names nothing to train; leave it out to train everything")
    chosen: set[int] = set()
    for pattern in patterns:
        matching = {place for place, name in enumerate(names) if fnmatchcase(name, pattern)}
        if not matching:
            shown = ", ".join(names[:_SHOWN])
            if len(names) > _SHOWN:
                shown += f", .. ({len(names)} in all)"
            raise ParameterError("trained", pattern, f"no parameter has such a name; the network has {shown}")
        chosen |= matching
    return sorted(chosen)


def moving_statistics(buffers: Sequence[str], trained: Sequence[str] | None) -> list[int]:
    """Return the places, among the names `buffers` of running statistics, of those that training changes.

    They are the statistics of layers with a parameter among the names `trained`; None: all.
    """
    if trained is None:
        return list(range(len(buffers)))
    # The name of a tensor is the path of its layer, a point, and its name in the layer.
    layers = {name.rpartition(".")[0] for name in trained}
    return [place for place, name in enumerate(buffers) if name.rpartition(".")[0] in layers]
