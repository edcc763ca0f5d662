"""Logs of randomised experiments: who was given which arm, with what probability, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit._validate import positive
from tacit.errors import InvalidInput
from tacit.extras import named_extras
from tacit.features import Category, Schema
from tacit.typing import FloatArray, IntArray

EQUAL: Final = "equal"
"""Shares of arms that are all the same."""
_KINDS: Final = (".csv", ".tsv", ".parquet")
_MOST_LISTED: Final = 4
_MISSING: Final = ["", "NA"]
_SUM_TOLERANCE: Final = 1e-6
_LEAST: Final = float(np.finfo(np.float64).tiny)
"""The smallest probability: one over it is finite."""


@dataclass(frozen=True)
class Trial:
    """A randomised experiment: users, the arm that each was given by chance, and the reward.

    Numbers are checked and copied.

    Parameters
    ----------
    schema : Schema
        What is known of users and arms.
    arms : tuple of mappings
        A record for each of the K arms.
    users : mapping
        A column for each field of the user, N lines.
    given : array of int, shape (N,)
        The arm of each user.
    rewards : array, shape (N,)
        The reward of each user, in [0, ``reward_bound``].
    shares : array, shape (N,)
        The probability with which each user was given that arm.
    designed : bool
        Whether these probabilities were fixed before the experiment; they were counted in its log otherwise.
    design : array, shape (K,), optional
        The probability of each arm, where it was the same for all users.
    reward_bound : float
        The largest reward that there can be.

    Examples
    --------
    >>> from tacit.evaluation import make_trial
    >>> from tacit.features import Category, Flag, Schema
    >>> schema = Schema(user=[Flag("smoker")], arm=[Category("drug", ["A", "B"])], per_arm="drug")
    >>> log = {"smoker": [True, False, True, False], "drug": ["A", "A", "B", "B"], "cured": [0, 1, 1, 1]}
    >>> trial = make_trial(schema, log, reward="cured", shares="equal")
    >>> trial.size, trial.given.tolist(), trial.shares.tolist()
    (4, [0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5])
    """

    schema: Schema
    arms: tuple[Mapping[str, Any], ...]
    users: Mapping[str, Any]
    given: IntArray
    rewards: FloatArray
    shares: FloatArray
    designed: bool
    design: FloatArray | None = None
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        bound, wanted = positive("reward_bound", self.reward_bound), np.shape(self.given)
        ranges = {"given": (0, len(self.arms) - 1), "rewards": (0.0, bound), "shares": (_LEAST, 1.0)}
        for name, (low, high) in ranges.items():
            numbers = np.array(getattr(self, name), dtype=np.int64 if name == "given" else np.float64)
            if numbers.shape != wanted or numbers.ndim != 1 or not np.all((numbers >= low) & (numbers <= high)):
                raise InvalidInput(f"{name} must be one number in [{low:g}, {high:g}] for each user")
            numbers.setflags(write=False)
            object.__setattr__(self, name, numbers)

    @property
    def size(self) -> int:
        """Number of users, N."""
        return int(self.given.size)

    @property
    def names(self) -> list[str]:
        """One name for each arm: its values."""
        return _names(self.arms)

    @cached_property
    def rows(self) -> FloatArray:
        """Features of all arms of all users, shape (N, K, d)."""
        users = self.users if self.users else [{}] * self.size
        return self.schema.encode(users, list(self.arms))


def read_log(path: Path) -> dict[str, Any]:
    """Read a table, one line for each user.

    Parameters
    ----------
    path : Path
        A file of CSV (``.csv``, ``.tsv``) or Parquet (``.parquet``).  In CSV an empty cell, or ``NA``, is missing.

    Returns
    -------
    dict
        A column for each name: an array for numbers, with NaN where one is missing, and a list for anything else.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.evaluation import read_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     _ = path.write_text("drug,cured\\nA,1\\nB,0\\n")
    ...     read_log(path)
    {'drug': ['A', 'B'], 'cured': array([1, 0])}
    """
    kind = path.suffix.lower()
    if kind not in _KINDS or not path.is_file():
        wanted = f"a log is a file whose name ends in {', '.join(_KINDS)}"
        raise InvalidInput(f"{path}: {'there is no such file' if kind in _KINDS else wanted}")
    with named_extras():
        import polars
    try:
        if kind == ".parquet":
            frame = polars.read_parquet(path)
        else:
            separator = "\t" if kind == ".tsv" else ","
            frame = polars.read_csv(path, separator=separator, infer_schema_length=None, null_values=_MISSING)
    except polars.exceptions.PolarsError as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    return {column.name: column.to_numpy() if column.dtype.is_numeric() else column.to_list() for column in frame}


def make_trial(
    schema: Schema,
    log: Mapping[str, Any],
    *,
    reward: str,
    arms: Sequence[Mapping[str, Any]] | None = None,
    shares: str | Mapping[str, float] | None = None,
    propensity: str | None = None,
    stratum: str | None = None,
    reward_bound: float = 1.0,
) -> Trial:
    """Make a trial of the columns of a log.

    Exactly one of ``shares``, ``propensity`` and ``stratum`` says with what probability users were given their arms.
    The probability may depend on nothing but the features of the line: in the log of a policy that was learning it
    depended on earlier lines, and values would be biased.

    Parameters
    ----------
    schema : Schema
        The log has a column for each of its fields, of users and of arms.
    log : mapping
        Columns by their names.
    reward : str
        The column of rewards.
    arms : list of mappings, optional
        The arms of every user; by default one for each value, where the schema's arms are a single category.
    shares : {"equal"} or mapping, optional
        The probability of each arm, by its name, as the experiment was designed.
    propensity : str, optional
        The column that has the probability of the arm that was given.
    stratum : str, optional
        The column within whose values arms were drawn with fixed shares, which are counted in the log.
    reward_bound : float
        The largest reward that there can be, a public constant.

    Returns
    -------
    Trial
        The experiment, checked.

    Examples
    --------
    >>> from tacit.evaluation import make_trial
    >>> from tacit.features import Category, Schema
    >>> log = {"drug": ["A", "B", "B"], "cured": [1, 0, 1], "p": [0.5, 0.5, 0.25]}
    >>> make_trial(Schema(arm=[Category("drug", ["A", "B"])]), log, reward="cured", propensity="p").shares
    array([0.5 , 0.5 , 0.25])
    """
    fields = [field.name for field in schema.arm]
    offered = _offered(fields, _arms_of(schema) if arms is None else arms)
    _check_lengths(log)
    if reward in {*fields, *(field.name for field in schema.user), propensity, stratum}:
        raise InvalidInput(f"{reward!r} is the reward: it cannot be a feature, a probability or a stratum as well")
    given = _given(offered, [_column(log, name) for name in fields], fields)
    rewards = _numbers(log, reward)
    bound = positive("reward_bound", reward_bound)
    _refuse_lines(f"{reward} must lie in [0, {bound:g}]", ~((rewards >= 0.0) & (rewards <= bound)))
    asked = [name for name in (shares, propensity, stratum) if name is not None]
    if len(asked) != 1:
        raise InvalidInput("give one of shares, propensity and stratum: with what probability was an arm given?")
    design = None if shares is None else _designed(shares, _names(offered))
    if design is not None:
        chances = design[given]
    elif propensity is not None:
        chances = _numbers(log, propensity)
        _refuse_lines(f"{propensity} must lie in (0, 1]", ~((chances > 0.0) & (chances <= 1.0)))
    else:
        chances = _counted(_column(log, str(stratum)), given, _names(offered))
    users = {field.name: _array(_column(log, field.name)) for field in schema.user}
    return Trial(schema, offered, users, given, rewards, chances, stratum is None, design, bound)


def _check_lengths(log: Mapping[str, Any]) -> None:
    lengths = {name: len(column) for name, column in log.items()}
    if len(set(lengths.values())) != 1 or not min(lengths.values()):
        raise InvalidInput(f"columns of a log must have equally many lines, and at least one: {lengths}")


def _arms_of(schema: Schema) -> list[dict[str, Any]]:
    """The arms of a schema that has a single category for them."""
    field = schema.arm[0] if len(schema.arm) == 1 else None
    if not isinstance(field, Category):
        raise InvalidInput("give the arms, a record for each: those of this schema are more than one category")
    return [{field.name: value} for value in field.values]


def _offered(fields: Sequence[str], arms: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The arms, which columns of the log must tell apart."""
    if not fields:
        raise InvalidInput("the schema has no field of arms: columns that tell which arm a user was given")
    if len(arms) < 2:
        raise InvalidInput(f"a trial needs at least two arms, got {len(arms)}")
    for told in (_names(arms), [tuple(arm.get(name) for name in fields) for arm in arms]):
        if len(set(told)) < len(told):
            raise InvalidInput(f"arms must differ, by their names and in the columns {', '.join(fields)}: {told}")
    return tuple(dict(arm) for arm in arms)


