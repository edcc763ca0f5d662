"""Configurations: one frozen, typed, documented object for each policy, from which all the rest is made.

Setting, state, randomness and ledger of a policy follow from its configuration, and a saved state needs nothing else to
be rebuilt.  Command line, service and documentation read the fields from here (`describe`).  Everything in a
configuration is public: it must not be chosen by looking at the data that the policy will protect.

A new policy adds fields by a subclass:

    @configuration
    class MyConfig(PrivateConfig):
        \"\"\"Configuration of `mine`.\"\"\"

        width: float = option("Standard deviations of optimism.", default=1.0, check=nonnegative)
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform

from tacit._validate import integer_at_least, positive, positive_or_inf, probability, share
from tacit.errors import InvalidInput
from tacit.privacy.budget import Budget

if TYPE_CHECKING:
    from tacit.features import Schema

Check = Callable[[str, Any], Any]
"""Takes a field's name and value; returns the value as it is to be kept, or raises ``InvalidInput``."""
Kind = TypeVar("Kind")
Made = TypeVar("Made", bound="Config")
DEFAULT_REWARD_WINDOW = 100_000


def option(about: str, *, default: Any = MISSING, check: Check | None = None) -> Any:
    """Declare a field of a configuration: its description, default and check.

    A field whose default is None may be None; the check then concerns other values.

    Parameters
    ----------
    about : str
        What the field means, for ``help()``, the command line and the service.
    default : Any, optional
        Its default; without one the field must be given.
    check : callable, optional
        Takes the field's name and value; returns the value to keep, or raises ``InvalidInput``.

    Returns
    -------
    dataclasses.Field
        The field, for the body of a class that `configuration` decorates.

    Examples
    --------
    >>> from tacit.extend import PrivateConfig, configuration, nonnegative, option
    >>> @configuration
    ... class MyConfig(PrivateConfig):
    ...     width: float = option("Standard deviations of optimism.", default=1.0, check=nonnegative)
    >>> MyConfig(dim=2, epsilon=1.0, delta=1e-6).width
    1.0
    """
    return field(default=default, kw_only=True, metadata={"about": about, "check": check})


def one_of(*choices: str) -> Check:
    """Return a check for one of several words.

    Parameters
    ----------
    *choices : str
        The words.

    Returns
    -------
    callable
        A check for `option`.

    Examples
    --------
    >>> from tacit.extend import one_of
    >>> one_of("tree", "toeplitz")("factorization", "tree")
    'tree'
    """

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InvalidInput(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    return check


def choice(about: str, choices: Sequence[str], default: str) -> Any:
    """A field that is one of several words."""
    return option(about, default=default, check=one_of(*choices))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, choice))
def configuration(kind: type[Kind]) -> type[Kind]:
    """Make a class a configuration: a frozen dataclass with keyword arguments, whose ``help()`` lists its fields.

    Parameters
    ----------
    kind : type
        Subclass of `Config` or `PrivateConfig`, with fields made by `option`.

    Returns
    -------
    type
        The class itself.

    Examples
    --------
    >>> from tacit.extend import Config, at_least, configuration, option
    >>> @configuration
    ... class MyConfig(Config):
    ...     pairs: int = option("How many pairs of arms to compare.", default=2, check=at_least(1))
    >>> MyConfig(dim=2, pairs=3).pairs
    3
    """
    made = dataclass(frozen=True, kw_only=True)(kind)
    about, heading, examples = (inspect.getdoc(kind) or "").partition("\n\nExamples\n")
    made.__doc__ = f"{about}\n\nParameters\n----------\n{described_fields(made)}{heading}{examples}"
    return made


class FieldText(NamedTuple):
    """What people may want to read of a field."""

    name: str
    kind: str
    default: str
    """Default as Python source; ``required`` where there is none."""
    about: str


def _about(found: Field[Any]) -> str:
    return str(found.metadata.get("about", ""))


def describe(kind: type) -> list[FieldText]:
    """The fields of a configuration, in order."""
    return [
        FieldText(
            found.name, str(found.type), "required" if found.default is MISSING else repr(found.default), _about(found)
        )
        for found in fields(kind)
    ]


def described_fields(kind: type) -> str:
    """Return the fields as a numpy-style list of parameters, for ``help()``."""
    texts = []
    for name, type_text, default, about in describe(kind):
        head = f"{name} : {type_text}" + ("" if default == "required" else f", default {default}")
        texts.append(f"{head}\n{textwrap.indent(textwrap.fill(about, 100), '    ')}")
    return "\n".join(texts)


