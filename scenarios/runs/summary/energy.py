"""Energy in a summary: joules by use and for each delivered update, and empty batteries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netsim.core.protocols import Notes
from scenarios.runs.summary.books import Accounts
from scenarios.wiring.world import World

if TYPE_CHECKING:
    from scenarios.runs.summary.running_sums import Totals


def energy_accounts(built: World) -> Accounts | None:
    """Return the accounts of a run that is over, up to its very end; None where energy is not counted."""
    energy = built.server.clients.energy
    if energy is None:
        return None
    built.server.clients.advance()
    probes = built.server.clients.probes
    return Accounts.close(energy, built.simulation.clock.now, {} if probes is None else probes.joules)


def energy_notes(built: World, totals: Totals, accounts: Accounts) -> Notes:
    """Return the entry `energy` of a summary, in joules, of a run that is over. `accounts`: as closed by `energy_accounts`.

    `total_j` is the sum of the powers over time up to the very end; a part of it lies after the last round.
    """
    energy, delivered = built.server.clients.energy, built.server.clients.ended["delivered"]
    assert energy is not None
    spent = {name: integral for name, (_, integral) in accounts.accounts.items()}
    total_j = sum(spent.values())
    notes: Notes = {
        "total_j": total_j,
        "per_delivered_j": total_j / delivered if delivered else None,
        **spent,
        "attempts_j": sum(accounts.attempts_j.values()),
    }
    if accounts.probes_j:
        notes["probes_j"] = sum(accounts.probes_j.values())
    notes |= {
        "besides_j": sum(energy.besides.joules_until(built.simulation.clock.now)),
        "after_last_round_j": total_j - sum(totals.rounds_j.values()),
    }
    batteries = energy.batteries
    if batteries is not None:
        notes |= {
            "batteries_empty": int(batteries.dead.sum()),
            "ran_empty": batteries.ran_empty,
            "aborted_by_battery": energy.aborted,
        }
    return notes
