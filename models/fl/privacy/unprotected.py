"""Names of layers that may be released without protection. No torch here: scenarios are checked without it."""

from __future__ import annotations

from typing import Literal

Unprotected = Literal["batch-norm"]

BARE_STATISTICS = (
    "the running statistics of batch normalisation would be sent without protection; use batch_statistics = 'local', a network "
    "without them (network.norm = 'group'), or privacy.unprotected = 'batch-norm', which sends these layers bare and says so"
)
NO_SUCH_LAYERS = "the network has no batch normalisation; leave it out"
