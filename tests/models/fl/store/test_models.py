"""The store of models by identity: holds, mixing by ids and weights, versions of a node."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.errors import ParameterError
from models.fl.learners.versions import Versions
from models.fl.store.models import SERVER, ModelId, ModelStore
from tests.helpers.random_worlds import copied


def version(number: int, node: int = SERVER) -> ModelId:
    return ModelId(node, "version", number)


def test_a_vector_is_kept_as_long_as_it_is_held() -> None:
    store = ModelStore()
    id = store.put(version(0), torch.ones(3))
    store.hold(id)
    store.release(id)
    assert store[id].tolist() == [1.0, 1.0, 1.0]
    store.release(id)
    assert id not in store
    with pytest.raises(ParameterError, match=r"version 0 of the server is no longer kept"):
        store[id]
    with pytest.raises(ParameterError, match=r"trained 4 of client 2 is no longer kept"):
        store.hold(ModelId(2, "trained", 4))


def test_mixing_is_by_ids_and_weights() -> None:
    store = ModelStore()
    ids = [store.put(version(k, node=k), torch.tensor([float(k), 1.0])) for k in range(3)]
    assert store.mix(ids, np.array([0.5, 0.25, 0.25])).tolist() == [0.75, 1.0]
    # The same id twice counts with both weights.
    assert store.mix([ids[2], ids[0], ids[2]], np.array([0.25, 0.5, 0.25])).tolist() == [1.0, 1.0]


def test_versions_of_two_nodes_live_in_one_store() -> None:
    store = ModelStore()
    server, edge = (Versions(first=torch.full((2,), float(node)), kept=2, store=store, node=node) for node in (SERVER, 7))
    edge.push(torch.tensor([8.0, 8.0]))
    assert server.model.tolist() == [-1.0, -1.0]
    assert store[version(1, node=7)].tolist() == edge.model.tolist() == [8.0, 8.0]


def test_versions_go_when_nothing_needs_them_and_a_state_brings_them_back() -> None:
    store = ModelStore()
    versions = Versions(first=torch.zeros(1), kept=2, store=store)
    for number in range(1, 5):
        versions.push(torch.tensor([float(number)]))
        if number == 2:
            versions.retain([1], holder="engine")
    assert versions.kept == [1, 3, 4]
    assert len(store) == 3
    with pytest.raises(ParameterError, match=r"starts from version 2, but only \[1, 3, 4\] are kept"):
        versions[2]
    other_store = ModelStore()
    other = Versions(first=torch.zeros(1), kept=2, store=other_store)
    other.load_state_dict(copied(versions.state_dict()))
    assert (other.kept, other.newest, other[1].item(), len(other_store)) == ([1, 3, 4], 4, 1.0, 3)
    for one, there in ((versions, store), (other, other_store)):
        one.retain([], holder="engine")
        assert (one.kept, len(there)) == ([3, 4], 2)


def test_vectors_beyond_the_bound_lie_on_disk_and_are_used_like_others() -> None:
    # Of 1,024 numbers, a page, each.
    store = ModelStore(memory_bytes=2 * 4096)
    vectors = [torch.full((1024,), float(k)) for k in range(4)]
    ids = [store.put(version(k, node=k), vector) for k, vector in enumerate(vectors)]
    assert [store[id] is vector for id, vector in zip(ids, vectors, strict=True)] == [True, True, False, False]
    assert store.disk_bytes == 2 * 4096
    assert store.mix(ids, np.full(4, 0.25)).tolist() == [1.5] * 1024
    vectors[2].zero_()
    assert set(store[ids[2]].tolist()) == {2.0}
    # What is released makes room: in memory, and in the file.
    store.release(ids[0])
    store.release(ids[3])
    again = [store.put(version(k, node=k), torch.full((1024,), float(k))) for k in (5, 6)]
    assert [set(store[id].tolist()) for id in again] == [{5.0}, {6.0}]
    assert store.disk_bytes == 2 * 4096


def test_a_vector_on_disk_that_is_still_in_use_keeps_its_place() -> None:
    store = ModelStore(memory_bytes=0)
    view = store[store.put(version(0), torch.zeros(2048))][1024:]
    store.release(version(0))
    store.put(version(1), torch.ones(2048))
    assert not view.any()
    assert store.disk_bytes == 4 * 4096
    del view
    store.put(version(2), torch.ones(2048))
    assert store.disk_bytes == 4 * 4096


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = ModelStore(memory_bytes=0)
    store.put(version(0), torch.zeros(10_000))
    assert store.disk_bytes > 0
    # Whatever ends the process, nothing has to be removed.
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_of(monkeypatch: Any) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(MemoryError, match=r"^memory_bytes = 8: the disk has no room .*No space left.*; make room, raise it"):
        ModelStore(memory_bytes=8).put(version(0), torch.zeros(3))
