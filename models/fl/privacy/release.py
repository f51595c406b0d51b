"""Released columns of an update, and those that a privacy mechanism protects."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError
from models.fl.networks.layout import Layout
from models.fl.privacy.mechanisms import Generators, Mechanism
from models.fl.privacy.unprotected import BARE_STATISTICS, NO_SUCH_LAYERS, Unprotected


class Release:
    """Columns of a row that are sent, and those of them that the mechanism bounds and noises.

    The columns that training may change are sent. Running statistics are means and variances of private inputs. If they are
    averaged, they are sent, and noise would leave no valid variance. So a mechanism that protects updates refuses them, unless
    `unprotected` names the layers of batch normalisation: their weights, biases and running statistics are then sent
    unprotected (as in the code of PAUSE's authors). `local`: running statistics stay with the clients.

    Raises:
        ParameterError: statistics that would be sent unprotected and are not named, or names that fit no layer.
    """

    def __init__(self, *, layout: Layout, mechanism: Mechanism, unprotected: Unprotected | None, local: bool) -> None:
        if unprotected not in (None, "batch-norm"):
            raise ParameterError("unprotected", unprotected, "must be 'batch-norm', or left out")
        width = layout.parameters
        # Masks (d,) of columns: those sent, and those of them that are sent unprotected on purpose.
        sent = layout.moves.clone()
        if local:
            sent[width:] = False
        exempt = layout.batch_norm & sent if unprotected else torch.zeros_like(sent)
        if mechanism.protects:
            if unprotected and not exempt.any():
                raise ParameterError("unprotected", unprotected, NO_SUCH_LAYERS)
            sends_bare_statistics = bool((sent[width:] & ~exempt[width:]).any())
            if sends_bare_statistics:
                raise ParameterError("batch_statistics", "averaged", BARE_STATISTICS)
        self.numbers = int(sent.sum())
        """Numbers in one update."""
        self.tensors = [layout.shapes[place].numel() for place in layout.trained]
        """Parameters among them, tensor by tensor; the others are running statistics."""
        self.unprotected = int(exempt.sum()) if mechanism.protects else self.numbers
        """Numbers that are sent unprotected."""
        self.guarantee = mechanism.guarantee
        """Guarantee of the mechanism for the other numbers in one participation, in words."""
        self._mechanism = mechanism
        self._columns = layout.columns
        """Columns that the mechanism protects; a slice where possible, which avoids a copy of the matrix."""
        if exempt.any():
            self._columns = torch.nonzero(sent[:width] & ~exempt[:width]).flatten()

    def protect(self, content: Tensor, epsilon: NDArray[np.float64], generators: Generators) -> None:
        """Bound and noise the updates `content` (n, d) in place, row k under budget epsilon[k]."""
        content[:, self._columns] = self._mechanism.protect(content[:, self._columns], epsilon, generators)
