"""Continual release of a running sum: one object carries noise scale, ledger entry and streaming state.

The clock of a stream is decisions.  Each decision (or batch of decisions taken at once) closes the open leaf
and opens the next; a contribution is added to whatever leaf is open when it arrives, once.  Number and order
of releases are therefore the same in neighbouring worlds, whoever's reward is late or missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tacit._compile import as_entry, entry, inlined_kernel
from tacit._validate import positive, positive_or_inf
from tacit.errors import InvalidInput, TacitError
from tacit.linalg.packing import SQRT2
from tacit.linalg.vectors import round_to_grid
from tacit.privacy.events import PrivacyEvent
from tacit.privacy.factorization import BinaryTree, Factorization, make_factorization
from tacit.privacy.noise import NoiseSource
from tacit.privacy.streaming import (
    Mechanism,
    TreeNodes,
    drop_secrets,
    empty_mechanism,
    last_release,
    overwrite_release,
    release_leaf,
    release_without_noise,
    restart,
    variance_factor,
)
from tacit.typing import Count, FloatArray, Number, Secret, count, number

_EXACT_STEPS = 2.0**51
"""Of one epoch; what earlier, shorter ones carry over is no more than as much again."""


class StreamConstants(NamedTuple):
    """What stays as it is for the life of a stream: made from its plan, not saved."""

    grid: float
    """Spacing of the values that exact noise takes; 0 for ordinary floating point."""


class Stream(NamedTuple):
    """Streaming state of a continual release, as arrays that compiled kernels update in place.

    Raw sums and noise are as secret as the data.  All other fields depend on the clock and on releases only.
    """

    closed: Count
    """Leaves closed in this epoch."""
    leaves: Count
    """Leaves that this epoch has."""
    noise_sd: Number
    """Standard deviation of the noise that this epoch draws."""
    carried_variance: Number
    """Variance of each entry of ``released`` that earlier epochs brought."""
    leaf: Secret[FloatArray]
    """Contributions to the open leaf."""
    released: FloatArray
    """The newest public prefix sum, noise included, over all epochs."""
    mechanism: Mechanism
    """What the factorization keeps."""
    constants: StreamConstants


@inlined_kernel
def close_leaf(stream: Stream, noise: FloatArray) -> bool:
    """Close the open leaf and release the prefix sum; ``noise`` has standard deviation ``stream.noise_sd``.

    Returns False, and releases nothing, when the epoch's leaves are used up.
    """
    fresh = stream.closed[()] < stream.leaves[()]
    if fresh:
        stream.closed[()] += 1
        release_leaf(stream.mechanism, stream.closed, stream.leaf, noise, stream.released)
    for i in range(stream.leaf.shape[0]):
        stream.leaf[i] = 0.0
    return bool(fresh)


close_leaf_from_python = as_entry(close_leaf)


def published(stream: Stream) -> FloatArray:
    """What the last leaf made public, and all that `replay_leaf` needs: the tree's newest node, or the prefix sum."""
    if stream.closed[()] == 0:
        raise InvalidInput("no leaf of this epoch was closed yet: there is nothing that it published")
    return last_release(stream.mechanism, int(stream.closed[()]), stream.released)


def exact_release(stream: Stream) -> FloatArray:
    """What closing the open leaf would publish without noise: a raw sum, as secret as the data."""
    return release_without_noise(stream.mechanism, int(stream.closed[()]) + 1, stream.leaf, stream.released)


def replay_leaf(stream: Stream, release: FloatArray) -> FloatArray:
    """Close the open leaf so that it publishes ``release``, taken from `published`; returns the noise that this takes.

    Going on from here is the same mechanism.  All public fields are equal to the bit.  Raw sums do not depend on noise.
    Noise buffers are those of the noise that was returned, which is what was drawn up to rounding: what later leaves
    take back is noise that was added before, as always.  Under exact noise nothing is rounded at all.
    """
    values = np.asarray(release, dtype=np.float64)
    if values.shape != stream.leaf.shape or not np.all(np.isfinite(values)):
        raise InvalidInput(f"release must hold {stream.leaf.size} finite numbers, got shape {values.shape}")
    if stream.closed[()] >= stream.leaves[()]:
        raise InvalidInput(f"this epoch has released all of its {int(stream.leaves[()])} leaves: begin the next one")
    exact = exact_release(stream)
    noise = np.asarray(values - exact)
    grid = stream.constants.grid
    if grid > 0.0 and not (np.array_equal(exact + noise, values) and np.all(np.fmod(noise, grid) == 0.0)):
        raise InvalidInput(f"release must differ from the exact sum by multiples of {grid:g}, as exact noise does")
    close_leaf_from_python(stream, noise)
    if not _same_values(stream, published(stream), values):
        raise TacitError("closing a leaf published something else than its sum and its noise: a fault of the program")
    overwrite_release(stream.mechanism, int(stream.closed[()]), values, stream.released)
    return noise


def _same_values(stream: Stream, first: FloatArray, second: FloatArray) -> bool:
    """Under exact noise to the bit, else up to rounding."""
    if stream.constants.grid > 0.0:
        return bool(np.array_equal(first, second))
    return bool(np.allclose(first, second, rtol=1e-9, atol=1e-6 * float(stream.noise_sd[()])))


def drop_raw(stream: Stream) -> None:
    """Empty every secret field; what was released stays."""
    stream.leaf[:] = 0.0
    drop_secrets(stream.mechanism)


