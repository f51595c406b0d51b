"""Causes of the loss of a transmission, in the order of precedence: for one transmission, and for many as arrays.

One order for all messages: updates, probes, opinions, messages between clients and transfers over cables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.outages import ClientOutages

CHANNEL = "channel"
"""Cause of a loss by the sender's own channel."""


def cause_of_loss(outage: str | None, access: str | None, link: str | None, survives: bool | None) -> str | None:
    """Return the cause of the loss of a transmission; None if it gets through.

    The first three arguments are names of causes, or None. `outage`: an outage of a link, or of a client at one of its ends.
    `access`: jamming, a collision, or the state of a sub-channel. `link`: a bandwidth that ended, or a cable. `survives`: True
    if the sender's channel lets the transmission through. `causes_of_losses` does the same with arrays.

    >>> cause_of_loss(None, "jammed", "trace-end", False)
    'jammed'
    """
    return outage or access or link or (None if survives else CHANNEL)


def causes_of_losses(
    sent: BoolArray,
    survives: BoolArray | None,
    outages: ClientOutages | None,
    clients: IntArray,
    starts_s: FloatArray,
    ends_s: FloatArray,
) -> Iterator[tuple[BoolArray | int, str]]:
    """Yield (places, cause) of lost transmissions: a mask (n,) or one place. The last cause yielded for a place counts.

    Array form of `cause_of_loss`, with the same precedence, for the transmissions of `clients` (n,) where `sent` (n,) is True,
    over [starts_s, ends_s) (n,). They cross the clients' own links, which no jammer reaches: where one does, transmissions are
    simulated by events. `survives` (n,): True where the channel lets them through; None: everywhere.
    """
    # The weakest cause first: a later one for the same place replaces it.
    if survives is not None:
        yield sent & ~survives, CHANNEL
    if outages is not None:
        places = np.flatnonzero(sent)
        columns = (values[places].tolist() for values in (clients, starts_s, ends_s))
        for place, client, start_s, end_s in zip(places.tolist(), *columns, strict=True):
            outage = outages.cause(client, start_s, end_s)
            if outage is not None:
                yield place, outage
