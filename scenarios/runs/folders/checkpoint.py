"""Checkpoints: the whole state of a run at a round boundary in one file. A resumed run equals an uninterrupted one.

The file is a NumPy archive of plain arrays: the tree of the state as JSON, and beside it every array the tree holds. Nothing in
it is executed when it is read. After the archive, where readers of such archives do not look, comes a line with the format and
the SHA-256 of the archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.core.protocols import Notes, State
from netsim.records import atomic
from netsim.records.tables import UNFINISHED

FILE = f"{UNFINISHED}/checkpoint.npz"
"""Path of the checkpoint in the folder of its run."""
FORMAT = 8
_TREE = "tree"
_PART = 1 << 20
"""Bytes that are read at a time."""
_LAST_LINE = re.compile(rb"\nnetsim checkpoint (\d{1,9}) sha256 ([0-9a-f]{64})\n\Z")


_SPARSE_SIZE, _SPARSE_SHARE = 10_000, 8
"""Arrays with at least `_SPARSE_SIZE` entries are stored sparsely if at most one entry in `_SPARSE_SHARE` differs from the most
common one."""
_WHOLE_BYTES = tuple(np.dtype(kind) for kind in (np.float64, np.int64, np.float32, np.int32))


class StateError(TypeError):
    """Error: a state has a value that a checkpoint cannot store."""


def save(folder: Path, state: State) -> None:
    """Keep `state`, plain data, for a run in `folder`; the checkpoint before it stays until this one is complete."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = json.dumps(_pack(state, arrays))
    path = folder / FILE
    path.parent.mkdir(exist_ok=True)
    with atomic.open_replacement(path) as file:
        np.savez(file, allow_pickle=False, **{_TREE: np.frombuffer(tree.encode(), np.uint8)}, **arrays)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0, io.SEEK_END)
        file.write(f"\nnetsim checkpoint {FORMAT} sha256 {digest}\n".encode())


def load(folder: Path) -> Notes:
    """Return the last saved state of the run in `folder`; raises ValueError if there is none, or it is damaged."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder}: there is no checkpoint to go on from")
    _check_file(path)
    arrays = _read_arrays(path)
    state: State = _unpack(json.loads(arrays.pop(_TREE).tobytes()), arrays)
    return state


def _check_file(path: Path) -> None:
    """Raise ValueError unless the last line of a checkpoint has this format, and the checksum of what comes before it."""
    with path.open("rb") as file:
        # The last line has less than 200 bytes.
        first = max(0, file.seek(0, io.SEEK_END) - 200)
        file.seek(first)
        last = _LAST_LINE.search(file.read())
        if last is None:
            raise ValueError(f"{path}: is damaged, or of an earlier version of netsim")
        if int(last[1]) != FORMAT:
            raise ValueError(f"{path}: has format {int(last[1])}, and this version of netsim reads {FORMAT}")
        file.seek(0)
        digest, left = hashlib.sha256(), first + last.start()
        while left:
            part = file.read(min(left, _PART))
            digest.update(part)
            left -= len(part)
    if digest.hexdigest() != last[2].decode():
        raise ValueError(f"{path}: is damaged (its checksum is another)")


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive. Large ones are mapped, since models may take more room than memory has."""
    arrays: dict[str, NDArray[Any]] = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as content:
                if entry.file_size < _PART:
                    arrays[name] = np.lib.format.read_array(content, allow_pickle=False)
                    continue
                np.lib.format.read_magic(content)
                shape, _, kind = np.lib.format.read_array_header_1_0(content)
                header = content.tell()
            # The entry, which is not compressed, follows its name and an extra field, whose lengths are in its local header.
            file.seek(entry.header_offset + 26)
            lengths = struct.unpack("<HH", file.read(4))
            first = entry.header_offset + 30 + sum(lengths) + header
            # Copy on write: nothing changes the file.
            arrays[name] = np.memmap(path, kind, "c", first, shape).view(np.ndarray)
    return arrays


def exists(folder: Path) -> bool:
    """Return True if the run in `folder` can go on."""
    return (folder / FILE).is_file()


def _pack(value: object, arrays: dict[str, NDArray[Any]]) -> object:
    """Return `value` as JSON; add its arrays to `arrays`. Types that JSON lacks become lists that begin with their kind."""
    if value is None or isinstance(value, bool | int | float | str):
        # A NumPy float is a Python float, too.
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray):
        return _pack_array(value, arrays)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return ["dict", [[_pack(key, arrays), _pack(item, arrays)] for key, item in value.items()]]
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_pack(item, arrays) for item in value]]
    if isinstance(value, set | frozenset):
        return [type(value).__name__, [_pack(item, arrays) for item in sorted(value)]]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    raise StateError(f"state: {value!r} of type {type(value).__name__} is no plain data")


def _pack_array(value: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> object:
    """Add an array to `arrays`, and return its place in the tree: ["array", name], or ["mostly", [name, size]].

    The second form is for a large array with mostly equal entries, such as those of clients that were never selected: only the
    common entry and the others with their places are stored.
    """
    name = f"a{len(arrays)}"
    if value.ndim == 1 and value.size >= _SPARSE_SIZE and value.dtype in _WHOLE_BYTES:
        # Compare bits, so that -0.0 differs from 0.0, and NaN equals itself.
        bits = value.view(f"u{value.itemsize}")
        middle = value.size // 2
        # If two entries agree, they probably have the most common value.
        usual = middle if bits[middle] == bits[-1] else 0
        others = np.flatnonzero(bits != bits[usual])
        if len(others) <= value.size // _SPARSE_SHARE:
            arrays[name] = value[usual : usual + 1].copy()
            # Indexes and values of all other entries.
            arrays[f"{name}at"], arrays[f"{name}is"] = others, value[others]
            return ["mostly", [name, value.size]]
    arrays[name] = value
    return ["array", name]


def _unpack(value: object, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the value that `_pack` has packed."""
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "array":
        return arrays[content]
    if kind == "mostly":
        name, size = content
        full = np.repeat(arrays[name], size)
        full[arrays[f"{name}at"]] = arrays[f"{name}is"]
        return full
    if kind == "dict":
        return {_unpack(key, arrays): _unpack(item, arrays) for key, item in content}
    if kind == "bytes":
        return bytes.fromhex(content)
    items = [_unpack(item, arrays) for item in content]
    return {"tuple": tuple, "set": set, "frozenset": frozenset, "list": list}[kind](items)