def at_least(bound: int) -> Check:
    """Return a check for an integer that is not below ``bound``.

    Parameters
    ----------
    bound : int
        The smallest integer that passes.

    Returns
    -------
    callable
        A check for `option`.

    Examples
    --------
    >>> from tacit.extend import at_least
    >>> at_least(1)("batches", 3)
    3
    """

    def check(name: str, value: object) -> int:
        return integer_at_least(name, value, bound)

    return check


def truth(name: str, value: object) -> bool:
    """Check that a value is True or False.

    Parameters
    ----------
    name : str
        Name of the field, for the error.
    value : object
        The value.

    Returns
    -------
    bool
        The value.

    Raises
    ------
    InvalidInput
        When it is anything else.

    Examples
    --------
    >>> from tacit.extend import truth
    >>> truth("adaptive", True)
    True
    """
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be True or False, not {value!r}")
    return value


def _link_name(name: str, value: object) -> str:
    """The name of a link; a link object stands for its name."""
    found = getattr(value, "name", value)
    if not isinstance(found, str):
        raise InvalidInput(f"{name} must be the name of a link, not {value!r}")
    return found


def _schema(name: str, value: object) -> Schema:
    """A schema, or what `Schema.to_json` made of one."""
    from tacit.features import Schema

    if isinstance(value, Schema):
        return value
    if isinstance(value, Mapping):
        return Schema.from_json(value)
    raise InvalidInput(f"{name} must be a tacit.features.Schema, not {type(value).__name__}")


@configuration
class Config:
    """What every policy is told: public constants of the problem, and how it runs.

    Examples
    --------
    >>> import tacit
    >>> tacit.Config(dim=3, theta_bound=2.0).link
    'logistic'
    """

    dim: int = option("Number of features of an arm, d.", check=at_least(1))
    features: Schema | None = option(
        "A schema (`tacit.features.Schema`) that turns records of users and arms into features; dim follows from it.",
        default=None,
        check=_schema,
    )
    horizon: int | None = option(
        "Number of decisions that are expected, T; None when it is not known.", default=None, check=at_least(1)
    )
    link: str = option(
        "How rewards depend on scores: `logistic`, `probit`, `identity`, `log`, or a link of one's own by its name. "
        "The mean reward of an arm x is mu(<x, theta>).",
        default="logistic",
        check=_link_name,
    )
    base_rate: float | None = option(
        "Mean reward of an arm whose score is 0, such as a usual click rate of 0.08. It shifts the link, mu(<x, theta> "
        "+ offset), so that theta says only how arms differ from it and theta_bound can be smaller. Public: from "
        "experience, not from the data to be protected. By default mu(0), which is 1/2 for clicks.",
        default=None,
        check=positive,
    )
    theta_bound: float = option(
        "S: a bound on the length of the unknown parameter theta, so that scores lie in [-S, S].",
        default=1.0,
        check=positive,
    )
    reward_bound: float | None = option(
        "R: rewards lie in [0, R]; the link's own by default. With the log link rewards above R count as R.",
        default=None,
        check=positive,
    )
    kappa: float | None = option(
        "A public bound on 1 / mu' over the scores that occur, in place of the one that follows from link and S.",
        default=None,
        check=positive,
    )
    kappa_star: float | None = option(
        "A public lower bound on 1 / max mu': no row weighs more than 1 / kappa_star.", default=None, check=positive
    )
    reward_window: int = option(
        "Decisions after which a reward is no longer taken: memory holds what waits for a reward.",
        default=DEFAULT_REWARD_WINDOW,
        check=at_least(1),
    )
    reward_age: int | None = option(
        "Decisions after which a reward contributes, whatever it is and whenever it came; the policy keeps it until "
        "then, and takes none later. For rewards whose delay depends on what they are, such as clicks, which come at "
        "once, and non-clicks, which are known after a while: give the longest of these delays. None: a reward "
        "contributes when it comes.",
        default=None,
        check=at_least(1),
    )
    explore: float = option(
        "Share of decisions whose arm is drawn at random, each alike, so that a log tells what another policy "
        "would have earned; `Decision.propensity` says how likely an arm was. No privacy is spent on it.",
        default=0.0,
        check=share,
    )
    seed: int | None = option(
        "For simulations: all randomness follows from it. Without one it comes from the operating system, which is "
        "what people must be served with.",
        default=None,
        check=at_least(0),
    )

    def __post_init__(self) -> None:
        for found in fields(self):
            check, value = found.metadata.get("check"), getattr(self, found.name)
            if check is not None and not (value is None and found.default is None):
                object.__setattr__(self, found.name, check(found.name, value))
        if self.reward_age is not None and self.reward_window != DEFAULT_REWARD_WINDOW:
            raise InvalidInput(
                f"give reward_age or reward_window, not both: with reward_age={self.reward_age} rewards are taken "
                f"until their decision is that old"
            )

    def to_json(self) -> dict[str, Any]:
        """Return all fields as plain values that JSON can hold; an infinite number is the word ``inf``.

        Returns
        -------
        dict
            Values by field name, for `from_json`.
        """
        values = {found.name: getattr(self, found.name) for found in fields(self)}
        if self.features is not None:
            values["features"] = self.features.to_json()
        return {name: "inf" if value == math.inf else value for name, value in values.items()}

    @classmethod
    def from_json(cls: type[Made], values: Mapping[str, Any]) -> Made:
        """Return the configuration that `to_json` was called on.

        Parameters
        ----------
        values : mapping
            What `to_json` returned.

        Returns
        -------
        Config
            An equal configuration, of the class that this is called on.
        """
        return cls.given({name: math.inf if value == "inf" else value for name, value in values.items()})

    @classmethod
    def given(cls: type[Made], values: Mapping[str, Any], owner: str = "the configuration") -> Made:
        """Return the configuration with these fields.

        Parameters
        ----------
        values : mapping
            Values by field name; ``dim`` may be left out where ``features`` is given.
        owner : str
            What errors say that the fields are for.

        Returns
        -------
        Config
            A configuration of the class that this is called on.

        Raises
        ------
        InvalidInput
            When a field is missing, unknown or outside of its domain.
        """
        known = fields(cls)
        if values.get("features") is not None:
            values = _with_dim(values)
        _refuse_unknown(values, [found.name for found in known], owner)
        for found in known:
            if found.default is MISSING and values.get(found.name) is None:
                raise InvalidInput(f"{owner} needs {found.name}. {_about(found)}")
        return cls(**values)


