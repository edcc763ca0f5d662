"""What every link must satisfy, as checks of any object with the interface of `tacit.glm.links.Link`.

Bounds are compared with dense grids of scores and with finite differences, rewards with the moments of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tacit.glm.links import Link
from tacit.typing import FloatArray

THETA_BOUNDS = (0.5, 1.0, 2.0, 3.5, 6.0)
FAR_SCORES = np.array([-700.0, -300.0, -40.0, -37.5, -5.0, -1e-9, 0.0, 1e-9, 0.3, 5.0, 40.0, 300.0, 700.0])
SAMPLES = 40_000
STANDARD_ERRORS = 4.0
_EPS = float(np.finfo(np.float64).eps)


Checks = dict[str, Callable[[], None]]
"""Functions that raise when something is at fault, by their names."""


def failures(checks: Checks) -> dict[str, Exception]:
    """Run all checks and return what those that failed raised, by their names."""
    found: dict[str, Exception] = {}
    for name, check in checks.items():
        try:
            check()
        except Exception as error:  # code under test may raise anything
            found[name] = error
    return found


def require(checks: Checks) -> None:
    """Run all checks and raise one `AssertionError` that tells of every failure."""
    found = failures(checks)
    if found:
        lines = [f"{name}: {type(error).__name__}: {error}" for name, error in found.items()]
        raise AssertionError("\n".join(lines)) from next(iter(found.values()))


def _grid(theta_bound: float) -> FloatArray:
    """Scores over [-S, S], both ends included."""
    return np.linspace(-theta_bound, theta_bound, 20_001)


def _slopes(function: Callable[[npt.ArrayLike], FloatArray], scores: FloatArray, step: float) -> FloatArray:
    """Central differences: the average of the derivative between both ends, up to rounding."""
    above, below = scores + step, scores - step
    return np.asarray((function(above) - function(below)) / (above - below))


def check_far_scores(link: Link) -> None:
    """Finite up to abs(z) = 700, or somewhat less for a shifted link, with a mean that never falls."""
    scores = FAR_SCORES * (link.max_score / 700.0)
    for function in (link.mean, link.derivative, link.antiderivative):
        assert np.all(np.isfinite(function(scores))), f"{link.name}: {function.__name__} is not finite up to 700"
    assert np.all(link.derivative(scores) >= 0.0), f"{link.name}: the derivative is negative somewhere"
    assert np.all(np.diff(link.mean(scores)) >= 0.0), f"{link.name}: the mean falls somewhere"
    variances = link.variance_bound(scores, link.default_reward_bound)
    assert np.all(np.isfinite(variances) & (variances >= 0.0)), f"{link.name}: variance bound is not a variance"


def check_single_scores(link: Link) -> None:
    """Functions of one score agree with those of arrays, close to 0 and far from it."""
    scores = np.concatenate([FAR_SCORES * (link.max_score / 700.0), np.linspace(-6.0, 6.0, 241)])
    pairs = [
        (link.mean_at, link.mean),
        (link.derivative_at, link.derivative),
        (link.antiderivative_at, link.antiderivative),
    ]
    for single, many in pairs:
        found = [single(z) for z in scores.tolist()]
        np.testing.assert_allclose(
            found, many(scores), rtol=1e-12, atol=8.0 * _EPS,  # terms that cancel far in a tail
            err_msg=f"{link.name}: {single.__name__} is not {many.__name__}",
        )  # fmt: skip


def check_mean_increases(link: Link, theta_bound: float) -> None:
    """mu rises over [-S, S] and mu' is not negative there."""
    means = link.mean(_grid(theta_bound))
    rounding = 4.0 * _EPS * float(np.max(np.abs(means)))
    assert np.all(np.diff(means) >= -rounding), f"{link.name}: the mean falls within S = {theta_bound}"
    assert means[-1] > means[0], f"{link.name}: the mean is constant within S = {theta_bound}"
    assert np.all(link.derivative(_grid(theta_bound)) >= 0.0), f"{link.name}: the derivative is negative"


def check_derivative(link: Link, theta_bound: float) -> None:
    """mu' agrees with differences of mu."""
    z = _grid(theta_bound)
    stated = link.derivative(z)
    np.testing.assert_allclose(
        stated, _slopes(link.mean, z, 1e-5), rtol=1e-6, atol=1e-8 * float(np.max(stated)),
        err_msg=f"{link.name}: the derivative is not that of the mean",
    )  # fmt: skip


def check_antiderivative(link: Link, theta_bound: float) -> None:
    """Differences of the antiderivative agree with mu."""
    z = _grid(theta_bound)
    stated = link.mean(z)
    np.testing.assert_allclose(
        _slopes(link.antiderivative, z, 1e-5), stated, rtol=1e-6, atol=1e-8 * float(np.max(np.abs(stated))),
        err_msg=f"{link.name}: the antiderivative is not that of the mean",
    )  # fmt: skip


