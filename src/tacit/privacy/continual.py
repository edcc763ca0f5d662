"""Continual release of a running sum: one object carries noise scale, ledger entry and streaming state.

The clock of a stream is decisions.  Leaves close on a public schedule of it: the geometric one, or one with each
decision (or batch of decisions taken at once).  A contribution is added once, to the leaf that is open when it arrives.
Number and order of releases are therefore the same in neighbouring worlds, also when a reward is late or missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tacit._validate import nonnegative, positive, positive_or_inf
from tacit.errors import InvalidInput, TacitError
from tacit.linalg.packing import packed_outer_sums, rounded_to_grid
from tacit.privacy.discrete_gaussian import MAX_PARAMETER
from tacit.privacy.events import DiscreteGaussianRelease, PrivacyEvent
from tacit.privacy.factorization import BinaryTree, BufferedToeplitz, Factorization, Geometric, make_factorization
from tacit.privacy.geometric import GeometricConstants, GeometricLeaves, empty_leaves, longest_head_start
from tacit.privacy.noise import NoiseSource
from tacit.privacy.streaming import Mechanism, Published
from tacit.privacy.toeplitz import NoiseBuffers, empty_buffers
from tacit.privacy.tree import TreeNodes, empty_tree
from tacit.typing import Count, FloatArray, Scalar, Secret, count, scalar

_EXACT_STEPS = 2.0**51
"""Most grid steps of an exact sum of one epoch; earlier, shorter epochs carry over at most as many again."""
_ROUNDING = 1000.0
"""Rounding to the grid of geometric leaves adds one part in so many to the sensitivity at most."""
_MOST_LEAVES = 5_000
"""Leaves of an epoch of geometric leaves: its weights end below 2^62, which 4,014 leaves reach."""
_MECHANISMS: dict[type[Factorization], type] = {
    BinaryTree: TreeNodes,
    BufferedToeplitz: NoiseBuffers,
    Geometric: GeometricLeaves,
}
"""What each factorization keeps."""


class MechanismConstants(NamedTuple):
    """What stays as it is for the life of a stream: made from its plan, not saved."""

    grid: float
    """Spacing of the values that contributions are rounded to; 0 for ordinary floating point."""


class Stream(NamedTuple):
    """Streaming state of a continual release, as arrays that steps update in place.

    Raw sums and noise are as secret as the data.  All other fields depend on the clock and on releases only.
    `ContinualRelease.open` makes one.

    Parameters
    ----------
    closed, leaves, epochs : Count
        Leaves closed in this epoch, leaves that it has, and epochs begun.
    noise_sd : Scalar
        Standard deviation of the noise.
    leaf : ndarray, shape (size,)
        Contributions to the open leaf; secret.
    released : ndarray, shape (size,)
        Sum of all rows so far, as released.
    mechanism : Mechanism
        State of the factorization.
    constants : MechanismConstants
        What stays for the life of the stream.
    """

    closed: Count
    """Leaves closed in this epoch."""
    leaves: Count
    """Leaves that this epoch has."""
    epochs: Count
    """Epochs that were begun."""
    noise_sd: Scalar
    """Standard deviation of the noise that this epoch draws, where its weight is 1."""
    leaf: Secret[FloatArray]
    """Contributions to the open leaf."""
    released: FloatArray
    """The sum of all rows so far as releases tell it, over all epochs: the newest prefix sum, or an estimate of it."""
    mechanism: Mechanism
    """What the factorization keeps."""
    constants: MechanismConstants


def close_leaf(stream: Stream, noise: FloatArray, users: int) -> bool:
    """The tick before ``users`` decisions: close the open leaf if it is due, and count them.

    ``noise`` is of scale `leaf_noise_scale`; where no leaf is due it is not looked at.  Returns False, and releases
    nothing, when no leaf is due or the epoch's leaves are used up.
    """
    mechanism, fresh = stream.mechanism, False
    if mechanism.is_due:
        if noise.shape[0] != stream.leaf.shape[0]:
            raise ValueError("a leaf is due, and no noise was drawn for it")  # closed now, it would show raw sums
        fresh = stream.closed.item() < stream.leaves.item()
        leaf = stream.leaf.copy()
        stream.leaf[:] = 0.0  # first: an interruption loses rows, and never has them released twice
        if fresh:
            mechanism.release(stream.closed, leaf, noise, stream.noise_sd.item(), stream.released)
    mechanism.count_decisions(users)
    return fresh


def published(stream: Stream) -> Published:
    """What the last leaf made public, and all that `replay_leaf` needs: a node, a weighted sum, or the prefix sum."""
    if stream.closed[()] == 0:
        raise InvalidInput("no leaf of this epoch was closed yet: there is nothing that it published")
    return stream.mechanism.newest_release(int(stream.closed[()]), stream.released)


def exact_release(stream: Stream) -> Published:
    """What closing the open leaf would publish without noise: a raw sum, as secret as the data."""
    return stream.mechanism.exact(int(stream.closed[()]) + 1, stream.leaf, stream.released)


def replay_leaf(stream: Stream, release: Published, users: int) -> FloatArray:
    """`close_leaf`, so that it publishes ``release``, taken from `published`; returns the noise that this takes.

    Going on from here is the same mechanism.  All public fields are equal to the bit.  Raw sums do not depend on noise.
    Noise buffers are those of the noise that was returned, which is what was drawn up to rounding: what later leaves
    take back is noise that was added before, as always.  Whole numbers, and exact noise, are not rounded at all.
    """
    exact = exact_release(stream)
    values = np.asarray(release)
    if values.shape != exact.shape or values.dtype != exact.dtype or not np.all(np.isfinite(values)):
        raise InvalidInput(
            f"release must hold {exact.size} finite numbers of type {exact.dtype}, got {values.dtype} of shape "
            f"{values.shape}"
        )
    if is_used_up(stream):
        raise InvalidInput("this epoch has released all of its leaves: begin the next one")
    noise = np.asarray(values - exact, dtype=np.float64)
    grid = stream.constants.grid
    on_grid = np.array_equal(exact + noise, values) and np.all(np.fmod(noise, grid) == 0.0) if grid > 0.0 else True
    if exact.dtype == np.float64 and not on_grid:
        raise InvalidInput(f"release must differ from the exact sum by multiples of {grid:g}, as exact noise does")
    close_leaf(stream, noise, users)
    if not _same_values(stream, published(stream), values):
        raise TacitError("closing a leaf published something else than its sum and its noise: a fault of the program")
    stream.mechanism.overwrite(int(stream.closed[()]), values, stream.released)
    return noise


def _same_values(stream: Stream, first: Published, second: Published) -> bool:
    """Under exact noise to the bit, else up to rounding."""
    if stream.constants.grid > 0.0:
        return bool(np.array_equal(first, second))
    return bool(np.allclose(first, second, rtol=1e-9, atol=1e-6 * float(stream.noise_sd[()])))


def drop_raw(stream: Stream) -> None:
    """Empty every secret field; what was released stays."""
    stream.leaf[:] = 0.0
    stream.mechanism.drop_secrets()


def contribute(stream: Stream, start: int, values: FloatArray) -> None:
    """Add contributions of N users to the open leaf.

    Each number is rounded to the grid that exact noise lives on before it is summed, so that sums are whole steps and
    do not depend on their order.

    Parameters
    ----------
    stream : Stream
        Changed in place.
    start : int
        First of the m entries of the leaf that are added to.
    values : ndarray, shape (N, m)
        Contributions, one line per user.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import contribute, plan_release
    >>> from tacit.privacy import make_noise
    >>> plan = plan_release(
    ...     "sums", 3, row_bound=2.0, row_norm=1.0, mu=0.5, factorization="tree", horizon=8, source=make_noise("fast")
    ... )
    >>> stream = plan.open()
    >>> contribute(stream, 1, np.array([[0.5, 0.0], [0.25, 0.25]]))
    >>> stream.leaf.tolist()
    [0.0, 0.75, 0.25]
    """
    stream.leaf[start : start + values.shape[1]] += rounded_to_grid(values, stream.constants.grid).sum(axis=0)


def contribute_outer(
    stream: Stream, start: int, weights: FloatArray, rows: FloatArray, responses: FloatArray | None = None
) -> None:
    """Add ``weights[n] * x x'`` of N users' rows x, packed (`packed_outers`), and then ``responses[n] * x``.

    Each number is rounded to the grid before it is summed, which `contribute` explains.

    Parameters
    ----------
    stream : Stream
        Changed in place.
    start : int
        First of the d (d + 1) / 2 entries of the leaf that are added to; d more with ``responses``.
    weights : ndarray, shape (N,)
        Weight of each outer product.
    rows : ndarray, shape (N, d)
        The rows x.
    responses : ndarray, shape (N,), optional
        Factor of each row in the second sum; None for no second sum.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import contribute_outer, plan_release
    >>> from tacit.privacy import make_noise
    >>> plan = plan_release(
    ...     "sums", 5, row_bound=2.0, row_norm=1.5, mu=0.5, factorization="tree", horizon=8, source=make_noise("fast")
    ... )
    >>> stream = plan.open()
    >>> contribute_outer(stream, 0, np.array([1.0]), np.array([[0.0, 1.0]]), responses=np.array([0.5]))
    >>> stream.leaf.tolist()
    [0.0, 0.0, 1.0, 0.0, 0.5]
    """
    sums = packed_outer_sums(rows, weights, stream.constants.grid, responses)
    stream.leaf[start : start + sums.size] += sums


def released_variance(stream: Stream) -> float:
    """Return the variance that noise gives each entry of ``stream.released``; public, it depends on the clock only.

    Parameters
    ----------
    stream : Stream
        State of a continual release.

    Returns
    -------
    float
        Variance of one entry, in the squared unit of a contribution.

    Examples
    --------
    >>> from tacit.extend import plan_release, released_variance
    >>> from tacit.privacy import make_noise
    >>> plan = plan_release(
    ...     "sums", 3, row_bound=2.0, row_norm=1.0, mu=0.5, factorization="tree", horizon=8, source=make_noise("fast")
    ... )
    >>> released_variance(plan.open())
    0.0
    """
    return stream.mechanism.variance(stream.closed.item(), stream.noise_sd.item())


def unevenness(stream: Stream) -> float:
    """By how much rows' own variance counts for more in ``released`` than in a plain sum; 1 where it is one."""
    return stream.mechanism.unevenness


