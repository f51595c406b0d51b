from __future__ import annotations

import math
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from models.errors import ParameterError
from models.fl.build import build_network
from models.fl.networks.deep import cnn8, resnet18, torchvision_classifier
from models.fl.networks.kinds import check_fit, cnn
from models.fl.networks.norms import group_norm
from models.fl.networks.torchvision_compat import torchvision
from tests.helpers.fl_reference import flatten

COLOUR = (3, 32, 32)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_cnn8_has_eight_convolutions_and_one_dense_layer():
    network = cnn8(COLOUR, 10, seed=1)
    layers = list(network.modules())
    widths = [layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)]
    assert widths == [32, 32, 64, 64, 128, 128, 256, 256]
    assert all(layer.kernel_size == (3, 3) for layer in layers if isinstance(layer, nn.Conv2d))
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in layers) == 4
    # 9 weights a pair of channels, no bias before a normalisation of 2 numbers a channel; 256 x 2 x 2 features.
    pairs = 3 * 32 + 32 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256
    assert count(network) == 9 * pairs + 2 * 960 + 10 * (1024 + 1)
    assert count(cnn8(COLOUR, 10, seed=1, norm="none")) == 9 * pairs + 960 + 10 * (1024 + 1)


def test_resnet18_keeps_the_size_of_small_images():
    network = resnet18(COLOUR, 100, seed=1)
    # torchvision's 11,689,512 for 1000 classes, less the stem's 40 of 49 positions, less 900 classes of 513 numbers.
    assert count(network) == 11_689_512 - 40 * 3 * 64 - 900 * 513
    sizes = []
    network.layer4.register_forward_hook(lambda module, inputs, output: sizes.append(tuple(output.shape)))
    check_fit(network, COLOUR, 100)
    # Three strides of 2 are left: 32 -> 4, where torchvision's stem and pooling would leave 1.
    assert sizes == [(2, 512, 4, 4)]


PAUSE_CIFAR = {"channels": [32, 64, 128], "hidden": [128, 64, 32], "padding": 0}


def test_the_network_of_pauses_authors_has_its_170474_parameters():
    network = cnn(COLOUR, 10, seed=1, norm="batch", **PAUSE_CIFAR)
    assert count(network) == 170_474
    kinds = [type(layer).__name__ for layer in network.layers]
    block, hidden = ["Conv2d", "ReLU", "MaxPool2d", "BatchNorm2d"], ["Linear", "ReLU", "BatchNorm1d"]
    assert kinds == [*block * 3, "Flatten", *hidden * 3, "Linear"]
    dense = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in dense] == [(512, 128), (128, 64), (64, 32), (32, 10)]
    # Two running statistics a channel and a hidden feature, and the counter of batches of each of the six layers.
    assert sum(buffer.numel() for buffer in network.buffers()) == 2 * (32 + 64 + 128 + 128 + 64 + 32) + 6
    # Group normalisation has as many parameters and no statistics.
    group = cnn(COLOUR, 10, seed=1, norm="group", **PAUSE_CIFAR)
    assert count(group) == 170_474
    assert not list(group.buffers())
    assert sum(isinstance(layer, nn.GroupNorm) for layer in group.layers) == 6
    for layer in (*network.layers, *group.layers):
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm):
            assert (layer.weight == 1).all()
            assert (layer.bias == 0).all()
    check_fit(group, COLOUR, 10)


def test_one_hidden_layer_may_be_a_number():
    single, listed = (cnn((1, 8, 8), 10, seed=3, hidden=hidden) for hidden in (20, [20]))
    assert torch.equal(flatten(single), flatten(listed))
    assert count(cnn((1, 8, 8), 10, seed=3, channels=[4], hidden=[])) == 9 * 4 + 4 + 10 * (4 * 16 + 1)