def check_inflections(link: Link, theta_bound: float) -> None:
    """mu' is monotone between the stated inflections: exact bounds are taken from them."""
    ends = [-theta_bound, *sorted(z for z in link.inflections if abs(z) < theta_bound), theta_bound]
    for low, high in pairwise(ends):
        slopes = link.derivative(np.linspace(low, high, 5_001))
        changes, rounding = np.diff(slopes), 4.0 * _EPS * float(np.max(slopes))
        monotone = bool(np.all(changes >= -rounding) or np.all(changes <= rounding))
        assert monotone, f"{link.name}: an inflection between {low} and {high} is not stated"


def check_derivative_bounds(link: Link, theta_bound: float) -> None:
    """The bounds of mu' contain it and are attained."""
    slopes = link.derivative(_grid(theta_bound))
    low, high = link.derivative_bounds(theta_bound)
    least, largest = float(np.min(slopes)), float(np.max(slopes))
    assert low <= least * (1.0 + 1e-12), f"{link.name}: mu' reaches {least}, below its bound {low}, S = {theta_bound}"
    assert high >= largest * (1.0 - 1e-12), f"{link.name}: mu' reaches {largest}, above {high}, S = {theta_bound}"
    assert low >= least * (1.0 - 1e-3), f"{link.name}: lower bound of mu' not attained, S = {theta_bound}"
    assert high <= largest * (1.0 + 1e-3), f"{link.name}: upper bound of mu' not attained, S = {theta_bound}"


def _largest_curvature(link: Link, theta_bound: float) -> tuple[float, float]:
    """The largest abs(mu'') by differences that stay within [-S, S], so that none exceeds it, and their rounding."""
    step = 1e-4
    inside = _grid(theta_bound - step)
    rounding = 8.0 * _EPS * float(np.max(link.derivative(inside))) / step
    return float(np.max(np.abs(_slopes(link.derivative, inside, step)))), rounding


def check_curvature_bound(link: Link, theta_bound: float) -> None:
    """abs(mu'') is never above its bound: the Lipschitz constant that sensitivities rest on."""
    found, rounding = _largest_curvature(link, theta_bound)
    bound = link.curvature_bound(theta_bound)
    assert found <= bound * (1.0 + 1e-6) + rounding, (
        f"{link.name}: abs(mu'') reaches {found:.6g}, above the curvature bound {bound:.6g}, S = {theta_bound}"
    )


def check_curvature_bound_is_near(link: Link) -> None:
    """Within a factor of 2 at the largest S: a bound far above the truth is paid for in noise."""
    found, rounding = _largest_curvature(link, THETA_BOUNDS[-1])
    bound = link.curvature_bound(THETA_BOUNDS[-1])
    assert bound <= 2.0 * found + rounding, f"{link.name}: curvature bound {bound:.6g} for abs(mu'') <= {found:.6g}"


def _reward_bounds(link: Link, theta_bound: float) -> set[float]:
    return {0.5, 1.0, link.default_reward_bound, link.simulated_reward_bound(theta_bound)}


def check_residual_bound(link: Link, theta_bound: float) -> None:
    """abs(mu - r) is never above its bound, which is attained or R itself."""
    means = link.mean(_grid(theta_bound))
    for reward_bound in _reward_bounds(link, theta_bound):
        worst = max(float(np.max(np.abs(means - reward))) for reward in (0.0, reward_bound))
        claimed = link.residual_bound(theta_bound, reward_bound)
        where = f"{link.name}, S = {theta_bound}, R = {reward_bound}"
        assert worst <= claimed * (1.0 + 1e-12), f"{where}: a residual of {worst}, above the bound {claimed}"
        loosest = reward_bound if link.supports(theta_bound, reward_bound) else 1.01 * worst
        assert claimed <= loosest, f"{where}: the bound {claimed} on residuals is not attained, they reach {worst}"


def check_pseudo_response_bound(link: Link, theta_bound: float) -> None:
    """abs(r - mu + mu' z) is never above its bound, which is attained."""
    z = _grid(theta_bound)
    shifts = link.derivative(z) * z - link.mean(z)
    for reward_bound in _reward_bounds(link, theta_bound):
        worst = max(float(np.max(np.abs(shifts + reward))) for reward in (0.0, reward_bound))
        claimed = link.pseudo_response_bound(theta_bound, reward_bound)
        where = f"{link.name}, S = {theta_bound}, R = {reward_bound}"
        assert worst <= claimed * (1.0 + 1e-9), f"{where}: a pseudo response of {worst}, above the bound {claimed}"
        assert claimed <= 1.01 * worst, f"{where}: the bound {claimed} on pseudo responses is not attained"


