"""When rewards come (at once, late, or all at one age), by name: the package's kinds and those of other modules.

A kind says, for the reward that every arm would earn, how many decisions later it comes.  Its generator is a separate
one, so that environments do not depend on when rewards come, and all policies meet the same delays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.environments.registry import EnvironmentSetting, check_name, check_owner
from tacit.errors import InvalidInput
from tacit.typing import FloatArray, IntArray

NEVER: Final = -1
"""Delay of a reward that does not come."""
NOW: Final = "now"
MEAN_WAIT: Final = 100
"""Decisions until a good reward comes, on average, in `late`."""
LONGEST_WAIT: Final = 1_000
"""Decisions until it is known that no reward came, in `late`; the age of every reward in `held`."""
LOST: Final = 0.05
"""Share of rewards that never come in `late`."""

Delays = Callable[[np.random.Generator, FloatArray, EnvironmentSetting], npt.ArrayLike]
Function = TypeVar("Function", bound=Callable[..., npt.ArrayLike])


class ArrivalKind(NamedTuple):
    """A named rule of when rewards come; made by `register_arrivals`.

    Parameters
    ----------
    name : str
        What the rule is called.
    draw : callable
        The function of ``(rng, rewards, setting)`` that returns delays.
    summary : str
        First line of its docstring.

    Examples
    --------
    >>> from tacit.environments import ARRIVALS
    >>> ARRIVALS["now"].at_once, ARRIVALS["late"].at_once
    (True, False)
    """

    name: str
    draw: Delays
    summary: str

    @property
    def at_once(self) -> bool:
        """Whether every reward comes before the next decision, so that whole rounds can be played in one call."""
        return self.name == NOW

    def delays(self, rng: np.random.Generator, rewards: FloatArray, setting: EnvironmentSetting) -> IntArray:
        """Draw the delays of rewards.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the delays.
        rewards : array, shape (n, K)
            What every arm of n rounds earns.
        setting : EnvironmentSetting
            Setting of the environment.

        Returns
        -------
        array of int, shape (n, K)
            Decisions until each reward comes: at least 1, or ``NEVER``.
        """
        found = np.asarray(self.draw(rng, rewards, setting))
        if found.shape != rewards.shape or not np.issubdtype(found.dtype, np.integer):
            wanted = f"whole numbers of shape {rewards.shape}"
            raise InvalidInput(f"rewards {self.name!r} must give {wanted}, got {found.dtype} of shape {found.shape}")
        if not np.all((found >= 1) | (found == NEVER)):
            raise InvalidInput(f"rewards {self.name!r} must give delays of at least 1, or {NEVER} for never")
        return found.astype(np.int64)


_KINDS: dict[str, ArrivalKind] = {}
ARRIVALS: Mapping[str, ArrivalKind] = MappingProxyType(_KINDS)
"""Every kind that is registered now; a view that follows `register_arrivals`."""


def register_arrivals(name: str) -> Callable[[Function], Function]:
    """Register a function as the rule called ``name`` of when rewards come; a decorator.

    The function takes ``(rng, rewards, setting)``, where ``rewards`` has shape (n, K): what every arm of n consecutive
    rounds earns.  It returns integers of the same shape: a delay of m means that the reward is reported just before the
    decision that comes m after its own, so that 1 is as early as can be, and `NEVER` that it is not reported at all.
    Draw one number for each round, not for each arm: policies that choose differently then meet the same delays.

    Parameters
    ----------
    name : str
        What the rule is called, such as by ``tacit simulate --rewards``.

    Returns
    -------
    callable
        The decorator, which gives the function back.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import register_arrivals
    >>> @register_arrivals("weekly")
    ... def weekly(rng, rewards, setting):
    ...     return np.broadcast_to(rng.integers(1, 8, size=(len(rewards), 1)), rewards.shape)
    """
    check_name("the name of a way of rewards", name)

    def register(draw: Function) -> Function:
        if name in _KINDS:
            check_owner("the way of rewards", name, _KINDS[name].draw, draw)
        _KINDS[name] = ArrivalKind(name, draw, (inspect.getdoc(draw) or "").partition("\n")[0])
        return draw

    return register


def arrival_kind(name: str) -> ArrivalKind:
    """Return the rule of when rewards come that has a name.

    Parameters
    ----------
    name : str
        Name of a rule of the package, or of one that was registered.

    Returns
    -------
    ArrivalKind
        The rule.

    Raises
    ------
    InvalidInput
        When no rule has the name.

    Examples
    --------
    >>> from tacit.environments import arrival_kind
    >>> arrival_kind("now").at_once
    True
    """
    if name not in _KINDS:
        raise InvalidInput(
            f"rewards must be one of {', '.join(_KINDS)}, not {name!r}; for one of your own, name the module that "
            "registers it (--module)"
        )
    return _KINDS[name]


@register_arrivals(NOW)
def now(rng: np.random.Generator, rewards: FloatArray, setting: EnvironmentSetting) -> IntArray:
    """Every reward comes before the next decision."""
    return np.ones(rewards.shape, dtype=np.int64)


@register_arrivals("late")
def late(rng: np.random.Generator, rewards: FloatArray, setting: EnvironmentSetting) -> IntArray:
    """Good rewards come after about 100 decisions, others after 1,000, one in twenty never.

    Clicks are like this: a click is known soon, the lack of one only when the waiting ends.  Good rewards are above
    half of the range; for counts, above 0.
    """
    rounds = (rewards.shape[0], 1)
    waits, lost = rng.geometric(1.0 / MEAN_WAIT, size=rounds), rng.random(rounds) < LOST
    good = rewards > (0.0 if setting.link.clips_rewards else 0.5 * setting.largest_reward)
    return np.where(lost, NEVER, np.where(good, waits, LONGEST_WAIT))


@register_arrivals("held")
def held(rng: np.random.Generator, rewards: FloatArray, setting: EnvironmentSetting) -> IntArray:
    """Every reward comes when its decision is 1,000 decisions old."""
    return np.full(rewards.shape, LONGEST_WAIT, dtype=np.int64)
