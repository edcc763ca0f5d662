"""A tick that is interrupted after any line of it: rows may be lost, and none is released for more than was charged."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tacit.privacy import continual
from tacit.privacy.continual import ContinualRelease, Stream, close_leaf, contribute, plan_release, start_epoch
from tacit.privacy.noise import FastNoise
from tacit.typing import FloatArray

SIZE, LEAVES, INTERRUPTED = 2, 24, 9
FOLDER = Path(continual.__file__).parent
PLACES = {str(FOLDER / name) for name in ("continual.py", "geometric.py", "tree.py", "toeplitz.py")}


class Interrupted(Exception):  # noqa: N818 - reads as a statement
    """Stands for a signal."""


def interrupted_at(line: int, action: Callable[[], Any]) -> bool:
    """Do ``action`` and interrupt it before the line of this number of those that run; False when there are fewer."""
    seen = 0

    def watch(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in PLACES:
            return None
        if event == "line":
            seen += 1
            if seen > line:
                sys.settrace(None)
                raise Interrupted
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        action()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def plan_of(kind: str) -> ContinualRelease:
    source = FastNoise(np.random.default_rng(0))
    return plan_release(
        "test", SIZE, row_bound=2.0, row_norm=1.0, mu=1.0, factorization=kind, horizon=64, source=source
    )


def noise_for(stream: Stream, rng: np.random.Generator) -> FloatArray:
    scale = continual.leaf_noise_scale(stream)
    drawn = scale * rng.standard_normal(SIZE)
    return np.rint(drawn) if continual.counts_decisions(stream) else drawn


class Shown:
    """Everything that a stream made public, as noisy numbers in the order in which they were first seen."""

    def __init__(self) -> None:
        self.values: list[tuple[FloatArray, float]] = []
        self._last: dict[Any, bytes] = {}

    def look(self, stream: Stream) -> None:
        """Note what has changed: nodes of a tree, or the weighted sum."""
        mechanism: Any = stream.mechanism
        public = enumerate(mechanism.noisy) if hasattr(mechanism, "noisy") else [("sum", mechanism.observed)]
        for place, value in public:
            if self._last.get(place, np.zeros_like(value).tobytes()) != value.tobytes():
                self._last[place] = value.tobytes()
                self.values.append((value.astype(np.float64), self.scale))

    scale = 0.0


def lived(kind: str, line: int | None, change: FloatArray, user: int, at: int = INTERRUPTED) -> tuple[Shown, bool]:
    """Rounds of a stream in which one row is moved by ``change`` and one tick is interrupted; all else is seeded."""
    plan, rng, noises = plan_of(kind), np.random.default_rng(1), np.random.default_rng(2)
    stream, shown, found = plan.open(), Shown(), False
    for t in range(LEAVES):
        for attempt in range(2 if t == at and line is not None else 1):
            noise = noise_for(stream, noises) if stream.mechanism.is_due else np.zeros(SIZE)
            shown.scale = continual.leaf_noise_scale(stream)
            if t == at and line is not None and attempt == 0:
                found = interrupted_at(line, partial(close_leaf, stream, noise, 1))
                shown.look(stream)
                if not found:
                    break
            else:
                close_leaf(stream, noise, 1)
                shown.look(stream)
        row = 0.5 * rng.standard_normal(SIZE)
        contribute(stream, 0, np.atleast_2d(row + change if t == user else row))
    return shown, found


def spent(kind: str, line: int | None, user: int) -> tuple[float, bool]:
    """mu of everything that was shown, for one row that moves by 1 in its first number."""
    change = np.array([1.0, 0.0])
    (base, found), (other, _) = (lived(kind, line, factor * change, user) for factor in (0.0, 1.0))
    assert len(base.values) == len(other.values)
    grid = plan_of(kind).open().constants.grid if kind == "geometric" else 1.0
    squares = 0.0
    for (first, scale), (second, _) in zip(base.values, other.values, strict=True):
        shift = (second - first) * (grid if kind == "geometric" else 1.0)
        squares += float(shift @ shift) / (scale * (grid if kind == "geometric" else 1.0)) ** 2
    return squares**0.5, found


@pytest.mark.parametrize("kind", ["tree", "geometric"])
@pytest.mark.parametrize("user", [2, 7, 8, 9])
def test_no_line_of_a_tick_can_be_interrupted_for_a_second_release(kind: str, user: int) -> None:
    plan = plan_of(kind)
    charged = (1.0 + plan.rounding_slack) * plan.factorization.column_norm / plan.noise_sd
    assert 0.3 * charged < spent(kind, None, user)[0] <= charged * (1.0 + 1e-9)
    line = 0
    while True:
        found, interrupted = spent(kind, line, user)
        if not interrupted:
            break
        assert found <= charged * (1.0 + 1e-9), f"interrupted before line {line}: {found / charged:.3f} of the charge"
        line += 1
    assert line > 10


def test_a_leaf_that_is_emptied_last_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that the test is about, turned round."""

    def wrong(stream: Stream, noise: FloatArray, users: int) -> bool:
        mechanism = stream.mechanism
        if mechanism.is_due:
            mechanism.release(stream.closed, stream.leaf.copy(), noise, float(stream.noise_sd[()]), stream.released)
            mechanism.count_decisions(0)
            stream.leaf[:] = 0.0
        mechanism.count_decisions(users)
        return True

    monkeypatch.setitem(globals(), "close_leaf", wrong)
    monkeypatch.setitem(globals(), "PLACES", PLACES | {__file__})
    plan = plan_of("tree")
    charged = (1.0 + plan.rounding_slack) * plan.factorization.column_norm / plan.noise_sd
    shares = [spent("tree", line, 8)[0] / charged for line in range(40)]
    assert max(shares) > 1.0