@configuration
class PrivateConfig(Config):
    """What every private policy is told: the problem, and the privacy budget of one user.

    Examples
    --------
    >>> import tacit
    >>> tacit.PrivateConfig(dim=3, epsilon=1.0, delta=1e-6).rounds_per_user
    1
    """

    epsilon: float = option(
        "Privacy budget: what one user may lose over the whole life of the policy; 1 is strong, 8 is weak, and "
        "inf turns noise and privacy off.",
        check=positive_or_inf,
    )
    delta: float | None = option(
        "Probability with which epsilon may be exceeded: well below 1 / (number of users), such as 1e-6. "
        "Not needed when epsilon is inf.",
        default=None,
        check=probability,
    )
    rounds_per_user: int = option(
        "Decisions of one user that the budget covers: 1 protects single visits, k protects people who come up to k "
        "times.",
        default=1,
        check=at_least(1),
    )
    noise: str | None = option(
        "Source of noise: `exact` (whole numbers from the operating system's entropy; the default wherever releases "
        "are whole numbers), `secure` (the same entropy, floating point) or `fast` (seeded; the default with a seed).",
        default=None,
        check=one_of("fast", "secure", "exact", "none"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta is None and self.epsilon != math.inf:
            raise InvalidInput("delta must be given with a finite epsilon, for example epsilon=1.0, delta=1e-6")

    @property
    def budget(self) -> Budget:
        """The privacy budget; without noise its delta says nothing."""
        return Budget(self.epsilon, 1e-6 if self.delta is None else self.delta, self.rounds_per_user)


def _with_dim(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with ``dim`` set to the dimension of their schema."""
    schema = _schema("features", values["features"])
    if values.get("dim") not in (None, schema.dim):
        raise InvalidInput(f"dim follows from the schema, which has {schema.dim}, not {values['dim']}: leave it out")
    return {**values, "features": schema, "dim": schema.dim}


def _refuse_unknown(values: Mapping[str, Any], known: Sequence[str], owner: str) -> None:
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InvalidInput(f"{owner} does not know {', '.join(map(repr, unknown))}; it knows {', '.join(known)}")
