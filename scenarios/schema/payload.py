"""The `[payload]` table: sizes of messages between server and clients, bytes."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from models.fl.compression.bits import whole_bytes
from models.fl.compression.messages import NO_MODEL
from scenarios.registry.components import component_of
from scenarios.schema.per_client import PerClientField
from scenarios.schema.section import Section, missing, problem

_ADAPTER = ("rank", "layers", "hidden")
"""Keys that a table of adapters must have."""


def _sends_whole_models(compression: Any) -> bool:
    """Return True if a class of compression can encode a model, and not only an update."""
    return bool(compression.whole_models)


class Payload(Section):
    """The sizes of the model as it is sent to a client and of the update as it is sent back; they round up to whole bytes."""

    kind: Literal["model", "lora"] = "model"
    """Content of a message: the model, of the sizes below; or low-rank adapters of it (LoRA), with the size that follows from
    `rank`, `layers` and `hidden`."""
    rank: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Rank of the adapters (lora)."""
    layers: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Layers that have adapters (lora)."""
    hidden: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Width of a layer: its matrices have so many rows and columns (lora)."""
    matrices: Annotated[int, Field(ge=1, le=10**6)] = 2
    """Adapted matrices of a layer; 2: of queries and of values, as in the paper (lora)."""
    bits: Literal[4, 8, 16, 32] = 16
    """Bits of each number of an adapter (lora)."""
    down_bytes: PerClientField | None = None
    """Size of the model as it is sent to a client. Absent: what the network takes, 4 bytes a parameter that is trained, or as
    down_compression says; 0 without a learner. What the aggregation sends along (scaffold: as much again) comes on top."""
    up_bytes: PerClientField | None = None
    """Size of the update as a client sends it. Absent: what the network takes, 4 bytes a parameter that is trained, or as
    compression says; 0 without a learner. What the aggregation sends along (scaffold: as much again) comes on top."""
    compression: component_of("compression") = {"kind": "none"}  # type: ignore[valid-type]
    """Encoding of updates. With a learner values really are compressed, and the size is that of the encoded message; without
    one, `declared`."""
    down_compression: component_of("compression", fits=_sends_whole_models, why=NO_MODEL) = {"kind": "none"}  # type: ignore[valid-type]
    """Encoding of models: as they are, by int8 or qsgd, or by one of your own; without a learner, `declared`."""
    trained_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the bytes of a model and of an update that travels, as of a sub-model or an adapter; without a learner, of which
    `learner.trained` names the parameters."""
    header_bytes: Annotated[int, Field(ge=0, le=10**12)] = 0
    """Bytes of every model and every update beside that."""
    compress_s_per_byte: PerClientField = 0.0
    """Time for each byte of the update as it is sent, after local training and as part of it."""
    decompress_s_per_byte: PerClientField = 0.0
    """Time for each byte of the model as it is sent, before local training and as part of it."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        """Refuse keys of adapters without them; with adapters, missing keys of theirs and sizes that follow from them."""
        # A key with its default is accepted, because a scenario that a run wrote has all defaults filled in.
        defaults = {name: type(self).model_fields[name].default for name in (*_ADAPTER, "matrices", "bits")}
        keys = [name for name, default in defaults.items() if getattr(self, name) != default]
        if self.kind == "model" and keys:
            raise problem((keys[0],), getattr(self, keys[0]), "is of adapters; set kind = 'lora', or leave it out")
        if self.kind == "lora":
            for name in _ADAPTER:
                if getattr(self, name) is None:
                    raise missing(name, self)
            for name in ("down_bytes", "up_bytes"):
                if getattr(self, name) is not None:
                    raise problem(
                        (name,), getattr(self, name), "leave it out; the adapters' size follows from rank, layers and hidden"
                    )
        return self

    @property
    def adapter_bytes(self) -> int | None:
        """Bytes of all adapters; None if whole models are sent.

        Each adapted matrix of hidden x hidden numbers has two of hidden x rank (Hu et al., "LoRA", ICLR 2022, section 4.1).
        """
        if self.rank is None or self.layers is None or self.hidden is None:
            return None
        return whole_bytes(self.layers * self.matrices * 2 * self.rank * self.hidden * self.bits)