def leaf_noise_scale(stream: Stream) -> float:
    """Scale of the noise that closing the open leaf takes: a standard deviation, or a parameter in steps."""
    return stream.mechanism.noise_scale(stream.noise_sd.item())


def leaf_is_due(stream: Stream) -> bool:
    """Whether the next tick closes the open leaf."""
    return stream.mechanism.is_due


def counts_decisions(stream: Stream) -> bool:
    """Whether leaves close on a schedule of decisions, and noise is whole numbers; else every tick closes one."""
    return isinstance(stream.mechanism, GeometricLeaves)


def decisions_to_leaf(stream: Stream) -> int:
    """How many decisions may follow before a leaf is due: the open one, or the next where that is to be closed now."""
    leaves = stream.mechanism
    assert isinstance(leaves, GeometricLeaves)
    boundary = leaves.terms(stream.noise_sd.item())[1] if leaves.is_due else leaves.boundary.item()
    return boundary - leaves.decisions.item()


def is_used_up(stream: Stream) -> bool:
    """Whether the open leaf is for the next epoch to release: no leaves are left, or the integers could overflow."""
    if isinstance(stream.mechanism, GeometricLeaves):
        return stream.mechanism.is_full(stream.noise_sd.item())
    return bool(stream.closed[()] >= stream.leaves[()])


