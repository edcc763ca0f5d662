"""The forms in which arms come, and the one in which steps take them.

Arms come as arrays, rows of d numbers, or as records that a schema encodes.  Kernels take rows of d numbers, or, where
a policy knows which features can be nonzero together, compact rows (`tacit.linalg.blocks`).  Where a policy has a
schema, arrays are refused: nothing could tell whether they were made by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.linalg.blocks import compacted, dense_rows
from tacit.policies.admission import admit_contexts, admit_rounds, admit_users
from tacit.policies.setting import Setting
from tacit.typing import FloatArray

if TYPE_CHECKING:
    from tacit.features import Schema
    from tacit.features.encoding import Arms
    from tacit.features.support import Support

Record = Mapping[str, Any]
Refused = dict[int, InvalidInput]


@dataclass(frozen=True)
class ArmForm:
    """What a policy takes as arms.

    ``support`` is None where steps take rows of d numbers, ``schema`` where there are no records.
    """

    setting: Setting
    support: Support | None = None
    schema: Schema | None = None

    @property
    def size(self) -> int:
        """Numbers that steps are given for an arm."""
        return self.setting.dim if self.support is None else 2 * self.support.width

    @property
    def names(self) -> Sequence[str]:
        """One name for each feature."""
        return [f"feature {i}" for i in range(self.setting.dim)] if self.schema is None else self.schema.names

    @property
    def scales(self) -> FloatArray:
        """The largest absolute value that each feature can have."""
        return np.ones(self.setting.dim) if self.schema is None else self.schema.scales

    def dense(self, rows: FloatArray) -> FloatArray:
        """Rows as steps take them, with all of their d numbers, shape (K, d)."""
        return rows if self.support is None else dense_rows(rows, self.setting.dim)

    def one(self, contexts: npt.ArrayLike | None, user: Record | None, arms: Arms | None) -> FloatArray:
        """The arms of one user, as arrays or as records: shape (1, K, size)."""
        if arms is not None or user is not None:
            _refuse_both(contexts)
            return self._encoded(user, arms)
        self._refuse_arrays(contexts)
        return self.compact(admit_contexts(contexts, self.setting))  # type: ignore[arg-type]

    def many(
        self, contexts: npt.ArrayLike | None, users: Sequence[Record] | None, arms: Arms | None
    ) -> tuple[FloatArray, Refused]:
        """The arms of many users: those that are valid, shape (N, K, size), and for each other user why not."""
        if arms is not None or users is not None:
            _refuse_both(contexts)
            return self._all_encoded(users, arms)
        self._refuse_arrays(contexts)
        block, refused = admit_users(contexts, self.setting)  # type: ignore[arg-type]
        if self.support is None:
            return block, refused
        return self._compact_each(block, refused)

    def rounds(self, contexts: npt.ArrayLike) -> FloatArray:
        """The arms of many rounds, all of them valid or none taken; what a schema encoded is taken too."""
        return self.compact(admit_rounds(contexts, self.setting))

    def compact(self, block: FloatArray) -> FloatArray:
        """Rows of d numbers as steps take them."""
        if self.support is None:
            return block
        rows = np.empty((*block.shape[:2], self.size))
        refused = compacted(block, self.support.block_of, rows)
        if refused < block.shape[0]:
            where = f"user {refused}: " if block.shape[0] > 1 else ""
            raise InvalidInput(where + _TWO_BLOCKS)
        return rows

    def _compact_each(self, block: FloatArray, refused: Refused) -> tuple[FloatArray, Refused]:
        """Users whose rows reach into two blocks join those that are refused already."""
        numbers = [user for user in range(block.shape[0] + len(refused)) if user not in refused]
        kept, errors = [], dict(refused)
        for user, arms in zip(numbers, block, strict=True):
            try:
                kept.append(self.compact(arms[np.newaxis]))
            except InvalidInput as error:
                errors[user] = error
        rows = np.concatenate(kept) if kept else np.empty((0, 1, self.size))
        return rows, dict(sorted(errors.items()))

    def _encoded(self, user: Record | None, arms: Arms | None) -> FloatArray:
        schema = self._known_schema()
        if arms is None:
            raise InvalidInput("select needs arms=[{...}, ...] beside the user: a record for each arm")
        known = {} if user is None else user
        rows = schema.encode(known, arms) if self.support is None else schema.rows(known, arms)
        return np.asarray(rows[np.newaxis])

    def _all_encoded(self, users: Sequence[Record] | None, arms: Any) -> tuple[FloatArray, Refused]:
        schema = self._known_schema()
        if arms is None or users is None:
            raise InvalidInput("select_batch needs users=[{...}, ...] and arms=[{...}, ...]: a record for each")
        rows, refused = schema.rows_of(users, arms)
        return (rows if self.support is not None else schema.dense(rows)), refused

    def _known_schema(self) -> Schema:
        if self.schema is None:
            raise InvalidInput(
                "this policy has no schema to encode user and arms by: make it with features=schema, or pass contexts"
            )
        return self.schema

    def _refuse_arrays(self, contexts: npt.ArrayLike | None) -> None:
        if self.schema is not None:
            raise InvalidInput(
                "this policy has a schema and takes records, not arrays: select(user={...}, arms=[{...}, ...])"
            )
        if contexts is None:
            raise InvalidInput("select needs contexts: the arms of one user as an array of shape (K, d)")


def _refuse_both(contexts: npt.ArrayLike | None) -> None:
    if contexts is not None:
        raise InvalidInput("give contexts as an array, or records of users and arms, not both")


_TWO_BLOCKS = (
    "contexts must have their nonzero entries within one block of features in every row, as this policy was told that "
    "they have: see its option blocks"
)
