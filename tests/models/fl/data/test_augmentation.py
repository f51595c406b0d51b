from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from models.fl.data.augmentation import PADDING, crop_flip, draw_moves
from tests.helpers.learners import deliver, make, make_data


def test_crops_and_flips_by_hand():
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3)
    middle = PADDING
    moves = torch.tensor([[middle, middle, 0], [middle, middle, 1], [middle + 1, middle, 0], [middle, middle - 2, 1], [0, 0, 0]])
    got = crop_flip(image.expand(5, -1, -1, -1), moves)[:, 0].tolist()
    assert got[0] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert got[1] == [[3, 2, 1], [6, 5, 4], [9, 8, 7]]
    # One row down: the first is cut off, zeros come in below. Two columns to the left, then mirrored.
    assert got[2] == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]
    assert got[3] == [[1, 0, 0], [4, 0, 0], [7, 0, 0]]
    assert got[4] == [[0, 0, 0]] * 3


def test_every_image_has_its_own_move():
    g = torch.Generator().manual_seed(0)
    images = torch.randn(6, 3, 5, 7, generator=g)
    moves = torch.from_numpy(draw_moves(np.random.default_rng(0), steps=1, batch_size=6)[0])
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    for got, wide, (row, column, flip) in zip(crop_flip(images, moves), padded, moves.tolist(), strict=True):
        cut = wide[:, row : row + 5, column : column + 7]
        assert torch.equal(got, cut.flip(2) if flip else cut)


def test_moves_are_uniform():
    moves = draw_moves(np.random.default_rng(1), steps=300, batch_size=30).reshape(-1, 3)
    assert moves.shape == (9000, 3)
    for column, kinds in zip(moves.T, (9, 9, 2), strict=True):
        counts = np.bincount(column, minlength=kinds)
        assert len(counts) == kinds
        assert stats.chisquare(counts).pvalue > 1e-3


def test_draws_belong_to_client_and_round():
    whole = make(augmentation="crop-flip").aggregate(deliver(4, [3, 0, 2], 0), True).updates
    for row, client in enumerate([3, 0, 2]):
        alone = make(augmentation="crop-flip")
        np.testing.assert_allclose(alone.aggregate(deliver(9, [client], 0, rounds=[4]), True).updates[0], whole[row], atol=1e-6)
    assert np.abs(make().aggregate(deliver(4, [3], 0), True).updates[0] - whole[0]).max() > 1e-3
    # Neither the data nor the order of batches change.
    assert torch.equal(make(augmentation="crop-flip")._trainer._x, make_data().train_x)
