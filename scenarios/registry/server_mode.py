"""What a server of the user's own is asked for."""

from __future__ import annotations

from typing import Any, Protocol


class ServerMode(Protocol):
    """A server's parameters, and how it is put together of the engine's rules."""

    selects: bool = True
    """Whether a policy selects who takes part: then `[policy]` must be there, otherwise it is refused."""
    contends: bool = False
    """Whether two clients may be on one of the sub-channels of `[channels]` at once."""

    caches: bool = False
    """Whether the model is made of a cache with an entry for every client, as SAFA's is."""

    def compose(self, world: Any) -> Any:
        """The server, a `scenarios.wiring.world.Composed`, of what is known of the scenario, a `scenarios.wiring.world.World`.

        Those of netsim are put together in `scenarios.wiring.servers`.
        """
