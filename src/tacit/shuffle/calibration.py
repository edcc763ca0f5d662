"""Chooses g, b and p: the smallest message whose noise is near the central one, or the least noise of a message.

A coordinate costs ``range * g + b`` bits. Its noise has two parts, both in steps of Delta / g: the
binomial one, which privacy fixes at ``g D_2 / (Delta mu)`` for every message, and the users' rounding,
at most sqrt(n) / 2. So g decides how much rounding adds, b the least number of bits that can carry the
binomial part (at p = 1/2), and p is then lowered until the guarantee is just met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tacit._validate import integer_at_least, positive, probability
from tacit.errors import CalibrationError
from tacit.linalg.packing import packed_size
from tacit.privacy.gaussian import mu_from
from tacit.shuffle.domains import Domain, OuterProducts
from tacit.shuffle.guarantee import TAIL_SHARE, guarantee
from tacit.shuffle.messages import HEADER_BYTES, report_bytes
from tacit.shuffle.parameters import PROBABILITY_UNITS, SumProtocol, grid_levels

NOISE_RATIO: Final = 1.2
"""Standard deviation, rounding included, that is accepted over the central Gaussian's unless the caller says more."""

MAX_BITS: Final = 64
"""Bits per coordinate after which a larger message is not tried unless the caller says more."""

_HALF: Final = PROBABILITY_UNITS // 2


def calibrate(
    domain: Domain,
    users: int,
    epsilon: float,
    delta: float,
    *,
    label: str = "sum",
    noise_ratio: float = NOISE_RATIO,
    max_bits: int = MAX_BITS,
) -> SumProtocol:
    """Return parameters under which one sum over at least ``users`` reports is (epsilon, delta)-shuffle DP.

    The smallest message whose noise stays within ``noise_ratio`` of the central Gaussian's; when none of
    at most ``max_bits`` per coordinate does, the one of at most ``max_bits`` with the least noise.

    Parameters
    ----------
    domain : Domain
        What one user may contribute.
    users : int
        Smallest number of reports of a batch.
    epsilon, delta : float
        Privacy target of one user.
    label : str
        Names the sum; reports for another label are refused.
    noise_ratio : float
        Accepted standard deviation over the central Gaussian's.
    max_bits : int
        Most bits per coordinate.

    Returns
    -------
    SumProtocol
        The public parameters that randomizer, shuffler and analyzer share.

    Raises
    ------
    InvalidInput
        When an argument is out of range.
    CalibrationError
        When no message of at most ``max_bits`` per coordinate meets the target.

    Formal guarantee
    ----------------
    That of ``guarantee(protocol, TAIL_SHARE * delta)``, which is (epsilon, delta)-DP
    for one user's row replaced, with sensitivity ``domain.sensitivity`` (docs/theory.md#domination-theorem).

    Examples
    --------
    >>> from tacit.shuffle import OuterProducts, calibrate, report_bytes
    >>> protocol = calibrate(OuterProducts(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> protocol.bits_per_coordinate, report_bytes(protocol), round(protocol.noise_sd(users=1000), 1)
    (12, 32, 6.9)
    """
    positive("epsilon", epsilon)
    tail = TAIL_SHARE * probability("delta", delta)
    limits = MessageLimits(noise_ratio, max_bits)
    return calibrate_mu(domain, users, mu_from(epsilon, delta - tail), tail, limits).relabelled(label)


@dataclass(frozen=True)
class MessageLimits:
    """Limits of a calibration: accepted noise over the central Gaussian's, and bits per coordinate (`calibrate`)."""

    noise_ratio: float
    max_bits: int

    def __post_init__(self) -> None:
        positive("noise_ratio", self.noise_ratio)
        integer_at_least("max_bits", self.max_bits, 2)


def calibrate_mu(domain: Domain, users: int, mu: float, tail_delta: float, limits: MessageLimits) -> SumProtocol:
    """Parameters under which one sum is ``mu``-GDP up to a tail of ``tail_delta``, without a label.

    For plans of several sums, which divide the budget themselves; `calibrate` takes epsilon and delta.
    """
    integer_at_least("users", users, 1)
    return _calibrated(domain, users, positive("mu", mu), probability("tail_delta", tail_delta), limits)


@lru_cache(maxsize=1024)
def _calibrated(domain: Domain, users: int, mu: float, tail: float, limits: MessageLimits) -> SumProtocol:
    max_bits = limits.max_bits
    largest = _largest_grid(domain, users, mu, max_bits)
    target = limits.noise_ratio * domain.sensitivity / mu
    for grid in range(1, largest + 1):
        if _least_noise(domain, users, mu, grid) > target:
            continue
        fitted = _fit_noise(domain, users, mu, tail, grid, max_bits)
        if fitted is not None and fitted.noise_sd(users) <= target:
            return fitted
    for grid in range(largest, 0, -1):
        fitted = _fit_noise(domain, users, mu, tail, grid, max_bits)
        if fitted is not None:
            return fitted
    raise CalibrationError(
        f"no message of at most {max_bits} bits per coordinate reaches mu = {mu:.4g} with {users} users: "
        "admit more users, a larger max_bits or a larger epsilon"
    )