def check_simulated_reward_bound(link: Link, theta_bound: float) -> None:
    """Every mean that a simulation meets is that of a reward in [0, R]; arms of negative score may be flipped."""
    assert link.mean_range(theta_bound)[1] <= link.simulated_reward_bound(theta_bound), f"{link.name}: means above R"
    lowest = 0.0 if link.has_negative_means else -theta_bound
    assert float(link.mean(lowest)) >= 0.0, f"{link.name}: a mean is negative"


def _samples(link: Link, theta_bound: float) -> list[tuple[float, float, FloatArray]]:
    """Score, R and rewards there, where they are varied enough to have a standard error."""
    rng = np.random.default_rng(20_260)
    reward_bound = link.simulated_reward_bound(theta_bound)
    found = []
    for z in np.linspace(-theta_bound, theta_bound, 9):
        rewards = link.draw_rewards(link.mean(np.full(SAMPLES, z)), reward_bound, rng.random(SAMPLES))
        _, counts = np.unique(rewards, return_counts=True)
        if SAMPLES - np.max(counts) >= 100:
            found.append((float(z), reward_bound, rewards))
    assert found, f"{link.name}: rewards hardly vary at any score within S = {theta_bound}"
    return found


def check_sampled_mean(link: Link, theta_bound: float) -> None:
    """Sampled rewards lie in [0, R] and have the mean mu."""
    for z, reward_bound, rewards in _samples(link, theta_bound):
        where = f"{link.name}, z = {z}, R = {reward_bound}"
        assert 0.0 <= np.min(rewards) <= np.max(rewards) <= reward_bound, f"{where}: a reward is outside [0, R]"
        expected = float(np.clip(link.mean(z), 0.0, reward_bound))
        error = float(np.std(rewards)) / math.sqrt(SAMPLES)
        apart = abs(float(np.mean(rewards)) - expected) / error
        assert apart <= STANDARD_ERRORS, f"{where}: the sampled mean is {apart:.1f} standard errors from mu"


def check_variance_bound(link: Link, theta_bound: float) -> None:
    """The variance of sampled rewards is not above its bound."""
    for z, reward_bound, rewards in _samples(link, theta_bound):
        squares = (rewards - np.mean(rewards)) ** 2
        error = float(np.std(squares)) / math.sqrt(SAMPLES)
        bound = float(link.variance_bound(z, reward_bound))
        assert float(np.mean(squares)) <= bound + STANDARD_ERRORS * error, (
            f"{link.name}, z = {z}, R = {reward_bound}: sampled variance {np.mean(squares):.6g} above {bound:.6g}"
        )


BOUND_CHECKS: tuple[Callable[[Link, float], None], ...] = (
    check_mean_increases,
    check_derivative,
    check_antiderivative,
    check_inflections,
    check_derivative_bounds,
    check_curvature_bound,
    check_residual_bound,
    check_pseudo_response_bound,
    check_simulated_reward_bound,
    check_sampled_mean,
    check_variance_bound,
)
"""Checked for every S of ``THETA_BOUNDS``."""

LINK_CHECKS: tuple[Callable[[Link], None], ...] = (check_far_scores, check_single_scores, check_curvature_bound_is_near)
"""Checked once."""


def link_checks(link: Link) -> Checks:
    """List what a link must satisfy, one check for each requirement.

    Parameters
    ----------
    link : Link
        Any object of that interface; it need not be registered.

    Returns
    -------
    dict
        Functions without arguments, by their names, which raise `AssertionError` where the link is at fault.

    Examples
    --------
    >>> from tacit.glm.links import get_link
    >>> checks = link_checks(get_link("logistic"))
    >>> checks["check_far_scores"]()
    """
    found: Checks = {check.__name__: partial(check, link) for check in LINK_CHECKS}
    return found | {check.__name__: partial(_for_all_bounds, check, link) for check in BOUND_CHECKS}


def _for_all_bounds(check: Callable[[Link, float], None], link: Link) -> None:
    for theta_bound in THETA_BOUNDS:
        check(link, theta_bound)


def check_link(link: Link) -> None:
    """Check all that a link must satisfy: derivatives, bounds, rewards, for S from 0.5 to 6.

    Parameters
    ----------
    link : Link
        Any object of that interface; it need not be registered.

    Raises
    ------
    AssertionError
        When the link is at fault, with a line for each requirement that it does not satisfy.

    Examples
    --------
    >>> from tacit.glm.links import get_link
    >>> check_link(get_link("logistic"))
    """
    require(link_checks(link))
