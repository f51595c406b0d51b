"""The script of reactive_jamming.toml: a jammer that hides as soon as it was noticed, and comes back once it is forgotten."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

import netsim


def script(
    world: netsim.World,
    *,
    rest: Annotated[int, Doc("Deliveries over the sub-channel that gave it away, before it returns.")] = 30,
    patience: Annotated[int, Doc("Rounds after which it hides though nobody has noticed it.")] = 200,
) -> netsim.Script:
    """Jams until the scheduler declares a change, hides until the sub-channel concerned is trusted again, and so on."""
    while True:
        jamming = world.start_jammer("follower")
        declared = world.until_change_declared()
        event = yield declared | world.until_round(world.round + patience)
        jamming.stop()
        channels = declared.value.channels if event is declared else None
        yield world.until_delivery(channels=channels, count=rest)
