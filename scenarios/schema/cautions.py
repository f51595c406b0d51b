"""Warnings as plain data: shown by the command, kept in the summary, errors with `--strict`.

A scenario that runs, but that its author hardly means, has a warning. One that cannot run is refused (`scenarios.schema.errors`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from models.fl.data.own_data import StandInWarning
from models.peers.belief import ConvergenceWarning
from netsim.peers.belief.exchange import MessageStormWarning
from scenarios.schema.errors import UserError


@dataclass(frozen=True, slots=True)
class Caution:
    """One warning."""

    name: str
    """Identifier of the sort of warning; the same in every version."""
    text: str
    """The key, its value, what follows from it and the remedy."""

    def plain(self) -> dict[str, str]:
        """Return the caution in the form of a summary."""
        return {"name": self.name, "text": self.text}


def cautions_of(summary: Mapping[str, Any]) -> list[Caution]:
    """Return the warnings that a summary keeps."""
    return [Caution(**kept) for kept in summary["warnings"]]


_NAMES: dict[type[Warning], str] = {
    ConvergenceWarning: "belief-convergence",
    MessageStormWarning: "message-storm",
    StandInWarning: "data-stand-in",
}
"""Names of cautions for the Python warnings of models and engine, which know neither scenarios nor commands."""


@contextmanager
def collect_warnings(cautions: list[Caution]) -> Iterator[None]:
    """Append the warnings of models and engine within the block to `cautions`; show other warnings as usual."""
    with warnings.catch_warnings(record=True) as caught:
        for category in _NAMES:
            warnings.simplefilter("always", category)
        yield
    for warning in caught:
        name = _NAMES.get(warning.category)
        if name is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno, source=warning.source)
        else:
            cautions.append(Caution(name, str(warning.message)))


def refuse(cautions: Iterable[Caution]) -> None:
    """Raise UserError if there are any cautions, for `--strict`."""
    lines = dict.fromkeys(caution.text for caution in cautions)
    if lines:
        raise UserError("\n".join(f"{line} (a warning, which --strict makes an error)" for line in lines))
