"""The script of scripted_latency.toml: latencies that change during a run, once at a simulated time and once as a round opens."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

import netsim


def script(
    world: netsim.World,
    *,
    breaks_s: Annotated[float, Doc("When the near clients' network breaks down.")] = 10.0,
    fixed_from: Annotated[int, Doc("The round from which on it works again.")] = 61,
) -> netsim.Script:
    """The near clients' network breaks down, and is fixed."""
    # At a time, independent of rounds. An upload in flight at that time ends as it would have without the change.
    yield world.until_time(breaks_s)
    broken = world.change("uplink.delay", value_s=2.0, clients="near")
    # At a round: the run itself decides when.
    yield world.until_round(fixed_from)
    broken.restore()
