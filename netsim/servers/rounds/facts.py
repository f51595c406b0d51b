"""Facts about the coordinator of a run in the summary, so that readers of tables need not know its kind."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.protocols import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Properties of the coordinator that readers of the tables must know."""

    carries_over: bool
    """True if a round consists of the attempts that end in it; otherwise of those that begin in it."""
    resends: bool
    """True if an update may take several attempts, one for each round."""
    fixed_length: bool
    """True if rounds close at times that are set before the run."""
    slotted: bool
    """True if a row of the rounds table is a slot of several communication rounds."""
    tiered: bool
    """True if edges coordinate the clients, and state causes in tables of their own."""
    inexact: tuple[str, ...]
    """Phases of attempts that may not end one second later if they begin one second later, in ascending order."""

    def plain(self) -> Notes:
        """Return the facts as plain data."""
        return {**asdict(self), "inexact": list(self.inexact)}


def facts_of(pool: ServedClients, *, slotted: bool) -> Facts:
    """Return the facts that readers of the tables need, as the coordinator of `pool` has set them in its rules and causes."""
    causes, life = pool.causes, pool.life
    return Facts(
        carries_over=life.serving.takes_all and not life.retry,
        resends=life.retry,
        fixed_length=causes.fixed_length,
        slotted=slotted,
        tiered=life.serving.tiered,
        inexact=tuple(sorted(causes.inexact)),
    )
