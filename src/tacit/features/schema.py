"""`Schema`: from records to rows of norm at most 1, by what can occur and not by what did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.features.checks import check_layout, check_schema, parts_in, stored_schema
from tacit.features.encoding import Arms, Catalogue, Encoder, Refusals, Side
from tacit.features.field import Field
from tacit.features.layout import Layout, terms_of
from tacit.features.records import Record, is_columns
from tacit.features.support import Support
from tacit.typing import FloatArray


@dataclass(frozen=True, init=False)
class Schema:
    """What is known of users and of arms, and how rows are made of it; public, given in advance, never fitted.

    A row has, in this order: the intercept, the fields of the user, the fields of the arm, and ``crosses``, each a
    field of the user times one of the arm, such as ``("device", "topic")``.  What belongs to the user alone is the same
    for all arms, and moves the level of predictions but not the choice: crosses and ``per_arm`` are what personalises.

    ``per_arm`` names a category of the arm.  Every field of the user, and a constant, then has separate parameters
    for each value of it (``age @ topic=news``).  The shared ones of the user, the shared intercept and the category
    itself would be sums of these, so that they are left out: a schema whose arms have nothing but this category
    consists of one block for each value.  An arm with an unknown value has only what is shared.  With
    ``intercept=False`` there is no constant, neither a shared one nor one for each value.  Coordinates of a block stand
    together, in the order above.

    Rows are scaled by the largest norm that any record can have, computed from the schema, and by 1 - 2^-40.  The
    ``weight`` of a field multiplies its vector before that, in all terms that it is a part of.

    Parameters
    ----------
    user, arm : list of fields
        What is known of users, and of arms: `Number`, `Category`, `Flag` or `Hashed`.
    crosses : list of pairs of str
        Products of a field of the user and one of the arm, by their names.
    per_arm : str, optional
        A category of the arm for whose values all fields of the user have separate parameters.
    intercept : bool
        Whether rows have a constant.

    Examples
    --------
    >>> from tacit.features import Category, Number, Schema
    >>> schema = Schema(
    ...     user=[Number("age", 0, 120)],
    ...     arm=[Category("topic", ["news", "arts"])],
    ...     crosses=[("age", "topic")],
    ... )
    >>> schema.names
    ('1', 'age', 'topic=news', 'topic=arts', 'age x topic=news', 'age x topic=arts')
    >>> schema.encode({"age": 120}, [{"topic": "news"}, {"topic": "arts"}]).round(3)
    array([[0.5, 0.5, 0.5, 0. , 0.5, 0. ],
           [0.5, 0.5, 0. , 0.5, 0. , 0.5]])
    """

    user: tuple[Field, ...] = ()
    arm: tuple[Field, ...] = ()
    crosses: tuple[tuple[str, str], ...] = ()
    per_arm: str | None = None
    intercept: bool = True

    def __init__(
        self,
        user: Sequence[Field] = (),
        arm: Sequence[Field] = (),
        crosses: Sequence[tuple[str, str]] = (),
        per_arm: str | None = None,
        intercept: bool = True,
    ) -> None:
        checked = check_schema(user, arm, crosses, per_arm, intercept)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check_layout(self._layout)

    @cached_property
    def _layout(self) -> Layout:
        return Layout(tuple(terms_of(self.user, self.arm, self.crosses, self.per_arm, self.intercept)))

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self, self._layout, Side("user", self.user), Side("arm", self.arm))

    @property
    def dim(self) -> int:
        """Number of coordinates of a row, d."""
        return self._layout.dim

    @property
    def width(self) -> int:
        """The most coordinates that one row can have nonzero."""
        return self._layout.width

    @property
    def names(self) -> tuple[str, ...]:
        """One readable name for each coordinate."""
        return self._layout.names

    @property
    def scales(self) -> FloatArray:
        """The largest absolute value that each coordinate can have."""
        return self._layout.coordinate_scales.copy()

    @property
    def support(self) -> Support:
        """Which coordinates can be nonzero together."""
        return self._layout.support

    def encode(self, records: Record | Sequence[Record] | Any, arms: Arms | None = None) -> FloatArray:
        """Rows as ordinary arrays.

        One user (a mapping) and K arms give shape (K, d).  Many users (a list of mappings, a dict of arrays or a frame)
        and K arms for all, or a list of K arms for each, give (N, K, d).  Columns of users' and arms' fields together,
        without a second argument, give (N, d): a row for each line.

        Parameters
        ----------
        records : mapping, list of mappings, dict of arrays, or frame
            One user or many.  A mapping is taken for columns if it holds arrays; lists are tokens of one record.
        arms : list of mappings, dict of arrays, frame or Catalogue, optional
            Arms for all users, or a list of them for each user.

        Returns
        -------
        array
            Rows of norm at most 1, of shape (K, d), (N, K, d) or (N, d).
        """
        if arms is None:
            return self._encoder.lines(records, dense=True)
        if isinstance(records, Mapping) and not is_columns(records):
            return self._encoder.rows(records, arms, dense=True)
        rows, refused = self.rows_of(records, arms)
        for number, error in sorted(refused.items()):
            raise InvalidInput(f"user {number}: {error}") from error
        return self.dense(rows)

    def rows(self, user: Record, arms: Arms) -> FloatArray:
        """Make the compact rows of one user, which list only the coordinates that may be nonzero.

        Parameters
        ----------
        user : mapping
            One user.
        arms : list of mappings, dict of arrays, frame or Catalogue
            The K arms.

        Returns
        -------
        ndarray
            Compact rows, shape (K, 2 width): values, then positions, padded with 0 and -1.
        """
        return self._encoder.rows(user, arms)

    def rows_of(self, users: Sequence[Record] | Any, arms: Arms) -> tuple[FloatArray, Refusals]:
        """Make the compact rows of many users; one who is not valid does not stop the others.

        Parameters
        ----------
        users : list of mappings, dict of arrays, or frame
            The users.
        arms : list of mappings, dict of arrays, frame or Catalogue
            K arms for all users, a list with as many arms for each user, or columns of shape (N, K).

        Returns
        -------
        tuple
            The compact rows of all valid users in order, shape (N, K, 2 width), and for each other user, by number, the
            error that says why not.
        """
        return self._encoder.rows_of(users, arms)

    def dense(self, rows: npt.ArrayLike) -> FloatArray:
        """Turn compact rows into ordinary ones.

        Parameters
        ----------
        rows : array_like
            Compact rows, of 2 width numbers each.

        Returns
        -------
        ndarray
            Rows of d numbers each.
        """
        return self._encoder.dense(rows)

    def catalogue(self, arms: Arms) -> Catalogue:
        """Prepare arms once that are used many times.

        Parameters
        ----------
        arms : list of mappings, dict of arrays, frame or Catalogue
            The K arms.

        Returns
        -------
        Catalogue
            The arms, to be given wherever arms are asked for.
        """
        return self._encoder.catalogue(arms)

    def worst(self) -> tuple[dict[str, object], dict[str, object]]:
        """Choose a user and an arm whose row has the largest norm of all.

        Returns
        -------
        tuple of dict
            A user and an arm.
        """
        user, arm = ({field.name: field.worst() for field in fields} for fields in (self.user, self.arm))
        return user, arm

    def sample_users(self, rng: np.random.Generator, count: int) -> Any:
        """Simulate users, uniform over what their fields may say.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the values.
        count : int
            Number of users.

        Returns
        -------
        dict of ndarray, or list of dict
            Columns; without fields, empty records.
        """
        return _sampled(self.user, rng, (integer_at_least("count", count, 0),))

    def sample_arms(self, rng: np.random.Generator, *shape: int) -> Any:
        """Simulate arms, uniform over what their fields may say.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the values.
        *shape : int
            K, for arms that all users share; N and K, for arms of each user.

        Returns
        -------
        dict of ndarray, or list
            Columns of that shape; without fields, empty records.
        """
        return _sampled(self.arm, rng, tuple(integer_at_least("count", count, 0) for count in shape))

    def describe(self, most: int = 40) -> str:
        """Describe the coordinates with their scales, the norm bound with its proof, and what the structure saves.

        Parameters
        ----------
        most : int, default 40
            Of more coordinates than this only the first and the last are listed.

        Returns
        -------
        str
            The text, of several lines.
        """
        return described(self._layout, integer_at_least("most", most, 2))

    def to_json(self) -> dict[str, Any]:
        """Write the schema as data for JSON.

        Returns
        -------
        dict
            Data that `from_json` reads; it holds the keys of hashes.
        """
        return stored_schema(self.user, self.arm, self.crosses, self.per_arm, self.intercept)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | str | bytes) -> Schema:
        """Read a schema.

        Parameters
        ----------
        stored : mapping, str or bytes
            What `to_json` gave, or the text of it.

        Returns
        -------
        Schema
            A schema equal to the one that was written.
        """
        return cls(**parts_in(stored))


def _sampled(fields: Sequence[Field], rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    if not fields:  # columns could not say how many there are
        count, *rest = shape
        return [_sampled(fields, rng, tuple(rest)) if rest else {} for _ in range(count)]
    return {field.name: field.sample(rng, shape) for field in fields}


def described(layout: Layout, most: int) -> str:
    """The coordinates, their scales, the norm bound with its proof, and what the structure saves."""
    return "\n".join([*_table(layout, most), "", *_bound(layout), "", *_structure(layout)])


def _table(layout: Layout, most: int) -> list[str]:
    names, scales, blocks = layout.names, layout.coordinate_scales, layout.support.starts
    lines = [("", "coordinate", "largest value", "block")]
    listed = (
        range(layout.dim) if layout.dim <= most else [*range(most // 2), *range(layout.dim - most // 2, layout.dim)]
    )
    for i in listed:
        block = int(np.searchsorted(blocks, i, side="right")) - 1
        lines.append((str(i), names[i], f"{scales[i]:.6f}", str(block)))
    wide = [max(len(line[column]) for line in lines) for column in range(4)]
    text = [
        f"{number:>{wide[0]}}  {name:<{wide[1]}}  {scale:>{wide[2]}}  {block:>{wide[3]}}".rstrip()
        for number, name, scale, block in lines
    ]
    left_out = layout.dim - len(listed)
    middle = 1 + most // 2
    return text if not left_out else [*text[:middle], f"... {left_out:,} more ...", *text[middle:]]


def _bound(layout: Layout) -> list[str]:
    squares = " + ".join(f"{term.weight * term.weight:g} ({term.title})" for term in layout.terms)
    return [
        f"Norm: every row is divided by B = {layout.norm_bound:.9g} and multiplied by 1 - 2^-40, B^2 = {squares}.",
        "Proof: the squared norm of a row times B is a sum over terms, each at most its square in the line above;",
        "the record of schema.worst() attains all of these at once, so that the longest row has the norm 1 - 2^-40.",
    ]


def _structure(layout: Layout) -> list[str]:
    support, dim = layout.support, layout.dim
    every = dim * (dim + 1) // 2
    share = f"{support.size:,} of {every:,} entries of x x' ({100.0 * support.size / every:.3g}%)"
    return [
        f"Structure: {dim:,} coordinates in {support.blocks:,} block{'s' if support.blocks > 1 else ''}, at most "
        f"{support.width:,} of them nonzero in a row; {share} can be nonzero and are released."
    ]
