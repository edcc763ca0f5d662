"""The binary tree: what it keeps from leaf to leaf, and how it releases the next one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.typing import FloatArray, Number, Secret, number

MAX_TREE_LEVELS = 40


class TreeNodes(NamedTuple):
    """What the binary tree keeps: a line for each level, in use where the number of closed leaves has a binary 1."""

    sums: Secret[FloatArray]
    """Exact sums of the nodes in use."""
    noisy: FloatArray
    """The same as they were released, each with noise of its own."""
    carried: FloatArray
    """What earlier epochs released."""
    carried_variance: Number
    """Variance of each entry of ``carried``."""


def empty_tree(size: int) -> TreeNodes:
    """A tree for ``size`` numbers before its first epoch."""
    shape = (MAX_TREE_LEVELS, size)
    return TreeNodes(np.zeros(shape), np.zeros(shape), np.zeros(size), number())


def completed_level(closed: int) -> int:
    """Level of the node that leaf number ``closed`` completes: the place of its lowest binary 1."""
    return (closed & -closed).bit_length() - 1


@inlined_kernel
def add_up_nodes(tree: TreeNodes, closed: int, released: FloatArray) -> None:
    """The prefix sum: what earlier epochs released, and the nodes in use."""
    for i in range(released.shape[0]):
        released[i] = tree.carried[i]
    for level in range(tree.noisy.shape[0]):
        if (closed >> level) & 1 == 1:
            for i in range(released.shape[0]):
                released[i] += tree.noisy[level, i]


def release_by_tree(
    tree: TreeNodes, closed: int, leaf: FloatArray, noise: FloatArray, sd: float, released: FloatArray
) -> None:
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
    add_up_nodes(tree, closed, released)


@kernel
def tree_variance(tree: TreeNodes, closed: int, sd: float) -> float:
    """Variance of the released sum: of as many nodes as ``closed`` has ones in binary, and of what was carried over."""
    used = 0
    while closed > 0:
        used += closed & 1
        closed >>= 1
    return float(tree.carried_variance[()] + used * sd * sd)


def restart_tree(
    tree: TreeNodes, closed: int, sd: float, released: FloatArray, decay: FloatArray, weight: FloatArray
) -> None:
    """Begin a new epoch; what was ``released`` is carried over."""
    tree.carried_variance[()] = tree_variance(tree, closed, sd)
    for i in range(released.shape[0]):
        tree.carried[i] = released[i]
        for level in range(tree.sums.shape[0]):
            tree.sums[level, i] = 0.0
            tree.noisy[level, i] = 0.0
