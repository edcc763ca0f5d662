"""One interface to the three ways of releasing a running sum: binary tree, noise buffers, geometric leaves.

Kernels choose between them by the type of what is kept, when they are compiled: a state of the tree has no noise
buffers, and the other way round.  `release_leaf` brings ``released``, an estimate of the sum of all rows so far, up to
date; `released_variance` is the variance that privacy noise gives each of its entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._compile import inlined_kernel, resolved_by_type
from tacit.privacy import geometric, toeplitz, tree
from tacit.privacy.factorization import BinaryTree, BufferedToeplitz, Factorization, Geometric
from tacit.privacy.geometric import GeometricConstants, GeometricLeaves, PublicMean
from tacit.privacy.toeplitz import NoiseBuffers
from tacit.privacy.tree import TreeNodes, completed_level
from tacit.typing import Count, FloatArray, Number

Mechanism = TreeNodes | NoiseBuffers | GeometricLeaves
Published = npt.NDArray[Any]
"""Numbers that a leaf made public: floats, or whole numbers of steps."""


MECHANISMS: dict[type[Factorization], type[Mechanism]] = {
    BinaryTree: TreeNodes,
    BufferedToeplitz: NoiseBuffers,
    Geometric: GeometricLeaves,
}
"""What each factorization keeps."""


def empty_mechanism(
    factorization: Factorization, size: int, constants: GeometricConstants, row_norm: float
) -> Mechanism:
    """What ``factorization`` keeps of a stream of ``size`` numbers before its first epoch; `restart` comes next."""
    if isinstance(factorization, BinaryTree):
        return tree.empty_tree(size)
    if isinstance(factorization, Geometric):
        return geometric.empty_leaves(size, constants, row_norm)
    return toeplitz.empty_buffers(size, factorization.decay.size)


def _by_mechanism(
    for_tree: Callable[..., Any], for_buffers: Callable[..., Any], for_leaves: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that is one of three by the type of its first argument, inside of kernels too."""
    forms = {TreeNodes: for_tree, NoiseBuffers: for_buffers, GeometricLeaves: for_leaves}

    def chosen(mechanism: Mechanism, *arguments: Any) -> Any:
        return forms[type(mechanism)](mechanism, *arguments)

    def by_type(mechanism: Any, *arguments: Any) -> Callable[..., Any]:
        return forms[mechanism.instance_class]

    resolved_by_type(chosen, by_type)
    return chosen


def _every_tick(mechanism: Mechanism) -> bool:
    return True


def _counts_leaves(mechanism: Mechanism, users: int) -> None:
    return


def _even(mechanism: Mechanism) -> float:
    return 1.0


def _plain_mean(mechanism: Mechanism, closed: int, released: int, public: PublicMean, row: FloatArray) -> None:
    for i in range(row.shape[0]):
        public.mean[i] += (row[i] - public.mean[i]) / released


_due = _by_mechanism(_every_tick, _every_tick, geometric.is_due)
_count = _by_mechanism(_counts_leaves, _counts_leaves, geometric.count_decisions)
_release = _by_mechanism(tree.release_by_tree, toeplitz.release_by_buffers, geometric.release_by_weight)
_variance = _by_mechanism(tree.tree_variance, toeplitz.buffer_variance, geometric.geometric_variance)
_unevenness = _by_mechanism(_even, _even, geometric.unevenness)
_follow = _by_mechanism(_plain_mean, _plain_mean, geometric.follow_public)
_restart = _by_mechanism(tree.restart_tree, toeplitz.restart_buffers, geometric.restart_leaves)


@inlined_kernel
def is_due(mechanism: Mechanism) -> bool:
    """Whether the next tick closes the open leaf: every one does, or those of a schedule; a function of the clock."""
    return bool(_due(mechanism))


@inlined_kernel
def count_decisions(mechanism: Mechanism, users: int) -> None:
    """The clock goes on by as many decisions."""
    _count(mechanism, users)


@inlined_kernel
def release_leaf(
    mechanism: Mechanism, closed: Count, leaf: FloatArray, noise: FloatArray, sd: Number, released: FloatArray
) -> None:
    """Bring ``released`` up to date with ``leaf``, which is number ``closed`` of its epoch, and its noise."""
    _release(mechanism, closed[()], leaf, noise, sd[()], released)


@inlined_kernel
def released_variance(mechanism: Mechanism, closed: Count, sd: Number) -> float:
    """Variance of each entry of what is ``released`` after ``closed`` leaves: public, by the clock alone."""
    return float(_variance(mechanism, closed[()], sd[()]))


@inlined_kernel
def released_unevenness(mechanism: Mechanism) -> float:
    """By how much rows' own variance counts for more than in a plain sum, since some weigh more than others."""
    return float(_unevenness(mechanism))


@inlined_kernel
def follow_public(mechanism: Mechanism, closed: Count, released: int, public: PublicMean, row: FloatArray) -> None:
    """After release number ``released``: the mean of public rows, weighted as `release_leaf` weighs those of users."""
    _follow(mechanism, closed[()], released, public, row)


@inlined_kernel
def restart(
    mechanism: Mechanism, closed: Count, sd: Number, released: FloatArray, decay: FloatArray, weight: FloatArray
) -> None:
    """Begin a new epoch, of noise buffers with these coefficients; what was ``released`` is carried over."""
    _restart(mechanism, closed[()], sd[()], released, decay, weight)


def noise_scale(mechanism: Mechanism, sd: float) -> float:
    """Scale of the noise that closing the open leaf takes: ``sd``, or a parameter in steps for whole numbers."""
    return geometric.leaf_noise_steps(mechanism, sd) if isinstance(mechanism, GeometricLeaves) else sd


def release_without_noise(mechanism: Mechanism, closed: int, leaf: FloatArray, released: FloatArray) -> Published:
    """What `last_release` would be if ``leaf`` were number ``closed`` and had no noise of its own.

    Tree: the exact sum of the node that the leaf completes.  Noise buffers: the next prefix sum, with what it takes
    back of earlier noise.  Geometric leaves: the weighted sum.
    """
    if isinstance(mechanism, TreeNodes):
        return np.asarray(leaf + mechanism.sums[: completed_level(closed)].sum(axis=0))
    if isinstance(mechanism, GeometricLeaves):
        return geometric.weighted_sum(mechanism, leaf)
    return np.asarray(released + (leaf - mechanism.weight @ mechanism.noise))


def last_release(mechanism: Mechanism, closed: int, released: FloatArray) -> Published:
    """What leaf number ``closed``, the last one, made public: its node, the weighted sum, or the prefix sum."""
    if isinstance(mechanism, TreeNodes):
        return np.array(mechanism.noisy[completed_level(closed)])
    return mechanism.observed.copy() if isinstance(mechanism, GeometricLeaves) else released.copy()


def overwrite_release(mechanism: Mechanism, closed: int, published: Published, released: FloatArray) -> None:
    """Make ``published`` the `last_release`, to the bit, where rounding may have made a difference."""
    if isinstance(mechanism, TreeNodes):
        mechanism.noisy[completed_level(closed)] = published
        tree.add_up_nodes(mechanism, closed, released)
    elif isinstance(mechanism, NoiseBuffers):
        released[:] = published


def drop_secrets(mechanism: Mechanism) -> None:
    """Empty what is secret of it; decisions whose rows are lost with it are no longer counted on."""
    if isinstance(mechanism, TreeNodes):
        mechanism.sums[:] = 0.0
    elif isinstance(mechanism, GeometricLeaves):
        mechanism.weighted[:] = 0
        mechanism.open_rows[()] = 0
    else:
        mechanism.noise[:] = 0.0
