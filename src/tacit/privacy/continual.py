"""Continual release of a running sum: one object carries noise scale, ledger entry and streaming state.

The clock of a stream is decisions.  Each decision (or batch of decisions taken at once) closes the open leaf
and opens the next; a contribution is added to whatever leaf is open when it arrives, once.  Number and order
of releases are therefore the same in neighbouring worlds, whoever's reward is late or missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import positive, positive_or_inf
from tacit.errors import InvalidInput
from tacit.linalg.packing import SQRT2
from tacit.privacy.events import PrivacyEvent
from tacit.privacy.factorization import TREE, Factorization, make_factorization
from tacit.privacy.noise import NoiseSource
from tacit.typing import FloatArray, IntArray, Secret

MAX_TREE_LEVELS = 40
_EXACT_STEPS = 2.0**51
"""Of one epoch; what earlier, shorter ones carry over is no more than as much again."""


class Stream(NamedTuple):
    """Streaming state of a continual release, as arrays that compiled kernels update in place.

    ``leaf``, and for the tree ``nodes``, hold raw sums and are as secret as the data; everything in
    ``released`` is public.
    """

    clock: IntArray
    """Leaves closed in this epoch, leaves that the epoch has, code of the factorization."""
    leaf: Secret[FloatArray]
    """Contributions to the open leaf."""
    nodes: Secret[FloatArray]
    """Tree: exact sums of the nodes in use.  Toeplitz: noise buffers."""
    noisy: FloatArray
    """Tree: released values of the nodes in use.  Toeplitz: unused."""
    carried: FloatArray
    """What earlier epochs released."""
    released: FloatArray
    """The newest public prefix sum, noise included, over all epochs."""
    decay: FloatArray
    weight: FloatArray
    impulse: FloatArray
    """Noise buffers' response to a unit impulse, its sum, and the prefix variance per unit noise variance:
    of this epoch, then of all earlier ones."""
    scale: FloatArray
    """Standard deviation of the noise that this epoch draws, and the grid of exact noise (0: none)."""


@kernel
def close_leaf(stream: Stream, noise: FloatArray) -> bool:
    """Close the open leaf and release the prefix sum; ``noise`` is drawn with ``stream.scale``.

    Returns False, and releases nothing, when the epoch's leaves are used up.
    """
    clock = stream.clock
    if clock[0] >= clock[1]:
        for i in range(stream.leaf.shape[0]):
            stream.leaf[i] = 0.0
        return False
    clock[0] += 1
    if clock[2] == TREE:
        _close_tree_leaf(stream, noise)
    else:
        _close_toeplitz_leaf(stream, noise)
    for i in range(stream.leaf.shape[0]):
        stream.leaf[i] = 0.0
    return True


@kernel
def _close_tree_leaf(stream: Stream, noise: FloatArray) -> None:
    """Binary counter of Chan et al. (2011): node of level i covers the last 2^i leaves."""
    leaves = stream.clock[0]
    level = 0
    while (leaves >> level) & 1 == 0:
        level += 1
    nodes, noisy = stream.nodes, stream.noisy
    for i in range(stream.leaf.shape[0]):
        total = stream.leaf[i]
        for below in range(level):
            total += nodes[below, i]
        nodes[level, i] = total
        noisy[level, i] = total + noise[i]
    used = 0
    for i in range(stream.leaf.shape[0]):
        stream.released[i] = stream.carried[i]
    for above in range(level, nodes.shape[0]):
        if (leaves >> above) & 1 == 1:
            used += 1
            for i in range(stream.leaf.shape[0]):
                stream.released[i] += noisy[above, i]
    stream.impulse[-2] = used


@kernel
def _close_toeplitz_leaf(stream: Stream, noise: FloatArray) -> None:
    """Noise C^-1 z by the buffers' recursion; the raw leaf is added and forgotten."""
    buffers, decay, weight, impulse = stream.nodes, stream.decay, stream.weight, stream.impulse
    count = decay.shape[0]
    for i in range(stream.leaf.shape[0]):
        step = noise[i]
        for j in range(count):
            step -= weight[j] * buffers[j, i]
        for j in range(count):
            buffers[j, i] = decay[j] * buffers[j, i] + step
        stream.released[i] += stream.leaf[i] + step
    step = 1.0 if stream.clock[0] == 1 else 0.0
    for j in range(count):
        step -= weight[j] * impulse[j]
    for j in range(count):
        impulse[j] = decay[j] * impulse[j] + step
    impulse[count] += step
    impulse[-2] += impulse[count] * impulse[count]


@kernel
def contribute(stream: Stream, position: int, value: float) -> None:
    """Add one coordinate of a user's row to the open leaf, rounded to the grid that exact noise lives on."""
    grid = stream.scale[1]
    if grid > 0.0:
        value = grid * np.rint(value / grid)
    stream.leaf[position] += value


@kernel
def contribute_vector(stream: Stream, offset: int, factor: float, x: FloatArray) -> None:
    """Add ``factor * x`` to the open leaf."""
    for i in range(x.shape[0]):
        contribute(stream, offset + i, factor * x[i])


@kernel
def contribute_outer(stream: Stream, offset: int, weight: float, x: FloatArray) -> None:
    """Add ``weight * x x'`` to the open leaf in the isometric packing of `tacit.linalg.packing`."""
    position = offset
    for i in range(x.shape[0]):
        contribute(stream, position, weight * x[i] * x[i])
        position += 1
        for j in range(i + 1, x.shape[0]):
            contribute(stream, position, SQRT2 * weight * x[i] * x[j])
            position += 1


@kernel
def released_variance(stream: Stream) -> float:
    """Variance of each entry of ``released``: public, since it depends on the clock only."""
    return float(stream.impulse[-1] + stream.impulse[-2] * stream.scale[0] * stream.scale[0])


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
        tree = self.factorization.code == TREE
        levels = MAX_TREE_LEVELS if tree else self.factorization.levels
        stream = Stream(
            clock=np.zeros(3, dtype=np.int64),
            leaf=np.zeros(self.size),
            nodes=np.zeros((levels, self.size)),
            noisy=np.zeros((levels if tree else 0, self.size)),
            carried=np.zeros(self.size),
            released=np.zeros(self.size),
            decay=self.factorization.decay.copy(),
            weight=self.factorization.weight.copy(),
            impulse=np.zeros(self.factorization.decay.size + 3),
            scale=np.zeros(2),
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
    if source.grid is not None and chosen.code != TREE:
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
    chosen, scale, variance = plan.factorization, (plan.noise_sd, plan.source.grid or 0.0), released_variance(stream)
    decay, weight = chosen.decay, chosen.weight
    stream.scale[:] = scale
    stream.carried[:] = stream.released
    stream.nodes[:] = 0.0
    stream.noisy[:] = 0.0
    stream.decay[:] = decay
    stream.weight[:] = weight
    stream.impulse[:-1] = 0.0
    stream.impulse[-1] = float(variance)
    stream.clock[:] = (0, chosen.horizon, chosen.code)  # last: until then the old epoch is over, and releases nothing
