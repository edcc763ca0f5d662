"""Checks of arguments; each message names the argument, the value and the bound.

Every check refuses NaN, since a comparison with NaN is false and all checks are stated positively.
"""

from __future__ import annotations

import math
import numbers

from tacit.errors import InvalidInput


def real(name: str, value: object) -> float:
    """``value`` as a float; booleans, strings and complex numbers are refused."""
    if type(value) is float:  # the common case, on the path of every single decision
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidInput(f"{name} must be a real number, got {value!r}")
    return float(value)


def positive(name: str, value: object) -> float:
    """Return a finite number above zero.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The number; ``InvalidInput`` is raised for anything else.

    Examples
    --------
    >>> positive("epsilon", 2)
    2.0
    """
    number = real(name, value)
    if not (number > 0.0 and math.isfinite(number)):
        raise InvalidInput(f"{name} must be positive and finite, got {value!r}")
    return number


def nonnegative(name: str, value: object) -> float:
    """Return a finite number, zero allowed.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The number; ``InvalidInput`` is raised for anything else.

    Examples
    --------
    >>> nonnegative("width", 0.0)
    0.0
    """
    number = real(name, value)
    if not (number >= 0.0 and math.isfinite(number)):
        raise InvalidInput(f"{name} must be nonnegative and finite, got {value!r}")
    return number


def positive_or_inf(name: str, value: object) -> float:
    """A number above zero; infinity is allowed."""
    number = real(name, value)
    if not number > 0.0:
        raise InvalidInput(f"{name} must be positive (infinity allowed), got {value!r}")
    return number


def nonnegative_or_inf(name: str, value: object) -> float:
    """A number at or above zero; infinity is allowed."""
    number = real(name, value)
    if not number >= 0.0:
        raise InvalidInput(f"{name} must be nonnegative (infinity allowed), got {value!r}")
    return number


def finite(name: str, value: object) -> float:
    """Return a finite number of either sign.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The number; ``InvalidInput`` is raised for anything else.

    Examples
    --------
    >>> finite("score", -1)
    -1.0
    """
    number = real(name, value)
    if not math.isfinite(number):
        raise InvalidInput(f"{name} must be finite, got {value!r}")
    return number


def probability(name: str, value: object) -> float:
    """Return a number strictly between 0 and 1.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The number; ``InvalidInput`` is raised for anything else.

    Examples
    --------
    >>> probability("delta", 0.02)
    0.02
    """
    number = real(name, value)
    if not 0.0 < number < 1.0:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number


def share(name: str, value: object) -> float:
    """Return a number from 0 to 1, ends included.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The number; ``InvalidInput`` is raised for anything else.

    Examples
    --------
    >>> share("blend", 1.0)
    1.0
    """
    number = real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidInput(f"{name} must lie in [0, 1], got {value!r}")
    return number


def integer_at_least(name: str, value: object, bound: int) -> int:
    """An integer at or above ``bound``; booleans and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInput(f"{name} must be an integer >= {bound}, got {value!r}")
    if int(value) < bound:
        raise InvalidInput(f"{name} must be >= {bound}, got {value!r}")
    return int(value)
