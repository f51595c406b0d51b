"""Scripts of the campaigns: they act on any world, whatever its server and laws are, or only look on."""

from __future__ import annotations

import netsim


def watch(world: netsim.World) -> netsim.Script:
    """Wait for rounds, deliveries and times, and do nothing."""
    for number in range(2, 6):
        yield world.until_round(number) | world.after(0.7)
        yield world.until_delivery() | world.after(0.3)


def change_laws(world: netsim.World) -> netsim.Script:
    """Make training slower and faster again."""
    yield world.after(1.0)
    slow = world.scale("compute.delay", shift_s=3.0)
    yield world.until_delivery(count=3) | world.after(2.0)
    slow.restore()


def take_and_cut(world: netsim.World) -> netsim.Script:
    """Take clients away and cut others off for a while."""
    yield world.after(0.75)
    away = world.take_away([0, 4])
    cut = world.cut_off([2, 5])
    yield world.after(1.25)
    away.bring_back()
    yield world.until_round(5) | world.after(1.0)
    cut.reconnect()
