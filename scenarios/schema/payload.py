"""The `[payload]` table: what is sent between server and clients, in bytes."""

from typing import Annotated, Any

from pydantic import Field

from models.fl.compression.messages import NO_MODEL
from scenarios.registry.components import component_of
from scenarios.schema.per_client import PerClientField
from scenarios.schema.section import Section


def _whole(compression: Any) -> bool:
    return bool(compression.whole_models)


class Payload(Section):
    """The sizes of the model as it is sent to a client and of the update as it is sent back; they round up to whole bytes."""

    down_bytes: PerClientField | None = None
    """Size of the model as it is sent to a client. Absent: what the network takes, 4 bytes a parameter that is trained, or as
    down_compression says; 0 without a learner. What the aggregation sends along (scaffold: as much again) comes on top."""
    up_bytes: PerClientField | None = None
    """Size of the update as a client sends it. Absent: what the network takes, 4 bytes a parameter that is trained, or as
    compression says; 0 without a learner. What the aggregation sends along (scaffold: as much again) comes on top."""
    compression: component_of("compression") = {"kind": "none"}  # type: ignore[valid-type]
    """Encoding of updates. With a learner values really are compressed, and the size is that of the encoded message; without
    one, `declared`."""
    down_compression: component_of("compression", fits=_whole, why=NO_MODEL) = {"kind": "none"}  # type: ignore[valid-type]
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
