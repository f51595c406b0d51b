"""The sizes of the messages between server and clients, as `[payload]` gives them or as the network has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netsim.network.sizes import Sizes
from scenarios.build.population import IntArray, Population
from scenarios.schema.errors import UserError
from scenarios.schema.fit import LARGEST
from scenarios.schema.scenario import Scenario


@dataclass(frozen=True)
class Message:
    """One kind of message: its size, and the key that says it."""

    size_bytes: int | IntArray
    key: str

    def require_bytes(self, bandwidth_key: str) -> None:
        """Raise UserError if a message has no bytes, where there is a bandwidth that it would take."""
        if np.min(self.size_bytes) > 0:
            return
        whose = f" (client {np.argmin(self.size_bytes)})" if np.ndim(self.size_bytes) else ""
        raise UserError(f"{bandwidth_key}: a message of 0 bytes{whose} takes no bandwidth; set {self.key}")


def build_sizes(scenario: Scenario, population: Population, network_bytes: int) -> Sizes:
    """The sizes of models and updates, headers included; raises UserError.

    `network_bytes`: what the network's parameters take, where `[payload]` does not say it; 0 without a network.
    """
    section = scenario.payload
    sizes: dict[str, Any] = {}
    for name, given in (("down", section.down_bytes), ("up", section.up_bytes)):
        body: Any = network_bytes if given is None else population.values(given, f"payload.{name}_bytes")
        if not np.min(body) >= 0:
            whose = f" for client {np.argmin(body)}" if np.ndim(body) else ""
            raise UserError(f"payload.{name}_bytes = {float(np.min(body))!r}{whose}: must be >= 0 bytes")
        whole = np.ceil(body) + float(section.header_bytes)
        if float(np.max(whole)) * population.count > LARGEST:
            shown = f"payload.{name}_bytes = {float(np.max(body))!r}"
            raise UserError(f"{shown}: must be less; a round of all clients would pass 2^63 bytes")
        sizes[name] = np.asarray(whole, np.int64) if np.ndim(whole) else int(whole)
    return Sizes(**sizes)


def models_down(sizes: Sizes) -> Message:
    """The model on its way to the clients."""
    return Message(sizes.down, "payload.down_bytes")


def updates_up(sizes: Sizes) -> Message:
    """The updates on their way to the server."""
    return Message(sizes.up, "payload.up_bytes")
