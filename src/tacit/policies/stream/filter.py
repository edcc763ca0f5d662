"""A Kalman filter over the increments of a buffered Toeplitz release: sums with less noise, for free.

What a stream releases at leaf i is y_i = x_i + n_i, the leaf plus noise that is correlated through buffers
N_j: n_i = z_i - sum_j weight_j N_j and N_j <- decay_j N_j + n_i, with z_i independent of variance sigma^2.  The
cumulative sum of y is the plain prefix.  But z is known in distribution and rows of one problem resemble each other, so
that the mean row h and the noise buffers can be estimated together.  Model x_i = h + e_i with Var e_i = v.  All
coordinates of the stream share the same scalar gains, so the estimate h_t = sum_i a_i x_i + noise weighs matrix and
score of a leaf alike: H theta = b stays a weighted regression whether or not rows are alike, and v only decides how
the weights a_i spread.

This is post-processing of public values with public gains.  Errors are tracked in two parts, that of the privacy noise
(``privacy``) and all of it (``total``), since the estimator needs to know both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.typing import FloatArray

MEAN = 0
"""The coordinate of the covariances that is h; the noise buffers follow."""
DIFFUSE = 100.0
"""Prior variance of a coordinate of the mean row, in units of its largest square: says nothing."""


class LeafFilter(NamedTuple):
    """State of the filter; coordinate 0 of the covariances is h, the others are the noise buffers."""

    mean: FloatArray
    """h: estimated contribution of one leaf, shape (size,)."""
    buffers: FloatArray
    """Estimated noise buffers, shape (buffers, size)."""
    last: FloatArray
    """Released prefix at the last step, shape (size,)."""
    total: FloatArray
    """Covariance of the whole error of (h, buffers)."""
    privacy: FloatArray
    """The part of it that privacy noise makes."""
    gain: FloatArray
    """Of the newest step; the next two are work space."""
    transition: FloatArray
    work: FloatArray
    fluctuation: float
    """v: assumed variance of one coordinate of a leaf around h, a constant."""


def make_filter(size: int, buffers: int, row_norm: float, fluctuation: float) -> LeafFilter:
    """A filter that knows nothing yet."""
    dim = buffers + 1
    total = np.zeros((dim, dim))
    total[0, 0] = DIFFUSE * row_norm**2
    return LeafFilter(
        mean=np.zeros(size),
        buffers=np.zeros((buffers, size)),
        last=np.zeros(size),
        total=total,
        privacy=np.zeros((dim, dim)),
        gain=np.zeros(dim),
        transition=np.zeros((dim, dim)),
        work=np.zeros((dim, dim)),
        fluctuation=fluctuation,
    )


@inlined_kernel
def filter_step(state: LeafFilter, released: FloatArray, decay: FloatArray, weight: FloatArray, sd: float) -> None:
    """Take in the newest release: one step of the predictor with noise that is common to state and observation."""
    _update_gain(state, decay, weight, sd * sd)
    gain, count = state.gain, decay.shape[0]
    for i in range(released.shape[0]):
        increment = released[i] - state.last[i]
        state.last[i] = released[i]
        expected = 0.0
        for j in range(count):
            expected -= weight[j] * state.buffers[j, i]
        innovation = increment - state.mean[i] - expected
        state.mean[i] += gain[0] * innovation
        for j in range(count):
            state.buffers[j, i] = decay[j] * state.buffers[j, i] + expected + gain[j + 1] * innovation


@inlined_kernel
def _update_gain(state: LeafFilter, decay: FloatArray, weight: FloatArray, variance: float) -> None:
    """Riccati recursion for s = (h, N): s' = F s + u z, y = c s + e + z, u = (0, 1, ..., 1), c = (1, -weight)."""
    total, gain, dim = state.total, state.gain, state.gain.shape[0]
    spread = variance + state.fluctuation
    for i in range(dim):
        gain[i] = total[i, 0]
        for j in range(1, dim):
            gain[i] -= total[i, j] * weight[j - 1]
    innovation = gain[0] + spread
    common = 0.0
    for j in range(1, dim):
        innovation -= weight[j - 1] * gain[j]
        common -= weight[j - 1] * gain[j]
    # gain = (F P c' + variance u) / innovation, with F = diag(1, decay) - u (0, weight).
    for j in range(1, dim):
        gain[j] = decay[j - 1] * gain[j] + common + variance
    for i in range(dim):
        gain[i] /= innovation
    _fill_transition(state, decay, weight)
    _propagate(total, state.transition, state.work)
    _propagate(state.privacy, state.transition, state.work)
    for i in range(dim):
        for j in range(dim):
            noise = variance * ((0.0 if i == 0 else 1.0) - gain[i]) * ((0.0 if j == 0 else 1.0) - gain[j])
            state.privacy[i, j] += noise
            total[i, j] += noise + state.fluctuation * gain[i] * gain[j]


@inlined_kernel
def _fill_transition(state: LeafFilter, decay: FloatArray, weight: FloatArray) -> None:
    """F - gain c: how an error passes to the next step."""
    for i in range(state.gain.shape[0]):
        state.transition[i, 0] = (1.0 if i == 0 else 0.0) - state.gain[i]
        for j in range(1, state.gain.shape[0]):
            value = state.gain[i] * weight[j - 1]
            if i > 0:
                value -= weight[j - 1]
            if i == j:
                value += decay[j - 1]
            state.transition[i, j] = value


@kernel
def _propagate(covariance: FloatArray, transition: FloatArray, work: FloatArray) -> None:
    """covariance <- transition covariance transition'."""
    dim = covariance.shape[0]
    for i in range(dim):
        for j in range(dim):
            value = 0.0
            for k in range(dim):
                value += transition[i, k] * covariance[k, j]
            work[i, j] = value
    for i in range(dim):
        for j in range(i + 1):
            value = 0.0
            for k in range(dim):
                value += work[i, k] * transition[j, k]
            covariance[i, j] = value
            covariance[j, i] = value


def restart_noise(state: LeafFilter) -> None:
    """A new epoch begins with empty noise buffers; what is known of the mean row stays known."""
    state.buffers[:] = 0.0
    for covariance in (state.total, state.privacy):
        covariance[1:, :] = 0.0
        covariance[:, 1:] = 0.0
