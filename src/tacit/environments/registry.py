"""Environments, and their kinds by name: the package's own, and those of a researcher's module.

A kind is a function that takes a random generator and an `EnvironmentSetting` and yields blocks of rounds.  It draws
theta* itself and keeps it: policies see only the contexts and the reward of the arm they chose.  An `Environment` is a
kind in a setting: it checks what the kind yields, draws rewards, and computes regrets.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tacit._validate import integer_at_least, positive
from tacit.errors import InvalidInput
from tacit.features import Schema
from tacit.glm.links import Link, get_link
from tacit.glm.shifted import with_base_rate
from tacit.typing import FloatArray

_ROUNDING = 1e-9
"""By how much a mean may leave [0, R], as a share of R: sums of products are rounded."""

_BLOCK_NUMBERS = 1 << 17
"""Numbers in a block of contexts: the cache holds them."""


class Rounds(NamedTuple):
    """Consecutive rounds by their means: contexts (n, K, d) and the mean reward (n, K) of every arm.

    Parameters
    ----------
    contexts : array, shape (n, K, d)
        Arms of each round.
    means : array, shape (n, K)
        Mean reward of each arm.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import Rounds
    >>> Rounds(np.zeros((4, 2, 3)), np.full((4, 2), 0.5)).means.shape
    (4, 2)
    """

    contexts: FloatArray
    means: FloatArray


class Block(NamedTuple):
    """Consecutive rounds: contexts (n, K, d); rewards and regrets (n, K) of every arm, chosen or not.

    Parameters
    ----------
    contexts : array, shape (n, K, d)
        Arms of each round.
    rewards : array, shape (n, K)
        What each arm earns.
    regrets : array, shape (n, K)
        By how much its mean falls short of the best one.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import Block
    >>> Block(np.zeros((4, 2, 3)), np.ones((4, 2)), np.zeros((4, 2))).rewards.shape
    (4, 2)
    """

    contexts: FloatArray
    rewards: FloatArray
    regrets: FloatArray


@dataclass(frozen=True)
class EnvironmentSetting:
    """Public parameters of a simulated instance: link, dimension, arms, horizon, norm of theta*, reward bound.

    Parameters
    ----------
    link : Link
        Link of the rewards.
    dim, arms, horizon : int
        Features of an arm, arms of a round, and rounds.
    theta_norm : float
        Length of theta*.
    reward_bound : float, optional
        Bound on rewards; the link's default where it is not given.
    schema : Schema, optional
        Schema of users and arms.

    Examples
    --------
    >>> from tacit.environments import EnvironmentSetting
    >>> from tacit.glm.links import get_link
    >>> setting = EnvironmentSetting(get_link("logistic"), dim=3, arms=4, horizon=100, theta_norm=2.0)
    >>> setting.largest_reward, sum(setting.block_sizes())
    (1.0, 100)
    """

    link: Link
    """Link of the rewards: ``link.mean(scores)`` are means, ``link.draw_rewards`` draws."""
    dim: int
    """Features of an arm, d."""
    arms: int
    """Arms in each round, K."""
    horizon: int
    """Rounds, T."""
    theta_norm: float
    """Length of theta*, S."""
    reward_bound: float | None = field(default=None, kw_only=True)
    """R; None for the link's default (``largest_reward``)."""
    schema: Schema | None = field(default=None, kw_only=True)
    """Schema of users and arms, for environments that simulate one."""

    def __post_init__(self) -> None:
        integer_at_least("dim", self.dim, 1)
        integer_at_least("arms", self.arms, 1)
        integer_at_least("horizon", self.horizon, 1)
        positive("theta_norm", self.theta_norm)
        positive("reward_bound", self.largest_reward)

    @property
    def largest_reward(self) -> float:
        """R: the public bound on rewards, by default what the link suggests for parameters of this norm."""
        return self.link.simulated_reward_bound(self.theta_norm) if self.reward_bound is None else self.reward_bound

    def draw_theta(self, rng: np.random.Generator) -> FloatArray:
        """Draw theta*, uniform on the sphere of radius ``theta_norm``.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the direction.

        Returns
        -------
        ndarray
            theta*, shape (dim,).
        """
        direction = rng.standard_normal(self.dim)
        return self.theta_norm * direction / float(np.linalg.norm(direction))

    def block_sizes(self, arms: int | None = None) -> Iterator[int]:
        """Divide ``horizon`` rounds into blocks, each of as many as fit the cache.

        Parameters
        ----------
        arms : int, optional
            Arms in each round; those of the setting by default.

        Yields
        ------
        int
            The next block's rounds.
        """
        size = max(16, _BLOCK_NUMBERS // ((arms or self.arms) * self.dim))
        for start in range(0, self.horizon, size):
            yield min(size, self.horizon - start)

    def rounds(self, contexts: FloatArray, theta: FloatArray) -> Rounds:
        """Make rounds whose mean rewards are those of the link at the scores <x, theta>.

        Where the link's mean would be negative, as the identity's, arms of negative score change their sign, in place:
        rewards lie in [0, R].

        Parameters
        ----------
        contexts : ndarray, shape (n, K, d)
            Features of the arms of n rounds.
        theta : ndarray, shape (d,)
            The parameter.

        Returns
        -------
        Rounds
            The contexts with the mean reward of every arm.
        """
        means = scores(contexts, theta)
        if self.link.has_negative_means:
            np.negative(contexts, out=contexts, where=(means < 0.0)[:, :, np.newaxis])
            means = np.abs(means)
        return Rounds(contexts, self.link.mean(means))


def scores(contexts: FloatArray, theta: FloatArray) -> FloatArray:
    """<x, theta> for every arm of every round, shape (n, K).

    Summed feature by feature: rows and regrets of a seed are the same with every BLAS and however many threads it has.
    """
    total = np.zeros(contexts.shape[:2])
    for feature, weight in enumerate(theta.tolist()):
        total += contexts[:, :, feature] * weight
    return total


Generate = Callable[[np.random.Generator, EnvironmentSetting], Iterable[Rounds | Block | tuple[FloatArray, FloatArray]]]
Function = TypeVar("Function", bound=Callable[..., Iterable[Any]])


class EnvironmentKind(NamedTuple):
    """A named function that generates contexts and rewards; made by `register_environment`.

    Parameters
    ----------
    name : str
        What the environment is called.
    generate : callable
        The function of ``(rng, setting)`` that yields rounds.
    summary : str
        First line of its docstring.
    arms : callable, optional
        Number of arms by dimension.
    check : callable, optional
        Refuses settings that it has no rounds for.

    Examples
    --------
    >>> from tacit.environments import ENVIRONMENTS
    >>> ENVIRONMENTS["news"].arms(25)
    5
    """

    name: str
    generate: Generate
    summary: str
    arms: Callable[[int], int] | None = None
    """Number of arms by dimension, for a kind that does not take it from its setting."""
    check: Callable[[EnvironmentSetting], None] | None = None
    """Raises ``InvalidInput`` for a setting that the kind cannot be played in."""


_KINDS: dict[str, EnvironmentKind] = {}
ENVIRONMENTS: Mapping[str, EnvironmentKind] = MappingProxyType(_KINDS)
"""Every kind that is registered now; a view that follows `register_environment`."""


def register_environment(
    name: str, *, arms: Callable[[int], int] | None = None, check: Callable[[EnvironmentSetting], None] | None = None
) -> Callable[[Function], Function]:
    """Register a function as the environment called ``name``; a decorator.

    The function takes ``(rng, setting)`` and yields consecutive rounds, ``setting.horizon`` of them or more, as

    - ``contexts, means``: arrays of shape (n, K, d) and (n, K).  Rewards are then drawn from the link's distribution
      with these means, by one uniform number a round that all arms share, and the regret is the gap to the best mean;
    - ``setting.rounds(contexts, theta)``: contexts with the link's means for a parameter theta;
    - ``Block(contexts, rewards, regrets)``: where rewards and regrets are computed by the function itself.

    Rows of contexts have norm at most 1, means and rewards lie in [0, ``setting.largest_reward``].  A kind whose number
    of arms follows from the dimension says so by ``arms``; ``check`` raises for settings that it has no rounds for.

    Parameters
    ----------
    name : str
        What the environment is called, such as by ``tacit simulate --contexts``.
    arms : callable, optional
        Number of arms, from the dimension, where it is not free.
    check : callable, optional
        Raises for a setting that the environment has no rounds for.

    Returns
    -------
    callable
        The decorator, which gives the function back.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import make_environment, register_environment
    >>> @register_environment("axes")
    ... def axes(rng, setting):
    ...     theta = setting.draw_theta(rng)
    ...     for rounds in setting.block_sizes():
    ...         chosen = rng.integers(setting.dim, size=(rounds, setting.arms))
    ...         yield setting.rounds(np.eye(setting.dim)[chosen], theta)
    >>> world = make_environment(link="probit", dim=3, arms=4, horizon=10, theta_norm=1.0, contexts="axes")
    >>> [block.rewards.shape for block in world.blocks(np.random.default_rng(0))]
    [(10, 4)]
    """
    check_name("the name of an environment", name)

    def register(generate: Function) -> Function:
        if name in _KINDS:
            check_owner("the environment", name, _KINDS[name].generate, generate)
        summary = (inspect.getdoc(generate) or "").partition("\n")[0]
        _KINDS[name] = EnvironmentKind(name, generate, summary, arms, check)
        return generate

    return register


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be typed on the command line, where commas separate names."""
    if not isinstance(name, str) or not name or any(sign.isspace() or sign == "," for sign in name):
        raise InvalidInput(f"{what} must be a word without blanks and commas, got {name!r}")


def check_owner(what: str, name: str, known: Callable[..., object], other: Callable[..., object]) -> None:
    """Refuse to let a module take a name that another one has registered."""
    homes = _homes(known)
    if not set(homes) & set(_homes(other)):
        raise InvalidInput(f"{what} {name!r} is registered by {homes[0]} already: choose another name")


def _homes(function: Callable[..., object]) -> list[str]:
    """Module and file of a function.

    A module that is loaded again has the same name, and one that was started as a program and is then imported has the
    same file: both may register their environments a second time.
    """
    code = getattr(function, "__code__", None)
    homes = [function.__module__, code and os.path.abspath(code.co_filename)]
    return [home for home in homes if home]


def environment_kind(name: str) -> EnvironmentKind:
    """Return the kind of environment that has a name.

    Parameters
    ----------
    name : str
        Name of a kind of the package, or of one that was registered.

    Returns
    -------
    EnvironmentKind
        The kind.

    Raises
    ------
    InvalidInput
        When no kind has the name.

    Examples
    --------
    >>> from tacit.environments import environment_kind
    >>> environment_kind("ball").name
    'ball'
    """
    if name not in _KINDS:
        raise InvalidInput(
            f"contexts must be one of {', '.join(_KINDS)}, not {name!r}; for one of your own, name the module that "
            "registers it (--module)"
        )
    return _KINDS[name]


def arms_of(name: str, dim: int, arms: int) -> int:
    """Return how many arms a round of an environment has.

    Parameters
    ----------
    name : str
        Name of the kind of environment.
    dim : int
        Features of an arm.
    arms : int
        Arms to use where the kind leaves their number free.

    Returns
    -------
    int
        Arms of a round.

    Examples
    --------
    >>> from tacit.environments import arms_of
    >>> arms_of("ball", dim=25, arms=10), arms_of("news", dim=25, arms=10)
    (10, 5)
    """
    own = environment_kind(name).arms
    return arms if own is None else own(dim)


@dataclass(frozen=True)
class Environment:
    """A distribution over instances; ``blocks`` draws one and plays it round by round.

    Rewards are drawn with one uniform number for each round, shared by all arms, so that two policies that
    choose the same arm in the same round of the same run see the same reward.

    Parameters
    ----------
    setting : EnvironmentSetting
        Public parameters.
    kind : EnvironmentKind
        What generates contexts and rewards.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import Environment, EnvironmentSetting, environment_kind
    >>> from tacit.glm.links import get_link
    >>> setting = EnvironmentSetting(get_link("logistic"), dim=3, arms=4, horizon=10, theta_norm=2.0)
    >>> world = Environment(setting, environment_kind("ball"))
    >>> [block.contexts.shape for block in world.blocks(np.random.default_rng(0))]
    [(10, 4, 3)]
    """

    setting: EnvironmentSetting
    kind: EnvironmentKind

    def __post_init__(self) -> None:
        if self.kind.check is not None:
            self.kind.check(self.setting)

    def blocks(self, rng: np.random.Generator) -> Iterator[Block]:
        """Draw an instance and yield its rounds, ``horizon`` in all, in blocks.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the instance, its contexts and its rewards.

        Yields
        ------
        Block
            The next rounds.
        """
        played, horizon = 0, self.setting.horizon
        for parts in self.kind.generate(rng, self.setting):
            block = self._block(rng, parts, horizon - played)
            played += block.rewards.shape[0]
            yield block
            if played == horizon:
                return
        raise self._error(f"ended after {played} of {horizon} rounds")

    def _block(self, rng: np.random.Generator, parts: Any, left: int) -> Block:
        """What was yielded, cut to the rounds that are left, with rewards and regrets."""
        if not isinstance(parts, tuple) or len(parts) not in (2, 3):
            raise self._error("must yield (contexts, means) or Block(contexts, rewards, regrets)")
        contexts, *tables = (np.ascontiguousarray(part, dtype=np.float64)[:left] for part in parts)
        if contexts.ndim != 3 or contexts.shape[2] != self.setting.dim or 0 in contexts.shape:
            wanted = f"(rounds, arms, {self.setting.dim})"
            raise self._error(f"must yield contexts of shape {wanted}, got {contexts.shape}")
        for table in tables:
            if table.shape != contexts.shape[:2]:
                wanted = f"one number for each arm, shape {contexts.shape[:2]}"
                raise self._error(f"must yield {wanted}, got shape {table.shape}")
        return Block(contexts, *tables) if len(tables) == 2 else self._outcomes(rng, contexts, *tables)

    def _outcomes(self, rng: np.random.Generator, contexts: FloatArray, means: FloatArray) -> Block:
        bound, uniforms = self.setting.largest_reward, rng.random((means.shape[0], 1))
        best, slack = means.max(axis=1, keepdims=True), _ROUNDING * bound
        if not (means.min() >= -slack and best.max() <= bound + slack):  # also when there is a NaN
            raise self._error(f"must yield mean rewards in [0, {bound:g}]")
        rewards = self.setting.link.draw_rewards(means, bound, uniforms)
        return Block(contexts, rewards, best - means)

    def _error(self, fault: str) -> InvalidInput:
        return InvalidInput(f"the environment {self.kind.name!r} {fault}")


def make_environment(
    *,
    link: str,
    dim: int,
    arms: int,
    horizon: int,
    theta_norm: float,
    contexts: str = "ball",
    base_rate: float | None = None,
    schema: Schema | None = None,
) -> Environment:
    """Make an environment from the names that the command line uses.

    Parameters
    ----------
    link : str
        Name of the link of the rewards.
    dim, arms, horizon : int
        Features of an arm, arms of a round, and rounds.
    theta_norm : float
        Norm of theta*.
    contexts : str
        Name of the kind of environment.
    base_rate : float, optional
        Mean reward of arms whose score is 0, in place of the link's.
    schema : Schema, optional
        Schema of the users whom ``contexts="schema"`` simulates.

    Returns
    -------
    Environment
        Its ``blocks(rng)`` draws an instance and yields its rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import make_environment
    >>> world = make_environment(link="logistic", dim=3, arms=4, horizon=10, theta_norm=2.0)
    >>> [block.regrets.shape for block in world.blocks(np.random.default_rng(0))]
    [(10, 4)]
    """
    shifted = with_base_rate(get_link(link), base_rate)
    setting = EnvironmentSetting(shifted, dim, arms, horizon, theta_norm, schema=schema)
    return Environment(setting, environment_kind(contexts))
