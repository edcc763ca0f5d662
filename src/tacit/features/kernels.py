"""From what records say to rows: one kernel for one user's arms, for many users and for columns alike.

A record becomes *slots*: each slot is a value and a position within its field's vector, and a position of -1 stands for
nothing.  The first slot of every record is the constant 1.  A *term* multiplies some slots of the user by some of the
arm; its coordinates are a range, by the user's position first and the arm's second.

A row is compact: ``width`` values, then as many positions as floats, the rest padded with 0 and -1.  Positions come out
in increasing order by themselves: terms and the slots of a field are in this order, and what `order` rearranges is
blocks, of which a row has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tacit._compile import Entry, entry, kernel
from tacit._compile.kinds import Kinds, array_kind
from tacit.typing import FloatArray, IntArray


class Slots(NamedTuple):
    """What some records say, a line for each."""

    values: FloatArray
    positions: IntArray


@entry
def centre(values: FloatArray, lows: FloatArray, highs: FloatArray) -> None:
    """Bring numbers from [low, high] to [-1, 1], in place: outside is cut, NaN is 0.  Slots without a range stay."""
    for n in range(values.shape[0]):
        for s in range(values.shape[1]):
            low, high, value = lows[s], highs[s], values[n, s]
            if low < high:
                if value <= low:
                    values[n, s] = -1.0
                elif value >= high:
                    values[n, s] = 1.0
                elif value > low:
                    values[n, s] = 2.0 * ((value - low) / (high - low)) - 1.0
                else:  # NaN
                    values[n, s] = 0.0


@kernel
def _fill_row(
    terms: IntArray,
    factors: FloatArray,
    order: IntArray,
    user_values: FloatArray,
    user_positions: IntArray,
    arm_values: FloatArray,
    arm_positions: IntArray,
    row: FloatArray,
) -> None:
    """One row: entries that are 0 are left out."""
    width, filled = row.shape[0] // 2, 0
    for t in range(terms.shape[0]):
        for i in range(terms[t, 0], terms[t, 1]):
            for j in range(terms[t, 2], terms[t, 3]):
                if user_positions[i] >= 0 and arm_positions[j] >= 0:
                    value = factors[t] * (user_values[i] * arm_values[j])
                    if value != 0.0:
                        row[filled] = value
                        raw = terms[t, 4] + user_positions[i] * terms[t, 5] + arm_positions[j]
                        row[width + filled] = order[raw]
                        filled += 1
    for i in range(filled, width):
        row[i] = 0.0
        row[width + i] = -1.0


@entry
def fill_rows(
    terms: IntArray,
    factors: FloatArray,
    order: IntArray,
    user_values: FloatArray,
    user_positions: IntArray,
    arm_values: FloatArray,
    arm_positions: IntArray,
    rows: FloatArray,
) -> None:
    """The rows of N users with K arms each, shape (N, K, 2 width).

    There are N K arms, the first K of them those of the first user, or K that all users have in common.
    """
    users, arms = rows.shape[0], rows.shape[1]
    step = arms if arm_values.shape[0] == users * arms else 0
    for n in range(users):
        for k in range(arms):
            arm = n * step + k
            _fill_row(
                terms,
                factors,
                order,
                user_values[n],
                user_positions[n],
                arm_values[arm],
                arm_positions[arm],
                rows[n, k],
            )


@entry
def scatter(rows: FloatArray, out: FloatArray) -> bool:
    """Compact rows, shape (N, 2 width), written into dense ones of zeros, shape (N, d); False if a position is none."""
    width, dim = rows.shape[1] // 2, out.shape[1]
    for n in range(rows.shape[0]):
        for i in range(width):
            position = rows[n, width + i]
            if not -1.0 <= position < dim:
                return False
            if position >= 0.0:
                out[n, int(position)] = rows[n, i]
    return True


class Bound:
    """An entry for arguments of kinds known in advance: called without a look at them, in the best form there is."""

    def __init__(self, bound: Entry[..., Any], kinds: Kinds) -> None:
        self._entry, self._kinds = bound, kinds
        self.call: Callable[..., Any] = self._first

    def _first(self, *arguments: Any) -> Any:
        """Nothing is compiled or loaded before there is something to do."""
        self._bind()
        return self.call(*arguments)

    def _bind(self) -> None:
        self.call = self._entry.bound(self._kinds, self._bind)


_NUMBERS, _TABLE, _BLOCK = array_kind(1), array_kind(2), array_kind(3)
_INTEGERS, _INTEGER_TABLE = array_kind(1, "<i8"), array_kind(2, "<i8")
_SLOTS: Kinds = (_TABLE, _INTEGER_TABLE)
CENTRE = Bound(centre, (_TABLE, _NUMBERS, _NUMBERS))
FILL_ROWS = Bound(fill_rows, (_INTEGER_TABLE, _NUMBERS, _INTEGERS, *_SLOTS, *_SLOTS, _BLOCK))
SCATTER = Bound(scatter, (_TABLE, _TABLE))
