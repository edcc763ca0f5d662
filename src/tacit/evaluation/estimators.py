"""What choices would have earned, by a log in which arms were given by chance.

Line t of a log has the arm a_t that a user was given with probability p_t, and the reward r_t.  A policy would have
chosen c_t.  With weights w_t = 1{c_t = a_t} / p_t:

=================  ====================================================================================================
replay             mean of r_t over the lines that match (Li et al. 2011); where probabilities differ, a matching line
                   is kept with probability min p / p_t, so that every line is kept with the same probability
inverse            mean of w_t r_t (Horvitz and Thompson 1952)
self-normalised    sum of w_t r_t over sum of w_t (Swaminathan and Joachims 2015)
doubly robust      mean of q_t(c_t) + w_t (r_t - q_t(c_t)), q_t fitted on earlier lines (Dudik et al. 2011)
=================  ====================================================================================================

A policy that learns changes from line to line, and what is estimated is the value of *this run*: the mean over t of
what the policy as it was at line t earns of a new user.  Given the lines before, each term has that mean, so that its
deviations from it are a martingale, whose standard deviation the ``error`` of an estimate estimates
(docs/theory.md, "Replay of a log").
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from tacit.glm.likelihood import FitStatus, fit
from tacit.glm.links import get_link
from tacit.typing import BoolArray, FloatArray, IntArray

_FIRST_FIT: Final = 50
"""Lines before the first reward model; until then it predicts the mean so far."""
_GROWTH: Final = 1.25
"""Ratio of the numbers of lines from fit to fit."""
_RIDGE: Final = 0.1


class ValueEstimate(NamedTuple):
    """A mean reward, and the standard error that the sample of users gives it.

    Parameters
    ----------
    value : float
        The estimate.
    error : float
        Its standard error; infinite where there is too little to tell: fewer than two rewards, or all of them equal.

    Examples
    --------
    >>> from tacit.evaluation import ValueEstimate
    >>> ValueEstimate(0.31, 0.02).error
    0.02
    """

    value: float
    error: float


def mean_of(terms: FloatArray, rewards: FloatArray) -> ValueEstimate:
    """The mean of terms that are independent, or whose deviations are a martingale, made of these rewards."""
    if _tell_nothing(rewards):
        return ValueEstimate(float(terms.mean()) if terms.size else math.nan, math.inf)
    return ValueEstimate(float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(terms.size))


def _tell_nothing(rewards: FloatArray) -> bool:
    """Whether rewards say nothing of how far those of other users would be from them."""
    return rewards.size < 2 or bool(rewards.min() == rewards.max())


def self_normalised(weights: FloatArray, rewards: FloatArray) -> ValueEstimate:
    """Return the mean reward under weights, divided by their sum.

    Parameters
    ----------
    weights, rewards : array, shape (N,)
        One of each for every line; what has weight 0 does not count.

    Returns
    -------
    ValueEstimate
        The mean, and its standard error to first order.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluation import self_normalised
    >>> self_normalised(np.array([2.0, 0.0, 2.0, 2.0]), np.array([1.0, 1.0, 0.0, 1.0])).value.__round__(3)
    0.667
    """
    total = float(weights.sum())
    if _tell_nothing(rewards[weights != 0.0]):
        return ValueEstimate(float(weights @ rewards) / total if total else math.nan, math.inf)
    value = float(weights @ rewards) / total
    return ValueEstimate(value, float(np.linalg.norm(weights * (rewards - value))) / total)


def kept_lines(shares: FloatArray, coins: FloatArray) -> BoolArray:
    """Which lines are kept if they match: each with probability min p / p_t, by uniform ``coins``."""
    return np.asarray(coins * shares < shares.min())


def reward_model(
    rows: FloatArray, given: IntArray, rewards: FloatArray, chosen: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the rewards that earlier lines predict for the given and for the chosen arm of each line.

    The model is a logistic one in the features, of rewards in [0, 1], fitted anew whenever the number of lines has
    grown by a quarter.  A bad model makes the doubly robust estimate less precise, and never biased.

    Parameters
    ----------
    rows : array, shape (N, K, d)
        Features of all arms of each line.
    given, chosen : array of int, shape (N,)
        Two arms of each line.
    rewards : array, shape (N,)
        The reward of the given one, in [0, 1].

    Returns
    -------
    tuple of two arrays, shape (N,)
        Predictions for the given arms and for the chosen ones; the mean so far where a fit did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluation import reward_model
    >>> rows, arms = np.ones((3, 2, 1)), np.zeros(3, dtype=int)
    >>> reward_model(rows, arms, np.array([1.0, 0.0, 1.0]), arms)[0]
    array([0. , 1. , 0.5])
    """
    lines = np.arange(len(rewards))
    seen = rows[lines, given]
    return predicted(seen, rewards, seen), predicted(seen, rewards, rows[lines, chosen])


def predicted(seen: FloatArray, rewards: FloatArray, asked: FloatArray) -> FloatArray:
    """The rewards of the rows ``asked``, one for each line, by the rows and rewards of earlier lines."""
    link = get_link("logistic")
    found = np.concatenate([[0.0], np.cumsum(rewards)[:-1]]) / np.maximum(np.arange(len(rewards)), 1)
    theta, start = np.zeros(seen.shape[1]), _FIRST_FIT
    while start < len(rewards):
        end = max(start + 1, math.ceil(_GROWTH * start))
        model = fit(link, seen[:start], rewards[:start], ridge=_RIDGE, start=theta)
        if model.status is FitStatus.CONVERGED:
            theta = model.theta
            found[start:end] = link.mean(asked[start:end] @ theta)
        start = end
    return np.asarray(found)
