"""Optimistic ridge regression on noisy sums, for the private LinUCBs: post-processing of what was released."""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import kernel
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import cholesky, invert_cholesky, solve_cholesky
from tacit.linalg.vectors import copy_into
from tacit.policies.setting import Setting
from tacit.typing import FloatArray


def linear_constants(setting: Setting, scale: float, shift: float, ridge: float, failure: float) -> FloatArray:
    """What `solve_noisy` takes: scale, S, failure probability, ridge, shift, sub-Gaussian bound, radius of theta's
    ball."""
    # The best linear fit to means in [0, R] over the unit ball need not lie in the S-ball: allow for both.
    ball = max(setting.theta_bound, setting.reward_bound * setting.dim)
    return np.array([scale, setting.theta_bound, failure, ridge, shift, 0.5 * setting.reward_bound, ball])


@kernel
def solve_noisy(
    gram: FloatArray,
    moment: FloatArray,
    gram_sd: float,
    moment_sd: float,
    rounds: float,
    constants: FloatArray,
    theta: FloatArray,
    inverse: FloatArray,
) -> float:
    """Estimate and inverse from sums of x x' and r x with noise of these standard deviations; returns the radius.

    Shariff and Sheffet (arXiv 1810.00068), Proposition 4: with the noisy Gram matrix shifted to lie between low * I
    and high * I above the true one, the radius is deviation * sqrt(d log(1 + t / (d low)) + 2 log(2 / delta)) + S
    sqrt(high) + ||noise||_{low^-1}. Noise in isometric packing is a Gaussian orthogonal ensemble: operator norm sd *
    sqrt(2 d), and a Gaussian tail.
    """
    scale, theta_bound, failure, ridge, shift, deviation, ball = constants
    dim = theta.shape[0]
    tail = math.sqrt(2.0 * math.log(4.0 * (1.0 + rounds) / failure))
    gram_noise = gram_sd * (math.sqrt(2.0 * dim) + tail)
    moment_noise = moment_sd * (math.sqrt(dim) + tail)
    low = ridge + shift * gram_noise
    shifted, factor = gram.copy(), np.empty((dim, dim))
    step = low
    for i in range(dim):
        shifted[i, i] += step
    while not cholesky(shifted, factor):  # noise beyond the shift: double it, the sums are finite
        step = low
        low += step
        for i in range(dim):
            shifted[i, i] += step
    copy_into(moment, theta)
    solve_cholesky(factor, theta, theta)
    project_ball(theta, ball)
    invert_cholesky(factor, inverse)
    spread = dim * math.log(1.0 + rounds / (dim * low)) + 2.0 * math.log(2.0 / failure)
    bias = theta_bound * math.sqrt(low + gram_noise)
    return float(scale * (deviation * math.sqrt(spread) + bias + moment_noise / math.sqrt(low)))
