"""Kinds of environments by name: the package's own, and those of a researcher's module.

A kind is a function that takes a random generator and an `EnvironmentSetting` and yields blocks of rounds.  It draws
theta* itself and keeps it: policies see only the contexts and the reward of the arm they chose.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tacit.environments.setting import Block, EnvironmentSetting, Rounds
from tacit.errors import InvalidInput
from tacit.typing import FloatArray

Generate = Callable[[np.random.Generator, EnvironmentSetting], Iterable[Rounds | Block | tuple[FloatArray, FloatArray]]]
Function = TypeVar("Function", bound=Callable[..., Iterable[Any]])


class EnvironmentKind(NamedTuple):
    """How contexts and rewards come about."""

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
    """Make a function the environment called ``name``; a decorator.

    The function takes ``(rng, setting)`` and yields consecutive rounds, ``setting.horizon`` of them or more, as

    - ``contexts, means``: arrays of shape (n, K, d) and (n, K).  Rewards are then drawn from the link's distribution
      with these means, by one uniform number a round that all arms share, and the regret is the gap to the best mean;
    - ``setting.rounds(contexts, theta)``: the same with the link's means for a parameter theta;
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
    """The kind called ``name``."""
    if name not in _KINDS:
        raise InvalidInput(
            f"contexts must be one of {', '.join(_KINDS)}, not {name!r}; for one of your own, name the module that "
            "registers it (--module)"
        )
    return _KINDS[name]


def arms_of(name: str, dim: int, arms: int) -> int:
    """How many arms a round of this kind has when ``arms`` are asked for."""
    own = environment_kind(name).arms
    return arms if own is None else own(dim)
