"""`[payload]` with compressions and sub-models: sizes by hand, in times and tables, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.network.payload import sizes_in_words
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import TRAINED
from tests.helpers.memory_recorder import MemoryRecorder

UNTRAINED = {key: value for key, value in TRAINED.items() if key != "learner"}
TOP = {"kind": "top-k", "share": 0.1}


def sizes(changes: dict[str, Any], tables: dict[str, Any] = TRAINED, *, learner: bool = False) -> tuple[Any, Any]:
    """Bytes of a model and of an update, as a scenario that is only checked (or is built) has them."""
    known = build(parse(override(tables, changes)), learner=learner).server.clients.medium.sizes
    return known.down, known.up


def test_compressed_messages_take_their_time_and_are_in_the_books() -> None:
    pytest.importorskip("torch")
    # 650 parameters. Down as bytes: 650 + 2 x 8 = 666, 6.66 s. Up 65 values of 32 + 10 bits: 341.25, so 342 bytes, 6.84 s.
    built = build(parse(override(TRAINED, {"payload": {"compression": TOP, "down_compression": {"kind": "int8"}}})))
    recorder = MemoryRecorder()
    built.simulation.record_to(recorder)
    built.simulation.run()
    row = recorder.updates[0]
    assert (row.bytes_down, row.bytes_up) == (666, 342)
    assert row.download_end_s - row.download_start_s == pytest.approx(6.66)
    assert row.upload_end_s - row.upload_start_s == pytest.approx(6.84)
    assert [(entry.bytes_down, entry.bytes_up) for entry in recorder.rounds] == [(2 * 666, 2 * 342)] * 2
    assert recorder.rounds[-1].end_s == pytest.approx(2 * (6.66 + 6.84))


MANY: list[dict[str, Any]] = [
    {},
    {"payload": {"compression": TOP}},
    {"payload": {"compression": {"kind": "qsgd", "levels": 4}, "down_compression": {"kind": "qsgd", "levels": 127}}},
    {"payload": {"compression": {"kind": "sign", "scale": "mean"}, "header_bytes": 40}},
    {"learner.network": {"kind": "mlp", "hidden": [7]}, "learner.trained": ["layers.1.*"], "payload": {"compression": TOP}},
    {"learner.network": {"kind": "cnn", "norm": "batch"}, "payload": {"compression": {"kind": "int8"}}},
    {"learner.network": {"kind": "cnn", "norm": "batch"}, "learner.batch_statistics": "local"},
    {"learner.network": {"kind": "cnn", "norm": "batch"}, "learner.trained": ["*.bias"]},
    {"learner.network": {"kind": "cnn", "channels": [3, 4]}, "payload": {"compression": {"kind": "random-k", "share": 0.2}}},
    {
        "payload": {"compression": {"kind": "sign"}},
        "learner.aggregation": {"kind": "majority-vote", "learning_rate": 0.01},
        "learner.data": {"kind": "digits", "labels": "parity"},
    },
]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("changes", MANY, ids=range(len(MANY)))
def test_check_knows_the_sizes_that_the_run_has(changes: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    assert sizes(changes) == sizes(changes, learner=True)


def test_sizes_in_words() -> None:
    def words(changes: dict[str, Any], tables: dict[str, Any] = TRAINED) -> str:
        return sizes_in_words(parse(override(tables, changes)))

    assert words({"payload.compression": TOP}) == "a model of 2,600 bytes, an update of 342 bytes"
    spread = {"payload": {"down_bytes": 1e6, "up_bytes": [1.0, 2.0, 3.0, 4.0]}}
    assert words(spread, UNTRAINED) == "a model of 1,000,000 bytes, an update of 1 to 4 bytes"
    assert words({"downlink": {}, "uplink": {}}, UNTRAINED) == ""
    own = words({"learner.network": {"kind": "tests.helpers.own_learning:TwoLayers"}, "payload.up_bytes": 5.0})
    assert own == "a model of a size known once the network is built, an update of 5 bytes"


def test_declared_ratios_and_shares_by_hand() -> None:
    payload = {
        "down_bytes": 30.0,
        "up_bytes": [10.0, 20.5, 70.0, 7.0],
        "trained_share": 0.5,
        "header_bytes": 3,
        "compression": {"kind": "declared", "ratio": 0.1},
    }
    down, up = sizes({"payload": payload}, UNTRAINED)
    assert down == 15 + 3
    # Halves of 10, 21, 70 and 7 are 5, 11, 35 and 4; tenths of these 1, 2, 4 and 1.
    assert up.tolist() == [1 + 3, 2 + 3, 4 + 3, 1 + 3]
    # 0.07 of 100 is 7, though 0.07 x 100 is more than 7 in binary.
    exact = {"up_bytes": 100.0, "down_bytes": 100.0, "down_compression": {"kind": "declared", "ratio": 0.07}}
    assert sizes({"payload": exact}, UNTRAINED) == (7, 100)
    many = np.array([10**12 + 1.0, 1.0, 2.0, 3.0])
    assert (
        sizes({"payload": {"down_bytes": 1.0, "up_bytes": many.tolist(), "trained_share": 0.5}}, UNTRAINED)[1][0]
        == 500_000_000_001
    )


BYTES = {"down_bytes": 10.0, "up_bytes": 10.0}


@pytest.mark.parametrize(
    ("changes", "tables", "said"),
    [
        (
            {"payload": BYTES | {"compression": TOP}},
            UNTRAINED,
            "payload.compression.kind = 'top-k': compresses what is trained, and nothing is; add a [learner], or declare a "
            "ratio: payload.compression = {kind = 'declared', ratio = ..}",
        ),
        (
            {"payload": {"up_bytes": 10.0, "down_compression": {"kind": "declared", "ratio": 0.5}}},
            UNTRAINED,
            "payload.down_compression.kind = 'declared': there are no bytes to compress; set payload.down_bytes",
        ),
        (
            {"payload.compression": {"kind": "declared", "ratio": 0.5}},
            TRAINED,
            "payload.compression.ratio = 0.5: is for studies without a [learner]; this one's values are compressed",
        ),
        (
            {"payload.compression": {"kind": "declared", "ratio": 1.5}},
            TRAINED,
            "payload.compression.ratio = 1.5: must be > 0 and <= 1",
        ),
        (
            {"payload": {"up_bytes": 5.0, "compression": TOP}},
            TRAINED,
            "payload.up_bytes: leave it out; payload.compression and the",
        ),
        (
            {"payload.down_compression": TOP},
            TRAINED,
            "payload.down_compression.kind = \"top-k\": 'top-k' leaves out of a model what its receiver",
        ),
        (
            {"payload.compression": {"kind": "sign"}},
            TRAINED,
            "payload.compression: signs have no magnitude: set aggregation.kind = 'majority-vote', or compression.scale = 'mean'",
        ),
        ({"payload.compression": {"kind": "qsgd", "levels": 0}}, TRAINED, "payload.compression.levels = 0: must be >= 1"),
        ({"payload.compression": {"kind": "qsgd"}}, TRAINED, "payload.compression.levels is missing"),
        (
            {"payload.compression": {"kind": "top-k", "share": 0.1, "shares": 1}},
            TRAINED,
            "payload.compression.shares = 1: unknown key",
        ),
        (
            {"payload.trained_share": 0.5},
            TRAINED,
            "payload.trained_share = 0.5: leave it out; learner.trained names what is trained",
        ),
        ({"payload.trained_share": 0.0}, UNTRAINED, "payload.trained_share = 0.0: must be > 0"),
        (
            {"learner.trained": ["layers.9.*"]},
            TRAINED,
            "learner.trained = 'layers.9.*': no parameter has such a name; the network has",
        ),
        ({"learner.trained": []}, TRAINED, "learner.trained = []: names nothing to train; leave it out"),
        ({"learner.trained": "layers.0.bias"}, TRAINED, 'learner.trained = "layers.0.bias": must be a list'),
    ],
)
def test_what_makes_no_sense_is_refused_without_building_the_network(
    changes: dict[str, Any], tables: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as refusal:
        build(parse(override(tables, changes)), learner=False)
    assert str(refusal.value).removeprefix("scenario: ").startswith(said)


def test_a_network_of_ones_own_without_parameters_is_refused() -> None:
    pytest.importorskip("torch")
    with pytest.raises(UserError) as refusal:
        build(
            parse(
                override(
                    TRAINED, {"learner.network": {"kind": "tests.helpers.own_learning:averages"}, "payload.compression": TOP}
                )
            )
        )
    assert str(refusal.value) == "learner.network: it has no parameters: there is nothing to train or to send"
