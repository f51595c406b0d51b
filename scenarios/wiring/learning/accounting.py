"""Privacy loss of all releases of a run together, by the accountant that `[privacy]` names, for its summary."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from models.accounting import composed_epsilon
from netsim.core.protocols import Notes
from scenarios.registry.components import construct
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario

_NAMES = {"rdp": "Renyi divergences", "pld": "privacy loss distributions"}


def require_accountant(scenario: Scenario) -> None:
    """Raise UserError where the scenario asks for an accountant that is not installed."""
    privacy = scenario.privacy
    if privacy is not None and privacy.accountant != "sum" and find_spec("dp_accounting") is None:
        needed = "needs dp-accounting; install netsim with its extra: pip install 'netsim[privacy]'"
        raise UserError(f"privacy.accountant = {privacy.accountant!r}: {needed}")


def accounts(scenario: Scenario, releases: int) -> Notes | None:
    """Return the privacy loss of `releases` releases together, or None if the scenario asks only for sums.

    `releases`: number of the client with the most. Without training, the result is the loss that real releases would have.
    """
    privacy = scenario.privacy
    if privacy is None or privacy.accountant == "sum":
        return None
    schedule: Any = construct(privacy.schedule, "schedule", "privacy.schedule", privacy.schedule.parameters(), {})
    assert privacy.mechanism != "none"
    assert privacy.total_delta is not None
    all_budgets = [float(schedule.epsilon(release)) for release in range(1, releases + 1)]
    # A budget may underflow to 0 after very many releases. Such a release has no loss.
    budgets = [budget for budget in all_budgets if budget > 0]
    epsilon = composed_epsilon(
        privacy.accountant, privacy.mechanism, budgets, total_delta=privacy.total_delta, delta=privacy.delta
    )
    return {
        "accountant": privacy.accountant,
        "epsilon": epsilon,
        "delta": privacy.total_delta,
        "releases": releases,
        "amplification": "none: the server sees who sends each update",
    }


def accounts_in_words(scenario: Scenario, loss: Notes | None, unprotected: int = 0) -> str:
    """Return the loss as a sentence that follows the guarantee; empty if only sums are requested.

    `unprotected`: number of unprotected numbers of an update, which the sentence does not cover.
    """
    if loss is None:
        return ""
    privacy = scenario.privacy
    assert privacy is not None
    whole = "the protected numbers of an update" if unprotected else "the whole update"
    subject = "one coordinate" if privacy.guarantee == "per_coordinate" else whole
    return (
        f" By {_NAMES[loss['accountant']]} (dp-accounting), ({loss['epsilon']:.4g}, {loss['delta']:g})-LDP of {subject} in all "
        f"{loss['releases']} releases of that client together; sampling amplifies nothing: the server sees who sends each update."
    )
