"""The digits of scikit-learn, split over the nodes, and softmax regression in NumPy."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits

CLASSES, PIXELS, TEST = 10, 64, 360


@cache
def data():
    """Return images (n, 64) in [0, 1] and labels (n,), shuffled once and for all."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order] / 16.0, labels[order]


def test_set():
    """Return the images and labels that the server tests the model on."""
    images, labels = data()
    return images[:TEST], labels[:TEST]


def partition(node, nodes):
    """Return the images and labels of a node."""
    images, labels = data()
    return images[TEST + node :: nodes], labels[TEST + node :: nodes]


def initial():
    """Return the weights that training starts from."""
    return np.zeros((PIXELS, CLASSES)), np.zeros(CLASSES)


def probabilities(weights, images):
    """Return the probability of each class for each image."""
    scores = images @ weights[0] + weights[1]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def train(weights, images, labels, *, epochs, rate, batch=16):
    """Return the weights after some passes of stochastic gradient descent, and the mean loss."""
    matrix, bias = weights[0].copy(), weights[1].copy()
    losses = []
    for _ in range(epochs):
        order = np.random.permutation(len(labels))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            predicted = probabilities((matrix, bias), images[chosen])
            losses.append(-np.log(predicted[np.arange(len(chosen)), labels[chosen]] + 1e-12).mean())
            slope = predicted.copy()  # of the loss by the scores: less 1 at the label
            slope[np.arange(len(chosen)), labels[chosen]] -= 1.0
            matrix -= rate * images[chosen].T @ slope
            bias -= rate * slope.sum(axis=0)
    return (matrix, bias), float(np.mean(losses))


def test(weights, images, labels):
    """Return the share of images that are classified rightly."""
    return float((probabilities(weights, images).argmax(axis=1) == labels).mean())
