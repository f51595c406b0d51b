"""The `[payload]` table: what is sent between server and clients, in bytes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scenarios.schema.per_client import PerClientField
from scenarios.schema.section import Section


class Payload(Section):
    """The sizes of the model as it is sent to a client and of the update as it is sent back; they round up to whole bytes."""

    down_bytes: PerClientField | None = None
    """Size of the model as it is sent to a client. Absent: the network's size, 4 bytes a parameter; 0 without a learner."""
    up_bytes: PerClientField | None = None
    """Size of the update as a client sends it. Absent: the network's size, 4 bytes a parameter; 0 without a learner."""
    header_bytes: Annotated[int, Field(ge=0, le=10**12)] = 0
    """What every model and every update takes beside that."""
