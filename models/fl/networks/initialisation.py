"""First parameters from a seed; torch's global generators are restored afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

Law = Literal["uniform", "he"]


@contextmanager
def seed_globally(seed: int, device: torch.device) -> Iterator[None]:
    """Return a context in which torch's global generators start from `seed`; their states are restored at its end."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        for place in devices:
            torch.cuda.set_rng_state(torch.Generator(place).manual_seed(seed).get_state(), place)
        yield


def from_seed(make: Callable[[], nn.Module], seed: int, *, convolutions: Law = "uniform") -> nn.Module:
    """Return the module that `make` returns, with the parameters of known layers drawn again from `seed`.

    Weights and biases of linear and convolutional layers are uniform in +-1/sqrt(fan-in), torch's own default. With
    `convolutions` "he" the weights of convolutions are normal of variance 2/fan-out and their biases 0 (He et al. 2015; as in
    torchvision's residual networks). Layers that normalise start as the identity, with running statistics 0 and 1. Parameters of
    other layers stay as their constructors drew them. Layers draw in the order of `modules()`, which must not change.
    """
    # The draws of the constructor are discarded. The meta device would avoid them, but filling its tensors imports SymPy, which
    # takes longer than the draws.
    with torch.random.fork_rng(devices=[]):
        module = make()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d) and convolutions == "he":
                fan_out = layer.weight[:, 0].numel()  # (out, in, height, width): the weights of one input channel
                layer.weight.normal_(0.0, math.sqrt(2 / fan_out), generator=generator)
                if layer.bias is not None:
                    layer.bias.zero_()
            elif isinstance(layer, nn.Linear | nn.Conv2d):
                bound = 1 / math.sqrt(layer.weight[0].numel())
                layer.weight.uniform_(-bound, bound, generator=generator)
                if layer.bias is not None:
                    layer.bias.uniform_(-bound, bound, generator=generator)
            elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm):
                layer.reset_parameters()
    return module