@dataclass(frozen=True)
class ContinualRelease:
    """Plan of a continual release: noise scale and ledger entry made from the same parameters.

    `plan_release` makes one.

    Parameters
    ----------
    name : str
        Name of the release in the report.
    size : int
        Number of entries of the sum.
    row_bound : float
        Bound on the l2 change of the contributions when one user's row is replaced, moved or left out.
    row_norm : float
        Bound on the l2 norm of a single contribution.
    mu : float
        Gaussian-DP parameter of all releases together; infinity allowed.
    factorization : Factorization
        How prefix sums are released.
    source : NoiseSource
        Source of the noise.
    grid : float
        Spacing of rounded contributions; 0 for none.
    waiting : int
        Rows of earlier epochs that may still come.
    fluctuation : float
        Assumed variance of a coordinate of a row.
    head_start : int, default 0
        Head start of geometric leaves.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row is replaced; the contribution may change in value, move to another leaf,
    or vanish.  ``row_bound`` must bound the l2 change that this causes when C is the identity, ``row_norm`` the l2
    norm of a single contribution.  The sequence of all releases is then mu-GDP in that user with
    ``mu = row_bound * column_norm / noise_sd``, also when later rows are chosen from earlier
    releases, and when the leaf of a moved contribution is (docs/theory.md#adaptivity-with-moved-rows).

    Examples
    --------
    >>> from tacit.extend import plan_release
    >>> from tacit.privacy import make_noise
    >>> plan = plan_release(
    ...     "sums", 3, row_bound=2.0, row_norm=1.0, mu=0.5, factorization="tree", horizon=8, source=make_noise("fast")
    ... )
    >>> plan.noise_sd, plan.event().mu, plan.open().leaf.shape
    (8.0, 0.5, (3,))
    """

    name: str
    size: int
    row_bound: float
    row_norm: float
    mu: float
    factorization: Factorization
    source: NoiseSource
    grid: float
    """Contributions are rounded to multiples of it; 0 for none."""
    waiting: int
    """How many rows of earlier epochs may still come."""
    fluctuation: float
    """Assumed variance of a coordinate of a row, for what is made of the releases."""
    head_start: int = 0
    """a: the weight of a geometric leaf is sqrt(n^2 + a^2) after n decisions."""

    def refined(
        self, *, steps: float = _ROUNDING, waiting: int = 0, fluctuation: float | None = None, head_start: float = 0.0
    ) -> ContinualRelease:
        """Return this plan with other settings; all but ``fluctuation`` are for geometric leaves only.

        Parameters
        ----------
        steps : float
            Least ratio of noise to rounding (`tacit.privacy.lattice.reserved_steps`).
        waiting : int
            How many rows may wait when an epoch ends.
        fluctuation : float, optional
            Variance of a coordinate around the mean row; unchanged by default.
        head_start : float
            A public number, rounded, and less where noise would leave its integers or is off.

        Returns
        -------
        ContinualRelease
            A new plan.
        """
        spread = self.fluctuation if fluctuation is None else positive("fluctuation", fluctuation)
        if not isinstance(self.factorization, Geometric):
            return replace(self, fluctuation=spread)
        finest = _ROUNDING if self.mu == math.inf else max(_ROUNDING, self.mu * steps)
        grid = _power_of_two(self.row_bound / finest / math.sqrt(self.size))
        if self.row_bound / self.mu > MAX_PARAMETER * grid / 4.0:
            raise InvalidInput(f"mu = {self.mu:g} is too small: its noise leaves the integers that floats hold exactly")
        most = 0 if self.mu == math.inf else longest_head_start(self.row_bound / self.mu / grid)
        ahead = round(min(nonnegative("head_start", head_start), float(most)))
        return replace(self, grid=grid, waiting=waiting, fluctuation=spread, head_start=ahead)

    @property
    def noise_sd(self) -> float:
        """Standard deviation of each independent noise entry, where its weight is 1; 0 when mu is infinite."""
        return (self.row_bound + self.rounding_slack) / self.mu * self.factorization.column_norm

    @property
    def rounding_slack(self) -> float:
        """What rounding adds to ``row_bound``: each of two rows moves by at most grid / 2 in every coordinate."""
        return math.sqrt(self.size) * self.grid

    def event(self) -> PrivacyEvent:
        """Make the ledger entry: all releases of the stream together, charged once.

        Returns
        -------
        PrivacyEvent
            The entry.
        """
        norm, chosen = self.factorization.column_norm, self.factorization
        geometric = isinstance(chosen, Geometric)
        # Noise of leaf k has the parameter sigma / b_k, and the sum of all b_k^2 is at most 1.
        draws = self.size * (_MOST_LEAVES if geometric else chosen.horizon)
        span = "any number of decisions" if geometric else f"{chosen.horizon} leaves"
        event = self.source.event(
            self.name,
            (self.row_bound + self.rounding_slack) * norm,
            self.noise_sd,
            size=0,
            draws=draws,
            moving_sensitivity=(self.row_norm + 0.5 * self.rounding_slack) * norm,
            note=f"{chosen.name} over {span}, row bound {self.row_bound:.6g}",
        )
        if geometric and isinstance(event, DiscreteGaussianRelease):
            return replace(event, grid=self.grid, weight=float(self.size))
        return event

    def open(self) -> Stream:
        """Make a fresh streaming state, before its first leaf is closed.

        Returns
        -------
        Stream
            A state of its own.
        """
        constants = GeometricConstants(self.grid, self._row_steps(), self.waiting, self.fluctuation, self.head_start)
        stream = Stream(
            closed=count(),
            leaves=count(),
            epochs=count(),
            noise_sd=scalar(),
            leaf=np.zeros(self.size),
            released=np.zeros(self.size),
            mechanism=self._empty_mechanism(constants),
            constants=MechanismConstants(self.grid),
        )
        start_epoch(stream, self)
        return stream

    def _empty_mechanism(self, constants: GeometricConstants) -> Mechanism:
        """What the factorization keeps before its first epoch."""
        if isinstance(self.factorization, BinaryTree):
            return empty_tree(self.size)
        if isinstance(self.factorization, Geometric):
            return empty_leaves(self.size, constants, self.row_norm)
        return empty_buffers(self.size, self.factorization.decay.size)

    def _row_steps(self) -> int:
        """The most steps of the grid that a row can have in one coordinate."""
        return math.ceil(self.row_norm / self.grid) + 1 if self.grid > 0.0 else 0


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
    """Plan a continual release of a running sum at ``mu``-GDP.

    Parameters
    ----------
    name : str
        Name of the release in the report.
    size : int
        Number of entries of the sum.
    row_bound : float
        Bound on the l2 change of the contributions when one user's row is replaced, moved or left out.
    row_norm : float
        Bound on the l2 norm of a single contribution.
    mu : float
        Gaussian-DP parameter of all releases together; infinity for no noise.
    factorization : {"geometric", "toeplitz", "tree"}
        How prefix sums are released; ``"toeplitz"`` cannot have exact noise.
    horizon : int
        Number of leaves; without effect on geometric leaves.
    source : NoiseSource
        Source of the noise.

    Returns
    -------
    ContinualRelease
        The plan: `ContinualRelease.event` is its ledger entry, `ContinualRelease.open` begins it.

    Raises
    ------
    InvalidInput
        When an argument is out of range, or the factorization cannot have this noise.

    Examples
    --------
    >>> from tacit.extend import plan_release
    >>> from tacit.privacy import make_noise
    >>> plan = plan_release(
    ...     "sums", 3, row_bound=2.0, row_norm=1.0, mu=0.5, factorization="tree", horizon=8, source=make_noise("fast")
    ... )
    >>> plan.noise_sd
    8.0
    """
    positive("row_bound", row_bound)
    positive("row_norm", row_norm)
    positive_or_inf("mu", mu)
    chosen = make_factorization(factorization, horizon)
    if isinstance(chosen, BufferedToeplitz) and source.grid is not None:
        raise InvalidInput(
            f"exact noise lives on a grid, which the {factorization} factorization leaves: use 'geometric' or 'tree'"
        )
    if not isinstance(chosen, Geometric):
        check_exact_sums(source.grid, horizon, row_norm)
    grid, spread = source.grid or 0.0, row_norm**2 / (2.0 * size)
    plan = ContinualRelease(name, size, row_bound, row_norm, mu, chosen, source, grid, waiting=0, fluctuation=spread)
    return plan.refined()


def _power_of_two(limit: float) -> float:
    """The largest power of two that is not above ``limit``."""
    return math.ldexp(0.5, math.frexp(limit)[1])


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
    kind = _MECHANISMS[type(chosen)]
    if not isinstance(stream.mechanism, kind) or plan.size != stream.leaf.size or plan.grid != stream.constants.grid:
        raise InvalidInput(f"an epoch must have the factorization, grid and {stream.leaf.size} numbers of its stream")
    leaves = _MOST_LEAVES if isinstance(chosen, Geometric) else chosen.horizon
    # Counted first, its leaves last: an interruption in between begins yet another epoch, under a charge of its own.
    stream.epochs[()] += 1
    stream.mechanism.restart(
        int(stream.closed[()]), float(stream.noise_sd[()]), stream.released, chosen.decay, chosen.weight
    )
    stream.noise_sd[()] = plan.noise_sd
    stream.leaves[()] = leaves
    stream.closed[()] = 0
