"""Losses of single samples, with their slopes in the scores."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Loss(Protocol):
    """A loss of scores (..., classes) and labels (...)."""

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Loss of each sample; shape (...)."""

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Derivative of each sample's loss in its scores; shape (..., classes), a new tensor."""


class CrossEntropy:
    """Minus the logarithm of the softmax probability of the label."""

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        return -torch.log_softmax(scores, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.softmax(scores, -1).scatter_add(-1, labels.unsqueeze(-1), -torch.ones_like(scores[..., :1]))


class Hinge:
    """One-against-rest hinge: sum over classes j of max(0, 1 - t_j s_j), t_j = 1 for the label's class and -1 for the others.

    Of the multi-class hinge losses this is the one that reproduces the linear SVM's accuracy on raw MNIST pixels.
    """

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.relu(1 - _signs(scores, labels) * scores).sum(-1)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        signs = _signs(scores, labels)
        return -signs * (signs * scores < 1)


class SquaredHinge:
    """One-against-rest squared hinge: sum over classes j of max(0, 1 - t_j s_j)^2, t_j = 1 for the label's class, else -1."""

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.relu(1 - _signs(scores, labels) * scores).square().sum(-1)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        signs = _signs(scores, labels)
        return -2 * signs * torch.relu(1 - signs * scores)


def _signs(scores: Tensor, labels: Tensor) -> Tensor:
    return 2 * functional.one_hot(labels, scores.shape[-1]).to(scores.dtype) - 1
