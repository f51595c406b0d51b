"""The compressions of `[payload]`, and sizes of compressed messages of netsim's networks before the network is built."""

from __future__ import annotations

from typing import NamedTuple

from models.errors import ParameterError
from models.fl.compression.messages import both_ways
from models.fl.compression.sign import NEEDS_VOTE
from models.fl.networks.shapes import shapes_of
from models.fl.protocols import Compression
from scenarios.registry.components import Component, construct
from scenarios.registry.kinds import is_own
from scenarios.schema.errors import UserError
from scenarios.schema.learning import Learner
from scenarios.schema.scenario import Scenario


class Compressions(NamedTuple):
    """Compressions of updates and of models."""

    up: Compression
    down: Compression


def build_compressions(scenario: Scenario) -> Compressions:
    """Return the compressions of updates and models; raises UserError, also if there is nothing to compress."""
    payload = scenario.payload
    return Compressions(
        _build_one(scenario, payload.compression, "compression", payload.up_bytes, "up_bytes"),
        _build_one(scenario, payload.down_compression, "down_compression", payload.down_bytes, "down_bytes"),
    )


def _build_one(scenario: Scenario, section: Component, name: str, stated: object, size_key: str) -> Compression:
    """Return the compression at payload.NAME; raises UserError.

    `stated`: size of the message in the scenario, or None; its key is payload.SIZE_KEY.
    """
    compression: Compression = construct(section, "compression", f"payload.{name}", section.parameters(), {})
    if compression.exact:
        return compression
    trains, setting = scenario.learner is not None, f"payload.{name}.kind = {section.kind!r}"
    if trains and stated is not None:
        raise UserError(f"payload.{size_key}: leave it out; payload.{name} and the network give the size")
    if not trains and compression.ratio is None:
        remedy = f"add a [learner], or declare a ratio: payload.{name} = {{kind = 'declared', ratio = ..}}"
        raise UserError(f"{setting}: compresses what is trained, and nothing is; {remedy}")
    if not trains and stated is None and scenario.payload.adapter_bytes is None:
        raise UserError(f"{setting}: there are no bytes to compress; set payload.{size_key}")
    return compression


def message_bytes(section: Learner, compressions: Compressions) -> tuple[int, int] | None:
    """Return the bytes of a model and of an update, in this order, or None if only the built network shows them.

    Raises:
        ValueError: a compression that does not go with the learner, or names of parameters that the network does not have.
    """
    options, aggregation = section.options(), section.aggregation.kind
    if compressions.up.needs_vote and aggregation != "majority-vote" and not is_own("aggregation", aggregation):
        raise ParameterError("compression", "none", NEEDS_VOTE, shown="")
    shapes = shapes_of(options.network, options.data)
    local = section.batch_statistics == "local"
    # An unknown network still shows if the compressions go with the learner: any sizes will do for that.
    tensors, others = ([1], 0) if shapes is None else shapes.message_sizes(options.trained, local=local)
    up, down = both_ways(compressions.up, compressions.down, tensors, others, section.aggregation.demands)
    return None if shapes is None else (down.bytes, up.bytes)
