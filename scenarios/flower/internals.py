"""Parts of flwr that are not public, in one place, for all versions that the extra `flower` allows."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

RUN_ID = 1
SERVER_NODE = 1
"""Node id of the server, from which replies of the network itself come, too."""
_FIRST_NODE = 2
APP_RAISED, MESSAGE_UNAVAILABLE, REPLY_UNAVAILABLE, NODE_UNAVAILABLE = 2, 3, 4, 5
"""Error codes: the ClientApp raised, the message or the reply is no longer available, the node is not connected."""
TTL_S = 43_200.0
"""Seconds for which a message is valid, by default."""


def require_flwr() -> None:
    """Import flwr, without telemetry; raises UserError where it is not installed."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        message = f"flower: needs flwr, which is not installed ({error}); install the extra: pip install 'netsim[flower]'"
        raise UserError(message) from error


def node_id(client: int) -> int:
    """Return the id of a client's node."""
    return client + _FIRST_NODE


def client_of(node: int) -> int:
    """Return the client of a node."""
    return node - _FIRST_NODE


def set_message_id(message: Message, number: int) -> str:
    """Set the id of a message, or of a reply, and return it."""
    identity = str(number)
    message.metadata.__dict__["_message_id"] = identity
    return identity


def set_source(message: Message, node: int) -> None:
    """Set the node from which a message comes, and its run. In old versions of flwr the network does this."""
    fields = message.metadata.__dict__
    fields["_src_node_id"], fields["_run_id"] = node, RUN_ID


@contextmanager
def task_identity(node: int) -> Iterator[None]:
    """Make `node` the source of messages created in the block; versions before 1.38 have no such identity."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        yield
        return
    before = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = node, RUN_ID, node
    try:
        yield
    finally:
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before


def run_details(run_config: dict[str, Any]) -> Any:
    """Return the facts that a Grid states about its run."""
    return types.SimpleNamespace(
        run_id=RUN_ID, fab_id="", fab_version="", fab_hash="", override_config=dict(run_config), series_id=0, federation_id=""
    )


def copy_content(content: RecordDict) -> RecordDict:
    """Return a copy of the records; the bytes of their arrays, which do not change, are shared."""
    copied: RecordDict = _copy_fields(content)
    records = copied.__dict__["_data"]
    for name, record in records.items():
        records[name] = copy = _copy_fields(record)
        values = copy.__dict__["_data"]
        for key, value in values.items():
            if type(value) is list:
                values[key] = list(value)
    return copied


def _copy_fields(record: Any) -> Any:
    """Return a copy of a record, or of a dict of records. Equal to their own `copy`, and several times as fast."""
    fields, copied = record.__dict__, object.__new__(type(record))
    copied.__dict__.update(
        _check_key_fn=fields["_check_key_fn"], _check_value_fn=fields["_check_value_fn"], _data=fields["_data"].copy()
    )
    return copied


def replace_content(message: Message, content: RecordDict | None) -> Message:
    """Return a copy of `message` with other content and copied metadata."""
    copy = object.__new__(type(message))
    copy.__dict__.update(message.__dict__)
    metadata = object.__new__(type(message.metadata))
    metadata.__dict__.update(message.metadata.__dict__)
    copy.__dict__["_metadata"], copy.__dict__["_content"] = metadata, content
    return copy


@cache
def _record_classes() -> tuple[Any, Any]:
    """Return the classes of records of metrics and of configurations."""
    from flwr.app import ConfigRecord, MetricRecord

    return MetricRecord, ConfigRecord


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return True for a number other than True and False."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_LEGACY_METRICS = ("fitres.metrics", "evaluateres.metrics")
_LEGACY_SAMPLES = ("fitres.num_examples", "evaluateres.num_examples")
"""Records of replies of the old API: the client's metrics, and its number of samples."""


def reported_numbers(content: RecordDict) -> dict[str, int | float]:
    """Return the numbers in all records of metrics of a reply, by name; metrics of the old API included."""
    # Not `RecordDict.metric_records`, which builds a synchronised dict at each call and is slower.
    metrics, _ = _record_classes()
    numbers: dict[str, int | float] = {}
    for name, record in content.items():
        if (isinstance(record, metrics) and name not in _LEGACY_SAMPLES) or name in _LEGACY_METRICS:
            numbers |= {key: value for key, value in record.items() if _is_number(value)}
    return numbers


def config_records(content: RecordDict) -> list[Any]:
    """Return the records of configurations."""
    _, configurations = _record_classes()
    return [record for record in content.values() if isinstance(record, configurations)]


def legacy_samples(content: RecordDict) -> int | None:
    """Return the number of samples in a reply of the old API (`fit`, `evaluate`); None for other replies."""
    for name in _LEGACY_SAMPLES:
        if name in content:
            record: Any = content[name]
            return int(record["num_examples"])
    return None


def holds_results(content: RecordDict) -> bool:
    """Return True if a reply holds arrays or metrics: stages of secure aggregation hold configurations only."""
    _, configurations = _record_classes()
    return any(len(record) > 0 for record in content.values() if not isinstance(record, configurations))


def count_bytes(content: RecordDict) -> int:
    """Return the bytes of the content: arrays, 8 for each number, 1 for each letter and truth value, and the keys."""
    return sum(len(name) + _record_bytes(record) for name, record in content.items())


def _record_bytes(record: Any) -> int:
    """Return the bytes of a record: its keys and values."""
    return sum(len(key) + _value_bytes(value) for key, value in record.items())


def _value_bytes(value: Any) -> int:
    """Return the bytes of a value of a record, by its type."""
    if isinstance(value, list):
        return sum(map(_value_bytes, value))
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, bool):
        return 1
    return 8 if isinstance(value, int | float) else len(value.data)


@contextmanager
def replace_attributes(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes of modules or classes within the block. `changes`: owner, name and new value of each."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
