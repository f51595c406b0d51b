"""The null object of the jamming of a medium."""

from __future__ import annotations

from netsim.network.own_link_jamming import MediumJamming, NoMediumJamming


def test_the_null_object_has_all_that_the_jamming_of_a_medium_has() -> None:
    names = {name for name in dir(MediumJamming) if not name.startswith("_")}
    assert names - {name for name in dir(NoMediumJamming) if not name.startswith("_")} == {"jammers"}
    nothing = NoMediumJamming()
    nothing.load_state_dict(nothing.state_dict(), 1)
    nothing.resume(nothing.senders(), {})
    assert not nothing.precedes(0)
