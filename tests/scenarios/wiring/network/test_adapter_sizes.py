"""Sizes of adapters by their shape, and the page's table of sizes of well-known models."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.network.payload import sizes_in_words

PAGE = (Path(__file__).parents[4] / "docs/world.md").read_text(encoding="utf-8")
WORLD: dict[str, Any] = {
    "name": "adapters",
    "rounds": 2,
    "clients": {"count": 3},
    "server": {"per_round": 3},
    "policy": {"kind": "random"},
    "downlink": {"bandwidth_bytes_per_s": 1e6},
    "uplink": {"bandwidth_bytes_per_s": 1e5},
}
ROBERTA = {"kind": "lora", "rank": 8, "layers": 12, "hidden": 768}


def words(payload: dict[str, Any]) -> str:
    return sizes_in_words(parse(WORLD | {"payload": payload}, "scenario"))


def test_adapters_of_published_shapes_by_hand() -> None:
    # 12 layers x 2 matrices x 2 factors x 8 x 768 = 294,912 numbers of 2 bytes.
    assert words(ROBERTA) == "a model of 589,824 bytes, an update of 589,824 bytes"
    # One matrix a layer, 4 bits, and the header: 147,456 / 2 + 3.
    assert words(ROBERTA | {"matrices": 1, "bits": 4, "header_bytes": 3}).startswith("a model of 73,731 bytes")
    compressed = ROBERTA | {"compression": {"kind": "declared", "ratio": 0.5}}
    assert words(compressed) == "a model of 589,824 bytes, an update of 294,912 bytes"


def test_a_scenario_that_writes_out_the_defaults_of_adapters_is_read() -> None:
    # The scenario in a run's folder states every default, so that resume and replay read such a file.
    written = {"kind": "model", "matrices": 2, "bits": 16, "down_bytes": 8.0, "up_bytes": 8.0}
    assert words(written).startswith("a model of 8 bytes")


def test_adapters_take_the_time_of_their_bytes() -> None:
    run = netsim.run(WORLD | {"payload": ROBERTA})
    seconds = run.clients["upload_end_s"] - run.clients["upload_start_s"]
    assert seconds.to_numpy() == pytest.approx(5.89824)
    assert set(run.clients["bytes_down"]) == {589_824}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"rank": 3}, "payload.rank = 3: is of adapters; set kind = 'lora'"),
        ({"bits": 4}, "payload.bits = 4: is of adapters; set kind = 'lora'"),
        ({"kind": "lora", "rank": 2}, "payload.layers is missing"),
        (ROBERTA | {"up_bytes": 3.0}, "payload.up_bytes = 3.0: leave it out; the adapters' size follows"),
        (ROBERTA | {"rank": 0}, "payload.rank = 0: must be >= 1"),
        (ROBERTA | {"bits": 3}, "payload.bits = 3: must be 4, 8, 16 or 32"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(payload: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        words(payload)


def test_a_learner_says_itself_what_is_sent() -> None:
    learner = {"data": {"kind": "digits"}, "network": {"kind": "linear"}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    with pytest.raises(ValueError, match=r"payload.kind = 'lora': leave it out; learner.trained names"):
        netsim.run(WORLD | {"payload": ROBERTA, "learner": learner})


def rows() -> list[tuple[str, int, int, str]]:
    table = PAGE.split("### Sizes of well-known models")[1].split("## Bandwidth over time")[0]
    found = re.findall(r"^\| (.+?) \| ([\d,]+) \| ([\d,]+) \| (.+?) \|$", table, re.MULTILINE)
    return [(name, int(numbers.replace(",", "")), int(size.replace(",", "")), source) for name, numbers, size, source in found]


def test_the_table_of_sizes_multiplies_right() -> None:
    assert len(rows()) == 13
    for name, numbers, size, _ in rows():
        assert size == numbers * (2 if name.startswith("LoRA") else 4), name


def test_the_table_of_sizes_says_what_torchvision_says() -> None:
    # The sources are read, not imported: to import them needs a build of torch that they match.
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("torchvision is not installed")
    sources = "".join(file.read_text(encoding="utf-8") for file in sorted((Path(spec.origin).parent / "models").glob("*.py")))
    named = [(numbers, source.split("`")[1]) for _, numbers, _, source in rows() if "torchvision" in source]
    assert len(named) == 7
    for numbers, weights in named:
        told = re.search(rf'class {weights}\(.*?"num_params": (\d+)', sources, re.DOTALL)
        assert told is not None, weights
        assert int(told[1]) == numbers, weights


def test_the_pages_shape_is_that_of_its_table() -> None:
    (block,) = re.findall(r"^payload = .*$", PAGE, re.MULTILINE)
    assert words(tomllib.loads(block)["payload"]) == "a model of 589,824 bytes, an update of 589,824 bytes"
