"""The sizes of the messages between server and clients, as `[payload]` gives them or as the network has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from models.fl.compression.bits import share_of
from netsim.network.sizes import Sizes
from netsim.servers.kinds.messages import MessageSizes
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError
from scenarios.schema.fit import LARGEST
from scenarios.schema.scenario import Scenario
from scenarios.wiring.clients.population import FloatArray, IntArray, Population
from scenarios.wiring.learning.training import learner_refusals
from scenarios.wiring.network.compression import Compressions, build_compressions, message_bytes

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner

LONGEST_S = 1e12
"""Longest expected duration: 30,000 years. Beyond it, a clock of 64-bit floats cannot represent milliseconds."""


@dataclass(frozen=True)
class Message:
    """One kind of message: its size, and the key that sets it."""

    size_bytes: int | IntArray
    key: str

    def require_bytes(self, bandwidth_key: str) -> None:
        """Raise UserError if a message has no bytes although `bandwidth_key` sets a bandwidth."""
        if np.min(self.size_bytes) > 0:
            return
        client_text = f" (client {np.argmin(self.size_bytes)})" if np.ndim(self.size_bytes) else ""
        raise UserError(f"{bandwidth_key}: a message of 0 bytes{client_text} takes no bandwidth; set {self.key}")


def build_sizes(scenario: Scenario, population: Population, trained: FederatedLearner | None) -> Sizes:
    """Return the sizes of models and updates as sent, headers included; raises UserError.

    `trained`: the learner; None without training, or if the scenario is only checked: 1 byte then stands for an unknown size.
    """
    if scenario.flower is not None:
        return MessageSizes(population.count)
    section, compressions = scenario.payload, build_compressions(scenario)
    model_bytes, update_bytes = _model_bytes(scenario, trained, compressions) or (1, 1)
    if scenario.learner is not None and section.kind == "lora":
        raise UserError("payload.kind = 'lora': leave it out; learner.trained names what is trained and sent")
    if scenario.learner is not None and section.trained_share < 1:
        raise UserError(f"payload.trained_share = {section.trained_share}: leave it out; learner.trained names what is trained")
    sizes: Keywords = {}
    for name, stated, computed, compression in (
        ("down", section.down_bytes, model_bytes, compressions.down),
        ("up", section.up_bytes, update_bytes, compressions.up),
    ):
        body: Any = computed if stated is None else population.values(stated, f"payload.{name}_bytes")
        if not np.min(body) >= 0:
            client_text = f" for client {np.argmin(body)}" if np.ndim(body) else ""
            raise UserError(f"payload.{name}_bytes = {float(np.min(body))!r}{client_text}: must be >= 0 bytes")
        full_size = np.ceil(body)
        if stated is not None:
            # The learner's own sizes include these bytes.
            full_size = _add_method_bytes(scenario, full_size, report=name == "up")
        if float(np.max(full_size) + section.header_bytes) * population.count > LARGEST:
            problem = f"payload.{name}_bytes = {float(np.max(body))!r}"
            raise UserError(f"{problem}: must be less; a round of all clients would pass 2^63 bytes")
        trained_size = _share(np.asarray(full_size, np.int64), section.trained_share)
        size = _share(trained_size, compression.ratio or 1.0) + section.header_bytes
        sizes[name] = size if size.ndim else int(size)
    return Sizes(**sizes)


def _add_method_bytes(scenario: Scenario, sizes: FloatArray, *, report: bool) -> FloatArray:
    """Return `sizes` of messages, bytes, with the bytes that the method of aggregation adds to each: vectors and a report.

    `report`: True for updates, which carry the report of the method.
    """
    if scenario.learner is None:
        return sizes
    demands = scenario.learner.aggregation.demands
    return np.asarray(sizes * (1 + demands.vectors) + (demands.report_bytes if report else 0))


def _share(sizes: IntArray, share: float) -> IntArray:
    """Return ceil(share * sizes), computed from the decimal form of the share."""
    if share == 1:
        return sizes
    # Exact arithmetic is slow, and many clients have few distinct sizes: compute each size once.
    distinct, index_of = np.unique(sizes, return_inverse=True)
    return np.array([share_of(share, size) for size in distinct.tolist()], np.int64)[index_of].reshape(sizes.shape)


def _model_bytes(scenario: Scenario, trained: FederatedLearner | None, compressions: Compressions) -> tuple[int, int] | None:
    """Return the bytes of a model and of an update before headers, or None if only the built network shows them."""
    if trained is not None:
        return trained.down_bytes, trained.up_bytes
    if scenario.learner is None:
        # Nothing is trained, but `payload.kind = "lora"` describes adapters; without them the sizes are 0.
        adapters = scenario.payload.adapter_bytes or 0
        return adapters, adapters
    with learner_refusals(scenario.learner):
        return message_bytes(scenario.learner, compressions)


def sizes_in_words(scenario: Scenario) -> str:
    """Describe the sizes of a model and an update as sent; empty if both are 0, or set by an app. Raises UserError."""
    if scenario.flower is not None:
        return ""
    population = Population(scenario.clients)
    section = scenario.payload
    unknown = scenario.learner is not None and _model_bytes(scenario, None, build_compressions(scenario)) is None
    sizes = build_sizes(scenario, population, None)
    texts = []
    for name, size, key_value in (("a model", sizes.down, section.down_bytes), ("an update", sizes.up, section.up_bytes)):
        smallest, largest = int(np.min(size)), int(np.max(size))
        size_text = f"{smallest:,} bytes" if smallest == largest else f"{smallest:,} to {largest:,} bytes"
        if unknown and key_value is None:
            size_text = "a size known once the network is built"
        texts.append(f"{name} of {size_text}")
    return ", ".join(texts) if np.any(sizes.down) or np.any(sizes.up) else ""


def codec_s(scenario: Scenario, population: Population, sizes: Sizes) -> FloatArray:
    """Return the seconds, () or (K,), to decompress the model and compress the update; raises UserError."""
    return np.asarray(decompress_s(scenario, population, sizes) + _codec_s(scenario, population, "compress", sizes.up))


def decompress_s(scenario: Scenario, population: Population, sizes: Sizes) -> FloatArray:
    """Return the seconds, () or (K,), to decompress the model; raises UserError."""
    return _codec_s(scenario, population, "decompress", sizes.down)


def _codec_s(scenario: Scenario, population: Population, name: str, size: object) -> FloatArray:
    """Return the seconds (K,) that compressing or decompressing a message takes; raises UserError."""
    key = f"payload.{name}_s_per_byte"
    s_per_byte = np.asarray(population.values(getattr(scenario.payload, f"{name}_s_per_byte"), key))
    with np.errstate(over="ignore"):
        takes_s = np.asarray(s_per_byte * size, np.float64)
    # The value for each byte, and what it comes to for a whole message.
    checks = ((s_per_byte, np.inf, ">= 0 seconds"), (takes_s, LONGEST_S, f"less: a message takes at most {LONGEST_S:g} s"))
    for values, limit, allowed in checks:
        valid = (values >= 0.0) & (values <= limit)
        if not valid.all():
            client = int(np.argmin(np.broadcast_to(valid, (population.count,))))
            client_text = f" for client {client}" if valid.ndim else ""
            value = float(np.broadcast_to(s_per_byte, (population.count,))[client])
            raise UserError(f"{key} = {value!r}{client_text}: must be {allowed}")
    return takes_s


def models_down(sizes: Sizes) -> Message:
    """Return the model on its way to the clients."""
    return Message(sizes.down, "payload.down_bytes")


def updates_up(sizes: Sizes) -> Message:
    """Return the updates on their way to the server."""
    return Message(sizes.up, "payload.up_bytes")
