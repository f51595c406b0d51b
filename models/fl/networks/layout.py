"""Layout of a network in one row of numbers: its parameters, then its floating-point buffers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from models.fl.networks.sub_models import moving_statistics, trained_tensors

BatchNorm: TypeAlias = nn.modules.batchnorm._BatchNorm


class Layout:
    """Columns of a row (d,) that holds a network.

    First `parameters` numbers in the order of `Module.parameters()`, then `buffers` further ones, the floating-point buffers
    (running statistics of batch normalisation). `count` tensors of `names` and `shapes` are parameters. `trained`: patterns of
    the names of trained parameters; None: all.

    Raises:
        ParameterError: a pattern names no parameter.
    """

    def __init__(self, network: nn.Module, trained: Sequence[str] | None = None) -> None:
        buffers = [(name, buffer) for name, buffer in network.named_buffers() if buffer.is_floating_point()]
        tensors = [*network.named_parameters(), *buffers]
        self.names = [name for name, _ in tensors]
        """Names of the tensors, parameters first."""
        self.shapes = [tensor.shape for _, tensor in tensors]
        self._sizes = [shape.numel() for shape in self.shapes]
        self.count = len(list(network.parameters()))
        self.parameters = sum(shape.numel() for shape in self.shapes[: self.count])
        self.buffers = sum(shape.numel() for shape in self.shapes[self.count :])
        names, buffer_names = self.names[: self.count], self.names[self.count :]
        self.trained = trained_tensors(names, trained)
        """Places of the trained tensors."""
        # Without patterns all statistics move, also those of layers without parameters.
        trained_names = None if trained is None else [names[place] for place in self.trained]
        moving = moving_statistics(buffer_names, trained_names)
        self.moves = self._mark({*self.trained, *(self.count + place for place in moving)})
        """(d,) True for columns that training may change: those of trained tensors, and of the running statistics of their
        layers.
        """
        self.all_move = bool(self.moves.all())
        """True if training may change all columns."""
        self.columns: slice | Tensor = slice(0, self.parameters)
        """Columns of the trained parameters; a slice if they are all parameters."""
        if len(self.trained) < self.count:
            self.columns = torch.nonzero(self.moves[: self.parameters]).flatten()
        self.normalisers = [layer for layer in network.modules() if isinstance(layer, BatchNorm)]
        """Layers of batch normalisation."""
        norm_layers = {path for path, layer in network.named_modules() if isinstance(layer, BatchNorm)}
        # The name of a tensor is the path of its layer, a point, and its name in the layer; without a point, the network itself.
        layer_of = [name.rpartition(".")[0] for name in self.names]
        self.batch_norm = self._mark({place for place, layer in enumerate(layer_of) if layer in norm_layers})
        """(d,) True for columns of these layers: weights, biases and running statistics."""

    def _mark(self, places: Collection[int]) -> Tensor:
        """Return True for columns of the tensors in these places; (d,)."""
        marks = [torch.full((shape.numel(),), place in places) for place, shape in enumerate(self.shapes)]
        return torch.cat(marks) if marks else torch.zeros(0, dtype=torch.bool)

    def row(self, network: nn.Module) -> Tensor:
        """Return the present numbers of `network`, float32 (d,)."""
        state = network.state_dict()
        return torch.cat([state[name].detach().flatten() for name in self.names]).to(torch.float32)

    def views(self, rows: Tensor) -> list[Tensor]:
        """Return the parameters and buffers in `rows` (n, d), each (n, *shape), without a copy."""
        count, parts = rows.shape[0], torch.split(rows, self._sizes, 1)
        return [part.view(count, *shape) for part, shape in zip(parts, self.shapes, strict=True)]
