"""The scripts of the guard's own scenario files."""

from __future__ import annotations

import netsim


def change_laws(world: netsim.World) -> netsim.Script:
    """Changes laws at rounds, at times and on deliveries, takes some of it back, and draws random numbers of its own."""
    slow = world.scale("compute.delay", median_s=1.0 + world.rng.random(), clients="a")
    yield world.until_round(3)
    lossy = world.change("uplink.channel", success={"by_group": {"a": 0.5, "b": 0.9}})
    limit = world.until_time(9.0)
    while (yield world.until_delivery(clients="b", count=3) | world.until_loss() | limit) is not limit:
        world.change("uplink.delay", mean_excess_s=float(world.deliveries().sum()) / 50, clients=[0, 1])
    lossy.restore()
    yield world.after(1.5)
    slow.restore()


def act_on_clients(world: netsim.World) -> netsim.Script:
    """Takes clients away, cuts others off, and lets a jammer work, until what it waits for has come."""
    yield world.until_round(2)
    away = world.take_away("a")
    cut = world.cut_off([6, 7])
    yield world.until_delivery(count=2) | world.after(1.0)
    jamming = world.start_jammer("idle")
    away.bring_back()
    yield world.until_loss(cause="jammed", count=2) | world.after(4.0)
    jamming.stop()
    cut.reconnect()
    ended = yield world.until_end()
    world.take_away(ended.client)


def act_on_links(world: netsim.World) -> netsim.Script:
    """Cuts links between clients, changes messages and tests, and takes a member away."""
    yield world.until_slot(2)
    cut = world.cut_links(groups=[[0, 1, 2], "b"])
    slow = world.scale("peers.delay", value_s=3.0, clients=[3, 4])
    yield world.after(0.15)
    cut.heal()
    world.change("opinions.test.delay", value_s=0.4, clients="b")
    yield world.until_slot(3)
    slow.restore()
    away = world.take_away(world.rng.choice(8, 2, replace=False))
    lonely = world.cut_off(7)
    yield world.after(1.0)
    away.bring_back()
    lonely.reconnect()


def nothing(world: netsim.World) -> netsim.Script:
    """Does nothing, and ends at once."""
    yield world.until_time(0.0)
