"""What the two factorizations of the prefix sum keep from leaf to leaf, and how they release the next one.

Kernels choose between the two by the type of what is kept, when they are compiled: a state of the tree has no noise
buffers, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, resolved_by_type
from tacit.privacy.factorization import BinaryTree, Factorization
from tacit.typing import Count, FloatArray, Number, Secret, number

MAX_TREE_LEVELS = 40


class TreeNodes(NamedTuple):
    """What the binary tree keeps: a line for each level, in use where the number of closed leaves has a binary 1."""

    sums: Secret[FloatArray]
    """Exact sums of the nodes in use."""
    noisy: FloatArray
    """The same as they were released, each with noise of its own."""
    carried: FloatArray
    """What earlier epochs released."""


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


Mechanism = TreeNodes | NoiseBuffers


def empty_mechanism(factorization: Factorization, size: int) -> Mechanism:
    """What ``factorization`` keeps of a stream of ``size`` numbers before its first epoch; `restart` comes next."""
    if isinstance(factorization, BinaryTree):
        shape = (MAX_TREE_LEVELS, size)
        return TreeNodes(np.zeros(shape), np.zeros(shape), np.zeros(size))
    lines = factorization.decay.size
    return NoiseBuffers(
        noise=np.zeros((lines, size)),
        decay=np.zeros(lines),
        weight=np.zeros(lines),
        response=np.zeros(lines + 1),
        variance_factor=number(),
    )


@inlined_kernel
def release_leaf(
    mechanism: Mechanism, closed: Count, leaf: FloatArray, noise: FloatArray, released: FloatArray
) -> None:
    """Bring ``released`` up to date with ``leaf``, which is number ``closed`` of its epoch, and its noise."""
    _release(mechanism, closed[()], leaf, noise, released)


@inlined_kernel
def variance_factor(mechanism: Mechanism, closed: Count) -> float:
    """Variance of the released sum per unit of noise variance after ``closed`` leaves, of this epoch alone."""
    return float(_variance_factor(mechanism, closed[()]))


@inlined_kernel
def restart(mechanism: Mechanism, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
    """Begin a new epoch with these coefficients; what was ``released`` is carried over."""
    _restart(mechanism, released, decay, weight)


def buffer_count(mechanism: Mechanism) -> int:
    """How many noise buffers there are; the tree has none."""
    return 0 if isinstance(mechanism, TreeNodes) else mechanism.decay.size


def noisy_nodes(mechanism: Mechanism) -> FloatArray:
    """The released values of the tree's nodes, as they are kept; an empty array for noise buffers."""
    return mechanism.noisy if isinstance(mechanism, TreeNodes) else np.zeros((0, mechanism.noise.shape[1]))


def release_without_noise(mechanism: Mechanism, closed: int, leaf: FloatArray, released: FloatArray) -> FloatArray:
    """What `last_release` would be if ``leaf`` were number ``closed`` and had no noise of its own.

    Tree: the exact sum of the node that the leaf completes.  Noise buffers: the next prefix sum, with what it takes
    back of earlier noise.
    """
    if isinstance(mechanism, TreeNodes):
        return np.asarray(leaf + mechanism.sums[: _completed_level(closed)].sum(axis=0))
    return np.asarray(released + (leaf - mechanism.weight @ mechanism.noise))


def last_release(mechanism: Mechanism, closed: int, released: FloatArray) -> FloatArray:
    """What leaf number ``closed``, the last one, made public: its node for the tree, else the prefix sum."""
    if isinstance(mechanism, TreeNodes):
        return np.array(mechanism.noisy[_completed_level(closed)])
    return released.copy()


def overwrite_release(mechanism: Mechanism, closed: int, published: FloatArray, released: FloatArray) -> None:
    """Make ``published`` the `last_release`, to the bit."""
    if isinstance(mechanism, TreeNodes):
        mechanism.noisy[_completed_level(closed)] = published
        _add_up_nodes(mechanism, closed, released)
    else:
        released[:] = published


