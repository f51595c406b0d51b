"""The sizes of networks that are known without torch are those of the networks."""

from __future__ import annotations

import pytest

from models.fl.networks.kinds import NETWORKS
from models.fl.networks.layout import Layout
from models.fl.networks.shapes import shapes_of
from models.fl.options.names import DataOptions

WIDE = {"kind": "cnn", "channels": [4, 6, 8], "hidden": [9, 5], "padding": 0}
CASES = [
    ({"kind": "linear"}, "digits"),
    ({"kind": "svm"}, "mnist"),
    ({"kind": "mlp", "hidden": [32, 16]}, "fashion-mnist"),
    ({"kind": "mlp", "hidden": []}, "cifar-100"),
    ({"kind": "cnn"}, "digits"),
    ({"kind": "cnn", "channels": None, "norm": "group"}, "cifar-10"),
    *(({**WIDE, "norm": norm}, "mnist") for norm in ("batch", "group", "none")),
    ({**WIDE, "channels": [4, 6], "kernel": 5}, "mnist"),
    ({"kind": "cnn", "kernel": 5}, "cifar-10"),
    *(({"kind": "cnn8", "norm": norm}, "cifar-10") for norm in ("batch", "group", "none")),
    ({"kind": "cnn8", "channels": [2, 3, 4, 5, 6, 7, 8, 9]}, "digits"),
    *(({"kind": "resnet18", "norm": norm}, "cifar-100") for norm in ("batch", "group")),
]
SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar-10": (3, 32, 32)}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("table", "data"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_names_and_sizes_are_those_of_the_network(table, data):
    options = {key: value for key, value in table.items() if key != "kind" and value is not None}
    classes = 100 if data == "cifar-100" else 10
    layout = Layout(NETWORKS[table["kind"]](SHAPES.get(data, (3, 32, 32)), classes, seed=1, **options))
    shapes = shapes_of(table, DataOptions(kind=data))
    sizes = dict(zip(layout.names, (shape.numel() for shape in layout.shapes), strict=True))
    assert list(shapes.parameters.items()) == list(sizes.items())[: layout.count]
    assert shapes.buffers == dict(list(sizes.items())[layout.count :])


def test_every_network_has_a_case_and_parity_has_two_classes():
    # Sizes of torchvision's networks are known only once torchvision has built them.
    assert shapes_of({"kind": "torchvision", "name": "resnet18"}, DataOptions(kind="cifar-10")) is None
    assert {table["kind"] for table, _ in CASES} == set(NETWORKS) - {"torchvision"}
    assert shapes_of({"kind": "svm"}, DataOptions(labels="parity")).parameters == {"layers.0.weight": 128, "layers.0.bias": 2}


def test_what_is_the_users_own_is_not_known():
    assert shapes_of({"kind": "mine:Net"}, DataOptions()) is None
    assert shapes_of({"kind": "linear"}, DataOptions(kind="mine:data")) is None
