"""The buffered Toeplitz factorization: what it keeps from leaf to leaf, and how it releases the next one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.typing import FloatArray, Number, Secret, number


class NoiseBuffers(NamedTuple):
    """What the buffered Toeplitz factorization keeps: a line, or a number, for each buffer."""

    noise: Secret[FloatArray]
    """Noise of past leaves, part of which each further leaf takes back."""
    decay: FloatArray
    """Factor by which a buffer fades from leaf to leaf."""
    weight: FloatArray
    """How much of a buffer the next leaf takes back."""
    response: FloatArray
    """What a unit of noise in the epoch's first leaf has become: in each buffer, and at the end in the released sum."""
    variance_factor: Number
    """Variance of the released sum per unit of noise variance, of this epoch alone."""
    carried_variance: Number
    """Variance that earlier epochs brought."""


def empty_buffers(size: int, lines: int) -> NoiseBuffers:
    """Buffers for ``size`` numbers before their first epoch."""
    return NoiseBuffers(
        noise=np.zeros((lines, size)),
        decay=np.zeros(lines),
        weight=np.zeros(lines),
        response=np.zeros(lines + 1),
        variance_factor=number(),
        carried_variance=number(),
    )


def release_by_buffers(
    buffers: NoiseBuffers, closed: int, leaf: FloatArray, noise: FloatArray, sd: float, released: FloatArray
) -> None:
    """Noise C^-1 z by the buffers' recursion; the raw leaf is added and forgotten."""
    kept, decay, weight, response = buffers.noise, buffers.decay, buffers.weight, buffers.response
    lines = decay.shape[0]
    for i in range(leaf.shape[0]):
        step = noise[i]
        for j in range(lines):
            step -= weight[j] * kept[j, i]
        for j in range(lines):
            kept[j, i] = decay[j] * kept[j, i] + step
        released[i] += leaf[i] + step
    step = 1.0 if closed == 1 else 0.0
    for j in range(lines):
        step -= weight[j] * response[j]
    for j in range(lines):
        response[j] = decay[j] * response[j] + step
    released_noise = lines  # the entry behind those of the buffers
    response[released_noise] += step
    buffers.variance_factor[()] += float(response[released_noise] * response[released_noise])


@kernel
def buffer_variance(buffers: NoiseBuffers, closed: int, sd: float) -> float:
    """Variance of the released sum."""
    return float(buffers.carried_variance[()] + buffers.variance_factor[()] * sd * sd)


def restart_buffers(
    buffers: NoiseBuffers, closed: int, sd: float, released: FloatArray, decay: FloatArray, weight: FloatArray
) -> None:
    """Begin a new epoch with these coefficients; what was ``released`` stays."""
    buffers.carried_variance[()] = buffer_variance(buffers, closed, sd)
    lines = decay.shape[0]
    for j in range(lines):
        buffers.decay[j] = decay[j]
        buffers.weight[j] = weight[j]
        buffers.response[j] = 0.0
        for i in range(released.shape[0]):
            buffers.noise[j, i] = 0.0
    buffers.response[lines] = 0.0
    buffers.variance_factor[()] = 0.0
