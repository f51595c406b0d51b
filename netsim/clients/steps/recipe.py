"""The recipe of an update: its steps in order, which the executors by events and as arrays both run."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from netsim.clients.steps.access import Access
from netsim.clients.steps.compute import Compute
from netsim.clients.steps.resending_transfer import ResendingTransfer
from netsim.clients.steps.transfer import DOWNWARD, UPWARD, Transfer

if TYPE_CHECKING:
    from netsim.clients.rules import UpdateRules
    from netsim.clients.steps.step import Executor, Step
    from netsim.network.medium import Medium
    from netsim.network.resending import Resending


class Recipe(NamedTuple):
    """The steps of an update, in order. `model` and `update` are its two transfers. A kept update is sent again from the step
    `again` on.
    """

    steps: tuple[Step, ...]
    model: Transfer
    update: Transfer
    again: Step

    @property
    def foreseeable(self) -> bool:
        """True if the attempts of a round may be simulated as arrays."""
        return all(step.foreseeable for step in self.steps)


def update_recipe(executor: Executor, medium: Medium, rules: UpdateRules, kind: str) -> Recipe:
    """Return the recipe of updates over `medium`; `kind` names their messages on its carriers (bytes over shared links)."""
    down, up = medium.ports(kind)
    # Without a carrier (`carries`), the delay of a transfer includes the time of its bytes.
    down_port = down if medium.down.carries else None
    up_port = up if medium.up.carries else None
    model_transfer, update_transfer = _transfer_class(medium.down_resending), _transfer_class(medium.up_resending)
    model = model_transfer(executor, DOWNWARD, medium, port=down_port, immediate=True)
    compute, access = Compute(executor, medium, rules.on_work), Access(executor, medium.access)
    # Access that adds neither time nor loss is left out of the transfer, for speed.
    uplink_access = None if medium.access.own_link else medium.access
    spend_privacy = executor.charge if rules.charge_on == "upload" else None
    update = update_transfer(
        executor,
        UPWARD,
        medium,
        port=up_port,
        immediate=rules.instant,
        access=uplink_access,
        on_begin=spend_privacy,
    )
    update.finished = True
    # An attempt that ended within the call that begins it would have no place in the order of ends.
    update.foreseeable &= not rules.instant
    if not access.foreseeable:
        # The update keeps its turn on the uplink until its attempt ends.
        update.hold = access
    steps = (model, compute, access, update)
    for step, following in pairwise(steps):
        step.following = following
    return Recipe(steps, model, update, access)


def _transfer_class(resending: Resending) -> type[Transfer]:
    """Return the class of transfers under the rule `resending`."""
    return ResendingTransfer if resending.max_resends else Transfer