def _largest_grid(domain: Domain, users: int, mu: float, max_bits: int) -> int:
    """Largest g whose message can still fit: range * g + 4 (g D_2 / (Delta mu))^2 / n <= max_bits."""
    ranges = float((domain.upper - domain.lower).max()) / domain.bound
    curvature = 4.0 * (domain.sensitivity / (domain.bound * mu)) ** 2 / users
    return int(2.0 * max_bits / (ranges + math.sqrt(ranges**2 + 4.0 * curvature * max_bits)))


def _least_noise(domain: Domain, users: int, mu: float, grid: int) -> float:
    """Noise that no protocol with this grid can go below."""
    return math.hypot(domain.sensitivity / mu, 0.5 * math.sqrt(users) * domain.bound / grid)


def _fit_noise(domain: Domain, users: int, mu: float, tail: float, grid: int, max_bits: int) -> SumProtocol | None:
    """Fewest noise bits, then the smallest p, that meet ``mu``; None when they do not fit the message."""
    needed_variance = (grid * domain.sensitivity / (domain.bound * mu)) ** 2
    noise_bits = max(1, math.ceil(4.0 * needed_variance / users))
    room = max_bits - int(grid_levels(domain, grid).max())
    while noise_bits <= room:
        protocol = SumProtocol("", domain, grid, noise_bits, _HALF, users)
        if guarantee(protocol, tail).mu <= mu:
            return _lower_probability(protocol, mu, tail, needed_variance)
        noise_bits += max(1, noise_bits // 50)
    return None


def _lower_probability(protocol: SumProtocol, mu: float, tail: float, needed_variance: float) -> SumProtocol:
    """The smallest p that a bisection finds to meet ``mu``, between what the variance needs and 1/2."""
    variance = min(0.25, needed_variance / protocol.noise_trials(protocol.min_users))
    low = int(PROBABILITY_UNITS * 0.5 * (1.0 - math.sqrt(1.0 - 4.0 * variance)))
    high = protocol.noise_numerator
    while high - low > 1:
        middle = (low + high) // 2
        trial = replace(protocol, noise_numerator=middle)
        if guarantee(trial, tail).mu <= mu:
            high = middle
        else:
            low = middle
    return replace(protocol, noise_numerator=high)


def epsilon_at(protocol: SumProtocol, delta: float, honest: float = 1.0) -> float:
    """Return the epsilon of one sum at ``delta`` when a share ``honest`` of its smallest batch brings noise.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.
    delta : float
        Strictly between 0 and 1.
    honest : float, default 1
        Share of honest users, in (0, 1].

    Returns
    -------
    float
        Epsilon.

    Examples
    --------
    >>> from tacit.shuffle import Ball, calibrate, epsilon_at
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> epsilon_at(protocol, delta=1e-6) <= 1.0 < epsilon_at(protocol, delta=1e-6, honest=0.8)
    True
    """
    return guarantee(protocol, TAIL_SHARE * delta, honest).epsilon(delta)


def matrix_report(users: int, dim: int, epsilon: float, delta: float) -> dict[str, object]:
    """Return figures of one calibrated release of a ``dim`` x ``dim`` matrix, and those of the paper's constants.

    Standard deviations are in units of Delta and include the users' rounding. ``bits_per_coordinate`` is
    that of the widest coordinate; ``bytes_per_user`` is the whole report, header included.

    Parameters
    ----------
    users : int
        Number of reports.
    dim : int
        Lines of the matrix.
    epsilon, delta : float
        Privacy target of one user.

    Returns
    -------
    dict
        Figures by name; those of the paper's constants are in a dict under ``"paper"``.

    Examples
    --------
    >>> from tacit.shuffle import matrix_report
    >>> report = matrix_report(users=1000, dim=2, epsilon=1.0, delta=1e-6)
    >>> report["bytes_per_user"], report["paper"]["bytes_per_user"]
    (32, 104184334)
    """
    domain = OuterProducts(dim)
    protocol = calibrate(domain, users, epsilon, delta, label="matrix")
    central = domain.sensitivity / mu_from(epsilon, delta)
    ours: dict[str, object] = {
        "bits_per_coordinate": protocol.bits_per_coordinate,
        "bytes_per_user": report_bytes(protocol),
        "noise_sd": protocol.noise_sd(users),
        "central_gaussian_sd": central,
        "g": protocol.grid,
        "b": protocol.noise_bits,
        "p": protocol.noise_probability,
        "min_users": users,
        "epsilon_at_80_percent_honest": epsilon_at(protocol, delta, 0.8),
        "epsilon_at_50_percent_honest": epsilon_at(protocol, delta, 0.5),
    }
    return {**ours, "paper": _paper_report(users, dim, epsilon, delta, central)}


def _paper_report(users: int, dim: int, epsilon: float, delta: float, central: float) -> dict[str, object]:
    """Figures of `matrix_report` for the paper's constants, whose epsilon grows as 1 / sqrt(honest share)."""
    paper = paper_parameters(users, dim, epsilon, delta)
    return {
        "bits_per_coordinate": paper.bits_per_coordinate,
        "bytes_per_user": HEADER_BYTES + math.ceil(paper.bits_per_coordinate * packed_size(dim) / 8),
        "noise_sd": paper.noise_sd(users),
        "central_gaussian_sd": central,
        "g": paper.grid,
        "b": paper.noise_bits,
        "p": paper.noise_probability,
        "min_users": users,
        "epsilon_at_80_percent_honest": epsilon / math.sqrt(0.8),
        "epsilon_at_50_percent_honest": epsilon / math.sqrt(0.5),
    }


# The paper's own constants for vector sums and gradient descent, kept for comparison


@dataclass(frozen=True)
class PaperParameters:
    """Parameters g, b and p of the paper's vector summation (appendix "Shuffled Vector Summation Protocols").

    Parameters
    ----------
    grid : int
        g, steps per unit of Delta.
    noise_bits : int
        b, noise bits per coordinate and user.
    noise_probability : float
        p, probability that a noise bit is 1.

    Examples
    --------
    >>> from tacit.shuffle import PaperParameters
    >>> PaperParameters(grid=4, noise_bits=8, noise_probability=0.25).bits_per_coordinate
    16
    """

    grid: int
    noise_bits: int
    noise_probability: float

    @property
    def bits_per_coordinate(self) -> int:
        """2 g + b: after the shift by Delta an entry lies in [0, 2 Delta], which the paper's g + b leaves out."""
        return 2 * self.grid + self.noise_bits

    def noise_sd(self, users: int) -> float:
        """Compute the standard deviation of a released coordinate.

        Parameters
        ----------
        users : int
            Reports in the sum.

        Returns
        -------
        float
            Standard deviation in units of Delta, rounding at its worst included.
        """
        p = self.noise_probability
        return math.sqrt(users * self.noise_bits * p * (1.0 - p) + 0.25 * users) / self.grid


def paper_parameters(users: int, dim: int, epsilon: float, delta: float) -> PaperParameters:
    """Return the paper's parameters of vector summation for n users and dimension d.

    They are g = max(2 sqrt(n), d, 4), b = 24e4 g^2 log(4 (d^2 + 1) / delta)^2 / (epsilon^2 n) and p = 1/4.

    Parameters
    ----------
    users : int
        n.
    dim : int
        d.
    epsilon, delta : float
        Privacy target of one user.

    Returns
    -------
    PaperParameters
        g, b and p.

    Examples
    --------
    >>> from tacit.shuffle import paper_parameters
    >>> paper_parameters(users=10_000, dim=5, epsilon=1.0, delta=1e-6)
    PaperParameters(grid=200, noise_bits=327137244, noise_probability=0.25)
    """
    integer_at_least("users", users, 1)
    integer_at_least("dim", dim, 1)
    positive("epsilon", epsilon)
    probability("delta", delta)
    grid = math.ceil(max(2.0 * math.sqrt(users), dim, 4))
    logarithm = math.log(4.0 * (dim**2 + 1) / delta)
    noise_bits = math.ceil(24e4 * grid**2 * logarithm**2 / (epsilon**2 * users))
    return PaperParameters(grid, noise_bits, 0.25)


def paper_rounds(users: int, dim: int, epsilon: float, delta: float) -> int:
    """Return the paper's number of rounds of P_GD: epsilon^2 n^2 / (d log(n d / delta)^3), rounded up.

    Parameters
    ----------
    users : int
        n.
    dim : int
        d.
    epsilon, delta : float
        Privacy target of one user.

    Returns
    -------
    int
        Rounds, at least 1.

    Examples
    --------
    >>> from tacit.shuffle import paper_rounds
    >>> paper_rounds(users=10_000, dim=5, epsilon=1.0, delta=1e-6)
    1338
    """
    integer_at_least("users", users, 1)
    integer_at_least("dim", dim, 1)
    positive("epsilon", epsilon)
    logarithm = math.log(users * dim / probability("delta", delta))
    return max(1, math.ceil(epsilon**2 * users**2 / (dim * logarithm**3)))
