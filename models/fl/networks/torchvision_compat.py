"""torchvision's data sets and networks with any build of torch.

torchvision registers fake kernels for its compiled operators when it is imported. If its compiled part does not match the
installed torch (a CPU-only torch, say), these operators are unknown and the import fails with "operator torchvision::nms does
not exist". None of them is used here, so declaring their schemas is enough.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
# A declaration ends with the library object that made it, so these are kept.
_declarations: list[torch.library.Library] = []


def _declare_operators() -> None:
    """Declare the schemas of the compiled operators that this torch does not know; those that it knows stay as they are."""
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + _SIGNATURE)
    _declarations.append(library)


def torchvision(part: str) -> ModuleType:
    """Return the module `torchvision.<part>` ("datasets", "models").

    Raises:
        ImportError: torchvision is not installed, or does not load for another reason.
    """
    name = f"torchvision.{part}"
    try:
        return importlib.import_module(name)
    except RuntimeError:
        # Only after a failed import, because a matching build declares its operators itself, and twice is an error.
        _declare_operators()
        return importlib.import_module(name)