def drop_secrets(mechanism: Mechanism) -> None:
    """Empty what is secret of it."""
    secret = mechanism.sums if isinstance(mechanism, TreeNodes) else mechanism.noise
    secret[:] = 0.0


def _completed_level(closed: int) -> int:
    """Level of the node that leaf number ``closed`` completes: the place of its lowest binary 1."""
    return (closed & -closed).bit_length() - 1


def _by_mechanism(for_tree: Callable[..., Any], for_buffers: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is one of two by the type of its first argument, inside of kernels too."""

    def chosen(mechanism: Mechanism, *arguments: Any) -> Any:
        return (for_tree if isinstance(mechanism, TreeNodes) else for_buffers)(mechanism, *arguments)

    def by_type(mechanism: Any, *arguments: Any) -> Callable[..., Any]:
        return for_tree if mechanism.instance_class is TreeNodes else for_buffers

    resolved_by_type(chosen, by_type)
    return chosen


@inlined_kernel
def _add_up_nodes(tree: TreeNodes, closed: int, released: FloatArray) -> None:
    """The prefix sum: what earlier epochs released, and the nodes in use."""
    for i in range(released.shape[0]):
        released[i] = tree.carried[i]
    for level in range(tree.noisy.shape[0]):
        if (closed >> level) & 1 == 1:
            for i in range(released.shape[0]):
                released[i] += tree.noisy[level, i]


def _release_by_tree(tree: TreeNodes, closed: int, leaf: FloatArray, noise: FloatArray, released: FloatArray) -> None:
    """Binary counter of Chan et al. (2011): the node of level i covers the last 2^i leaves."""
    level = 0
    while (closed >> level) & 1 == 0:
        level += 1
    sums, noisy = tree.sums, tree.noisy
    for i in range(leaf.shape[0]):
        total = leaf[i]
        for below in range(level):
            total += sums[below, i]
        sums[level, i] = total
        noisy[level, i] = total + noise[i]
    _add_up_nodes(tree, closed, released)


def _release_by_buffers(
    buffers: NoiseBuffers, closed: int, leaf: FloatArray, noise: FloatArray, released: FloatArray
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


def _tree_variance(tree: TreeNodes, closed: int) -> float:
    """A prefix is the sum of as many nodes as ``closed`` has ones in binary."""
    used = 0
    while closed > 0:
        used += closed & 1
        closed >>= 1
    return float(used)


def _buffer_variance(buffers: NoiseBuffers, closed: int) -> float:
    return float(buffers.variance_factor[()])


def _restart_tree(tree: TreeNodes, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
    for i in range(released.shape[0]):
        tree.carried[i] = released[i]
        for level in range(tree.sums.shape[0]):
            tree.sums[level, i] = 0.0
            tree.noisy[level, i] = 0.0


def _restart_buffers(buffers: NoiseBuffers, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
    lines = decay.shape[0]
    for j in range(lines):
        buffers.decay[j] = decay[j]
        buffers.weight[j] = weight[j]
        buffers.response[j] = 0.0
        for i in range(released.shape[0]):
            buffers.noise[j, i] = 0.0
    buffers.response[lines] = 0.0
    buffers.variance_factor[()] = 0.0


def _no_coefficients(tree: TreeNodes) -> tuple[FloatArray, FloatArray]:
    return tree.carried[:0], tree.carried[:0]


def _buffer_coefficients(buffers: NoiseBuffers) -> tuple[FloatArray, FloatArray]:
    return buffers.decay, buffers.weight


_release = _by_mechanism(_release_by_tree, _release_by_buffers)
_variance_factor = _by_mechanism(_tree_variance, _buffer_variance)
_restart = _by_mechanism(_restart_tree, _restart_buffers)
coefficients = _by_mechanism(_no_coefficients, _buffer_coefficients)
"""Decay and weight of the noise buffers of a mechanism; empty for the tree, which has none.

No kernel of its own: Python is not handed arrays by kernels that count no references.
"""