def test_bad_convolutional_networks_are_refused():
    for options, message in (
        ({"padding": 2}, "network.padding = 2: must be 0 or 1"),
        ({"norm": "layer"}, "network.norm = 'layer': must be one of batch, group, none"),
        ({"hidden": [3, 0]}, "network.hidden = [3, 0]: every width must be >= 1"),
        # 8 -> 6 -> 3 -> 1, and no 3x3 convolution of that.
        ({"padding": 0, "channels": [4, 4, 4]}, "network.padding = 0: after 2 of 3 convolutions"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            cnn((1, 8, 8), 10, seed=0, **options)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_cnn8_fits_all_data(shape, norm):
    network = cnn8(shape, 10, seed=1, channels=[4] * 8, norm=norm)
    check_fit(network, shape, 10)
    scores = network.eval()(torch.randn(3, *shape, generator=torch.Generator().manual_seed(2)))
    assert scores.shape == (3, 10)
    assert scores.isfinite().all()
    assert not torch.equal(scores[0], scores[1])
    with pytest.raises(ValueError, match=r"returns scores of shape \(2, 10\) for 2 samples; the data have 11 classes"):
        check_fit(network, shape, 11)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_normalisation_is_what_was_asked_for_and_starts_as_the_identity(norm):
    for network in (resnet18((1, 8, 8), 10, seed=1, norm=norm), cnn8((1, 8, 8), 10, seed=1, norm=norm)):
        kinds = {"batch": nn.BatchNorm2d, "group": nn.GroupNorm}
        layers = [layer for layer in network.modules() if isinstance(layer, tuple(kinds.values()))]
        assert layers
        assert all(isinstance(layer, kinds[norm]) for layer in layers)
        for layer in layers:
            assert (layer.weight == 1).all()
            assert (layer.bias == 0).all()
            if norm == "batch":
                assert (layer.running_mean == 0).all()
                assert (layer.running_var == 1).all()
                assert layer.num_batches_tracked == 0
        assert (len(list(network.buffers())) > 0) == (norm == "batch")


def test_sixteen_channels_a_group():
    assert [group_norm(channels).num_groups for channels in (4, 16, 32, 48, 100, 512)] == [1, 1, 2, 3, 2, 32]


def test_first_parameters_come_from_the_seed_alone_and_have_hes_law():
    state = torch.get_rng_state()
    first, again, other = (flatten(cnn8((1, 8, 8), 10, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    network = resnet18((1, 8, 8), 10, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    weights = network.layer4[1].conv2.weight
    # 2.4 million normal variates of variance 2 / (9 x 512): relative error of the deviation 1/sqrt(4.7 million).
    assert weights.std().item() == pytest.approx(math.sqrt(2 / (9 * 512)), rel=5 / math.sqrt(4.7e6))
    kurtosis = ((weights / weights.std()) ** 4).mean().item()
    assert kurtosis == pytest.approx(3, abs=0.02)


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match=r"^network\.kind = 'resnet18': needs images \(C, H, W\) of at least 8x8"):
        resnet18((1, 4, 4), 10, seed=0)
    with pytest.raises(ValueError, match=r"^network\.kind = 'cnn8': needs images"):
        cnn8((64,), 10, seed=0)


def test_a_classifier_of_torchvision_is_made_by_its_name_and_seed():
    make = partial(build_network, {"kind": "torchvision", "name": "squeezenet1_1", "classes": 4}, COLOUR, 4)
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    assert one(torch.zeros(2, *COLOUR)).shape == (2, 4)
    first, *others = (torch.cat([p.flatten() for p in network.parameters()]) for network in (one, same, other))
    assert [bool((first == another).all()) for another in others] == [True, False]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("table", "shape", "told"),
    [
        ({"name": "resnet81"}, (3, 32, 32), "network.name = 'resnet81': is no classifier of torchvision; did you mean 'resnet"),
        ({"name": "xyz"}, (3, 32, 32), "network.name = 'xyz': is no classifier of torchvision; for instance alexnet, "),
        ({"name": "alexnet"}, (3, 32, 32), "does not fit input of shape (3, 32, 32)"),
        ({"name": "resnet18", "classes": 7}, (3, 32, 32), "network.classes = 7: the data have 10 classes; leave it out"),
        ({"name": "resnet18"}, (1, 28, 28), "network.kind = 'torchvision': needs images of 3 channels, the data are (1, 28, 28)"),
    ],
)
def test_a_classifier_that_torchvision_lacks_or_that_does_not_fit_is_refused(table, shape, told):
    with pytest.raises(ParameterError, match=re.escape(told)):
        build_network({"kind": "torchvision", **table}, shape, 10, seed=1)


class WithoutNumbers(TorchFunctionMode):
    """Makes parameters without memory; other tensors, by which a constructor computes, have numbers."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}) | ({"device": "meta"} if func is torch.empty else {}))


def check_shape_in_training(name: str) -> None:
    side = 299 if name == "inception_v3" else 224
    with WithoutNumbers():
        network = torchvision_classifier((3, side, side), 10, seed=1, name=name)
    scores = network.to("meta").train()(torch.zeros(2, 3, side, side, device="meta"))
    assert torch.is_tensor(scores), name
    assert scores.shape == (2, 10), name


@pytest.mark.parametrize("name", ["googlenet", "regnet_x_400mf", "squeezenet1_1"])
def test_a_classifier_of_torchvision_returns_one_score_a_class_in_training(name):
    check_shape_in_training(name)


@pytest.mark.slow
def test_every_classifier_of_torchvision_returns_one_score_a_class_in_training():
    models = torchvision("models")
    names = models.list_models(module=models)
    assert len(names) >= 80
    for name in names:
        check_shape_in_training(name)