@inlined_kernel
def contribute_vector(stream: Stream, offset: int, factor: float, x: FloatArray) -> None:
    """Add ``factor * x`` to the open leaf, rounded to the grid that exact noise lives on."""
    leaf, grid = stream.leaf, stream.constants.grid
    for i in range(x.shape[0]):
        leaf[offset + i] += round_to_grid(factor * x[i], grid)


@inlined_kernel
def contribute_outer(stream: Stream, offset: int, weight: float, x: FloatArray) -> None:
    """The same for ``weight * x x'``, in the isometric packing of `tacit.linalg.packing`."""
    leaf, grid, position = stream.leaf, stream.constants.grid, offset
    for i in range(x.shape[0]):
        leaf[position] += round_to_grid(weight * x[i] * x[i], grid)
        position += 1
        for j in range(i + 1, x.shape[0]):
            leaf[position] += round_to_grid(SQRT2 * weight * x[i] * x[j], grid)
            position += 1


@inlined_kernel
def released_variance(stream: Stream) -> float:
    """Variance of each entry of ``released``: public, since it depends on the clock only."""
    sd = stream.noise_sd[()]
    return float(stream.carried_variance[()] + variance_factor(stream.mechanism, stream.closed) * sd * sd)


@dataclass(frozen=True)
class ContinualRelease:
    """Plan of a continual release: noise scale and ledger entry made from the same parameters.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row is replaced; the contribution may change in value, move to another leaf,
    or vanish.  ``row_bound`` must bound the l2 change that this causes when C is the identity, ``row_norm`` the l2
    norm of a single contribution.  The sequence of all releases is then mu-GDP in that user with
    ``mu = row_bound * column_norm / noise_sd``, also when later rows are chosen from earlier
    releases, and when the leaf of a moved contribution is (docs/theory.md#adaptivity-with-moved-rows).
    """

    name: str
    size: int
    row_bound: float
    row_norm: float
    mu: float
    factorization: Factorization
    source: NoiseSource

    @property
    def noise_sd(self) -> float:
        """Standard deviation of each independent noise entry; 0 when mu is infinite."""
        return self.source.scale_for(self.row_bound, self.mu, size=self.size) * self.factorization.column_norm

    def event(self) -> PrivacyEvent:
        """The ledger entry: all releases of the stream together, charged once."""
        slack = self.source.rounding_slack(self.size)
        norm = self.factorization.column_norm
        return self.source.event(
            self.name,
            (self.row_bound + slack) * norm,
            self.noise_sd,
            size=0,
            draws=self.size * self.factorization.horizon,
            moving_sensitivity=(self.row_norm + 0.5 * slack) * norm,
            note=f"{self.factorization.name} over {self.factorization.horizon} leaves, row bound {self.row_bound:.6g}",
        )

    def open(self) -> Stream:
        """A fresh streaming state before its first leaf is closed."""
        stream = Stream(
            closed=count(),
            leaves=count(),
            noise_sd=number(),
            carried_variance=number(),
            leaf=np.zeros(self.size),
            released=np.zeros(self.size),
            mechanism=empty_mechanism(self.factorization, self.size),
            constants=StreamConstants(self.source.grid or 0.0),
        )
        start_epoch(stream, self)
        return stream


def plan_release(
    name: str,
    size: int,
    *,
    row_bound: float,
    row_norm: float,
    mu: float,
    factorization: str,
    horizon: int,
    source: NoiseSource,
) -> ContinualRelease:
    """Plan a release of ``size`` numbers over ``horizon`` leaves at ``mu``-GDP."""
    positive("row_bound", row_bound)
    positive("row_norm", row_norm)
    positive_or_inf("mu", mu)
    chosen = make_factorization(factorization, horizon)
    if source.grid is not None and not isinstance(chosen, BinaryTree):
        raise InvalidInput(
            f"exact noise lives on a grid, which the {factorization} factorization leaves: use factorization='tree'"
        )
    check_exact_sums(source.grid, horizon, row_norm)
    return ContinualRelease(name, size, row_bound, row_norm, mu, chosen, source)


def check_exact_sums(grid: float | None, rows: int, row_norm: float) -> None:
    """Refuse sums under exact noise that could leave the integers which floats hold exactly."""
    if grid is not None and rows * row_norm > _EXACT_STEPS * grid:
        raise InvalidInput(
            f"exact sums of {rows} rows of length up to {row_norm:g} could exceed 2^52 steps of {grid:g}, where floats "
            "stop being exact: use a shorter horizon or smaller rewards"
        )


def start_epoch(stream: Stream, plan: ContinualRelease) -> None:
    """Begin an epoch of ``plan``'s horizon; what was released so far is public and carries over.

    Contributions that wait in the open leaf stay there and are released by the new epoch.
    """
    chosen = plan.factorization
    by_tree = isinstance(stream.mechanism, TreeNodes)
    if isinstance(chosen, BinaryTree) != by_tree or plan.size != stream.leaf.size:
        raise InvalidInput(f"an epoch must have the factorization and the {stream.leaf.size} numbers of its stream")
    _begin_epoch(stream, chosen.horizon, plan.noise_sd, chosen.decay, chosen.weight)


@entry
def _begin_epoch(stream: Stream, leaves: int, noise_sd: float, decay: FloatArray, weight: FloatArray) -> None:
    """One compiled call: an interruption finds either the old epoch, which is over, or the new one."""
    stream.carried_variance[()] = released_variance(stream)
    restart(stream.mechanism, stream.released, decay, weight)
    stream.noise_sd[()] = noise_sd
    stream.closed[()] = 0
    stream.leaves[()] = leaves