def _names(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    return [", ".join(str(value) for value in arm.values()) for arm in arms]


def _column(log: Mapping[str, Any], name: str) -> Any:
    if name not in log:
        raise InvalidInput(f"the log has no column {name!r}; its columns are {', '.join(map(repr, log))}")
    return log[name]


def _array(column: Any) -> Any:
    """A column that a schema takes for one: lists would be the tokens of a single record."""
    return np.array(column, dtype=object) if isinstance(column, list) else column


def _numbers(log: Mapping[str, Any], name: str) -> FloatArray:
    column = _column(log, name)
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        line, cell = next((line, cell) for line, cell in enumerate(column, 1) if not _is_number(cell))
        raise InvalidInput(f"column {name!r} must hold a number in every line: line {line} has {cell!r}") from None


def _is_number(cell: Any) -> bool:
    try:
        return np.asarray(cell, dtype=np.float64).ndim == 0
    except (TypeError, ValueError):
        return False


def _refuse_lines(rule: str, wrong: Any) -> None:
    lines = np.flatnonzero(wrong)
    if lines.size:
        raise InvalidInput(f"{rule}: line {lines[0] + 1} does not, nor do {lines.size - 1} others (missing ones too)")


def _given(arms: Sequence[Mapping[str, Any]], columns: Sequence[Any], fields: Sequence[str]) -> IntArray:
    """The position of each line's arm among the arms."""
    places = {tuple(arm.get(name) for name in fields): place for place, arm in enumerate(arms)}
    lines = list(zip(*(np.asarray(column, dtype=object).tolist() for column in columns), strict=True))
    unknown = Counter(line for line in lines if line not in places)
    if unknown:
        found = "; ".join(f"{line[0] if len(line) == 1 else line!r} ({count} lines)" for line, count in unknown.items())
        raise InvalidInput(f"the log has arms that are not among {', '.join(_names(arms))}: {found}")
    return np.array([places[line] for line in lines], dtype=np.int64)


def _designed(shares: str | Mapping[str, float], names: Sequence[str]) -> FloatArray:
    """The known probability of each arm."""
    if shares == EQUAL:
        return np.full(len(names), 1.0 / len(names))
    if not isinstance(shares, Mapping):
        raise InvalidInput(f"shares must be {EQUAL!r} or a probability for each arm by its name, not {shares!r}")
    if set(shares) != set(names):
        raise InvalidInput(f"shares must name the arms {', '.join(names)}, not {', '.join(shares)}")
    chances = np.array([positive(f"share of {name}", shares[name]) for name in names])
    if abs(float(chances.sum()) - 1.0) > _SUM_TOLERANCE:
        raise InvalidInput(f"shares of all arms must add up to 1, not {chances.sum():.8g}")
    return np.asarray(chances / chances.sum())


def _counted(strata: Any, given: IntArray, names: Sequence[str]) -> FloatArray:
    """The share of each line's arm among the lines of its stratum."""
    labels, groups = np.unique(np.asarray(strata).astype(str), return_inverse=True)
    counts = np.zeros((labels.size, len(names)))
    np.add.at(counts, (groups, given), 1.0)
    empty = [f"{labels[group]} ({names[arm]})" for group, arm in np.argwhere(counts == 0.0).tolist()]
    if empty:
        more = f" and {len(empty) - _MOST_LISTED} more" if len(empty) > _MOST_LISTED else ""
        raise InvalidInput(
            f"nobody was given some arm in the strata {', '.join(empty[:_MOST_LISTED])}{more}: what it would have "
            "earned there is not known. Leave these strata out, or use a coarser stratum"
        )
    return np.asarray(counts[groups, given] / counts[groups].sum(axis=1))
