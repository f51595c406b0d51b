"""The JSON Schema of scenario files, made once for all tests of a process: it takes seconds."""

from __future__ import annotations

import functools
from typing import Any

from scenarios.schema.reference import json_schema, reference


@functools.cache
def whole_schema() -> dict[str, Any]:
    """Return what `netsim schema` prints; tests leave it as it is."""
    return json_schema()


@functools.cache
def whole_reference() -> str:
    """Return what `netsim schema --markdown` prints."""
    return reference()
