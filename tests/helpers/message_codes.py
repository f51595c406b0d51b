"""Encoders and decoders of compressed messages, bit by bit: what the stated sizes must equal."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Bits:
    """A string of bits, written whole number by whole number and read in the same order."""

    def __init__(self, data: bytes = b"") -> None:
        self.text = "".join(f"{byte:08b}" for byte in data)
        self.at = 0

    def write(self, value: int, width: int) -> None:
        assert 0 <= value < 2**width or (value == width == 0)
        self.text += f"{value:0{width}b}" if width else ""

    def read(self, width: int) -> int:
        self.at += width
        return int(self.text[self.at - width : self.at], 2) if width else 0

    def write_number(self, value: float) -> None:
        self.write(int(np.float32(value).view(np.uint32)), 32)

    def read_number(self) -> float:
        return float(np.uint32(self.read(32)).view(np.float32))

    def data(self) -> bytes:
        text = self.text + "0" * (-len(self.text) % 8)
        return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))


def width_of(symbols: int) -> int:
    """The least number of bits with so many different values."""
    width = 0
    while 2**width < symbols:
        width += 1
    return width


def sparse(sent: Tensor, kept: int, positions: str, seed: int = 0) -> bytes:
    """`kept` of the numbers `sent` (d,), all that are not 0 among them."""
    chosen = sorted(np.argsort(sent.numpy() == 0, kind="stable")[:kept].tolist())
    bits = Bits()
    if positions == "seed":
        bits.write(seed, 64)
        chosen = drawn(seed, len(sent), kept)
    elif positions == "bitmap":
        for i in range(len(sent)):
            bits.write(int(i in chosen), 1)
    else:
        for i in chosen:
            bits.write(i, width_of(len(sent)))
    for i in chosen:
        bits.write_number(float(sent[i]))
    return bits.data()


def read_sparse(data: bytes, numbers: int, kept: int, positions: str) -> Tensor:
    bits, out = Bits(data), torch.zeros(numbers)
    if positions == "seed":
        chosen = drawn(bits.read(64), numbers, kept)
    elif positions == "bitmap":
        chosen = [i for i in range(numbers) if bits.read(1)]
    else:
        chosen = [bits.read(width_of(numbers)) for _ in range(kept)]
    for i in chosen:
        out[i] = bits.read_number()
    return out


def drawn(seed: int, numbers: int, kept: int) -> list[int]:
    return sorted(np.random.default_rng(seed).choice(numbers, kept, replace=False, shuffle=False).tolist())


def qsgd(before: Tensor, sent: Tensor, levels: int, bucket: int) -> bytes:
    """What was `sent` of the vector `before`, whose norms it does not show."""
    bits = Bits()
    for values, after in zip(before.split(bucket), sent.split(bucket), strict=True):
        norm = float(values.double().norm().float())
        bits.write_number(norm)
        for value in after.tolist():
            bits.write((round(value / norm * levels) if norm else 0) + levels, width_of(2 * levels + 1))
    return bits.data()


def read_qsgd(data: bytes, numbers: int, levels: int, bucket: int) -> Tensor:
    bits, out = Bits(data), []
    while len(out) < numbers:
        norm = np.float32(bits.read_number())
        for _ in range(min(bucket, numbers - len(out))):
            level = bits.read(width_of(2 * levels + 1)) - levels
            out.append(np.float32(level) * (norm / np.float32(levels)))
    return torch.tensor(np.array(out))


def signs(sent: Tensor, scaled: bool) -> bytes:
    bits = Bits()
    if scaled:
        bits.write_number(float(sent.abs()[0]))
    for value in sent.tolist():
        bits.write(int(value > 0), 1)
    return bits.data()


def read_signs(data: bytes, numbers: int, scaled: bool) -> Tensor:
    bits = Bits(data)
    scale = bits.read_number() if scaled else 1.0
    return torch.tensor([scale if bits.read(1) else -scale for _ in range(numbers)])


def two_means(sent: Tensor, upper: Tensor) -> bytes:
    """`upper` (d,): which numbers arrive as the greater mean."""
    bits = Bits()
    for side in (upper, ~upper):
        bits.write_number(float(sent[side][0]) if side.any() else 0.0)
    for one in upper.tolist():
        bits.write(int(one), 1)
    return bits.data()


def read_two_means(data: bytes, numbers: int) -> Tensor:
    bits = Bits(data)
    above, below = bits.read_number(), bits.read_number()
    return torch.tensor([above if bits.read(1) else below for _ in range(numbers)])


def bytes_of_levels(before: Tensor, sent: Tensor, tensors: list[int]) -> bytes:
    bits = Bits()
    for values, after in zip(before.split(tensors), sent.split(tensors), strict=True):
        low = np.float32(values.min())
        step = np.float32(np.float32(values.max()) - low) / np.float32(255)
        bits.write_number(low)
        bits.write_number(step)
        for value in after.tolist():
            bits.write(round((value - low) / step) if step else 0, 8)
    return bits.data()


def read_levels(data: bytes, tensors: list[int]) -> Tensor:
    bits, out = Bits(data), []
    for numbers in tensors:
        low, step = np.float32(bits.read_number()), np.float32(bits.read_number())
        out += [low + np.float32(bits.read(8)) * step for _ in range(numbers)]
    return torch.tensor(np.array(out))
