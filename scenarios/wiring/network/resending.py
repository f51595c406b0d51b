"""The rule of a scenario by which lost messages are sent again."""

from __future__ import annotations

from netsim.network.resending import Resending
from scenarios.schema.peers import ResendKeys


def resending_rule(link: ResendKeys) -> Resending:
    """Return the rule for sending lost messages over `link` again."""
    return Resending(max_resends=link.max_resends, resend_after_s=link.resend_after_s)
