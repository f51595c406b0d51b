"""Hidden Markov chains of a few states: the pass of Baum et al. (1970) that fits of losses and of bandwidths share."""

from __future__ import annotations

import numpy as np

from scenarios.fit.durations import FloatArray


def forward_backward(emission: FloatArray, move: FloatArray, first: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return three results of the forward-backward pass over hidden Markov chains, one chain a client.

    They are the log-likelihood of all observations, the probabilities of the states (clients, times, k), and the expected numbers
    of moves (k, k) from state to state.

    Args:
        emission: (clients, times, k) likelihood of each observation in each state; 1 where there is none.
        move: (k, k) probabilities of the next state, a row for each state.
        first: (k,) probabilities of the first state.

    >>> sure = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> likelihood, states, moves = forward_backward(sure, np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([0.7, 0.3]))
    >>> round(float(np.exp(likelihood)), 6), moves.tolist()
    (0.14, [[0.0, 1.0], [0.0, 0.0]])
    """
    clients, times, states = emission.shape
    forward, scale = np.empty_like(emission), np.empty((clients, times))
    # Scale at each time, because products of thousands of likelihoods would underflow.
    for t in range(times):
        joint = (np.broadcast_to(first, (clients, states)) if t == 0 else forward[:, t - 1] @ move) * emission[:, t]
        scale[:, t] = joint.sum(axis=1)
        forward[:, t] = joint / scale[:, t, None]
    backward, moves = np.ones_like(emission), np.zeros((states, states))
    for t in range(times - 2, -1, -1):
        weighted = emission[:, t + 1] * backward[:, t + 1] / scale[:, t + 1, None]
        moves += move * (forward[:, t].T @ weighted)
        backward[:, t] = weighted @ move.T
    return float(np.log(scale).sum()), forward * backward, moves