def test_an_interrupted_prefix_sum_is_a_function_of_those_without_interruption() -> None:
    plan, line = plan_of("toeplitz"), 0
    while True:
        rng, noises = np.random.default_rng(1), np.random.default_rng(2)
        whole, torn, seen, shown = plan.open(), plan.open(), [np.zeros(SIZE)], []
        for t in range(LEAVES):
            noise = plan.noise_sd * noises.standard_normal(SIZE)
            close_leaf(whole, noise, 1)
            seen.append(whole.released.copy())
            if t != INTERRUPTED:
                close_leaf(torn, noise, 1)
            elif not interrupted_at(line, partial(close_leaf, torn, noise, 1)):
                assert line > 5
                return
            shown.append(torn.released.copy())
            row = np.atleast_2d(0.5 * rng.standard_normal(SIZE))
            contribute(whole, 0, row)
            contribute(torn, 0, row)
        buffered = torn.closed[()] == whole.closed[()]
        missing = seen[INTERRUPTED + 1] - seen[INTERRUPTED]
        for t in range(INTERRUPTED + 1, LEAVES):
            published = np.allclose(shown[t], seen[t + 1], atol=1e-9)
            lost = np.allclose(shown[t], seen[t + 1] - missing, atol=1e-9)
            if buffered:
                assert published or lost, line
        line += 1


@pytest.mark.parametrize("kind", ["tree", "geometric", "toeplitz"])
def test_an_epoch_that_is_interrupted_never_meets_rows_of_the_last_one(kind: str) -> None:
    """Raw sums are emptied before the clock goes back to where noise is small."""
    line = 0
    while True:
        plan, noises = plan_of(kind), np.random.default_rng(2)
        stream = plan.open()
        for _ in range(LEAVES):
            close_leaf(stream, noise_for(stream, noises) if stream.mechanism.is_due else np.zeros(SIZE), 1)
            contribute(stream, 0, np.full((1, SIZE), 0.5))
        mechanism: Any = stream.mechanism
        epochs = int(stream.epochs[()])
        interrupted = interrupted_at(line, partial(start_epoch, stream, plan))
        if kind == "geometric" and mechanism.decisions[()] == 0:
            assert not np.any(mechanism.weighted)
        if kind == "tree" and stream.closed[()] == 0:
            assert not np.any(mechanism.sums)
        begun = mechanism.decisions[()] == 0 if kind == "geometric" else stream.closed[()] == 0
        assert not begun or stream.epochs[()] == epochs + 1
        if not interrupted:
            assert begun
            assert line > 5
            return
        line += 1
