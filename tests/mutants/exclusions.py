"""Exact noise, read by an attacker: does what became public exclude a neighbouring world with certainty?

Take a policy that is about to release, and a neighbour of it: the same in all that is public, with one user's row
replaced, so that the raw sum is g' and not g.  World 0 draws the noise n and releases g + n.  Had the neighbour been
the real world, the same release would have needed the noise n' = g + n - g', a value on the grid that is exact in
floating point and has a probability above 0.  Play the neighbour with it.  If anything public then differs in a
single bit, no noise at all explains in the neighbour's world what was seen: it is excluded with certainty, where
(epsilon, delta)-DP allows that with probability delta at most.

No neighbour is ever excluded if and only if what becomes public is a function of g + n alone.  A floating-point
program fails that easily: g + (n + c), for a public number c off the grid, is rounded by n and not by g + n alone.

Noise is drawn from a seeded generator and rounded to the grid: what is tested is a statement about every value of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from tacit._validate import integer_at_least
from tacit.audit.rehearsal import audited_policy
from tacit.errors import InvalidInput
from tacit.policies.joint import JointGLM
from tacit.policies.log import DIRECT, Publisher
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten, public_part
from tacit.privacy.continual import Stream, close_leaf, exact_release, is_used_up, leaf_is_due
from tacit.privacy.noise import ExactNoise, Shape
from tacit.typing import FloatArray

_DIM: Final = 3
_ARMS: Final = 5
_SETTING: Final[Mapping[str, Any]] = MappingProxyType(
    {"dim": _DIM, "horizon": 1_500, "theta_bound": 2.0, "epsilon": 4.0, "delta": 1e-5, "noise": "exact"}
)
_SHORT: Final = 0.5
OFF_GRID: Final = "noise off the grid"
"""Not a field: the noise that the neighbour implies is no value that exact noise takes."""


@dataclass(frozen=True)
class Exclusions:
    """How often a neighbour was excluded, and by which public fields."""

    redraws: int
    excluded: int
    moved: int = 0
    """Redraws in which the raw sums of the two worlds differ; only these can tell anything."""
    fields: frozenset[str] = frozenset()

    @property
    def share(self) -> float:
        """Share of the redraws that exclude the neighbour; delta bounds it where the guarantee holds."""
        return self.excluded / self.redraws


@dataclass(frozen=True)
class _Row:
    """One user: arms, and a reward that does not depend on the arm."""

    arms: FloatArray
    reward: float


Action = Callable[[PrivatePolicy, _Row], dict[str, bytes]]
"""What releases; returns what others see of it beside the state."""


def _tick(policy: PrivatePolicy, row: _Row) -> dict[str, bytes]:
    """The next user decides, which closes the leaf, and private optimizers that this asks for are run."""
    return {"arms": policy._decide(row.arms[np.newaxis])[0].tobytes()}


def _report(policy: PrivatePolicy, row: _Row) -> dict[str, bytes]:
    """The user decides and reports; only that user sees the own arm."""
    policy._learn(policy._decide(row.arms[np.newaxis])[1][0], row.reward)
    return {}


def _explore_call(policy: PrivatePolicy, row: _Row) -> dict[str, bytes]:
    """A call of the private optimizer for theta_o."""
    assert isinstance(policy, JointGLM)
    policy._refresh(policy.state.explore, policy.state.exploit)
    return {}


def _exploit_call(policy: PrivatePolicy, row: _Row) -> dict[str, bytes]:
    """A call of the private optimizer for theta_tau."""
    assert isinstance(policy, JointGLM)
    policy._refresh(policy.state.exploit, policy.state.explore)
    return {}


class _Point(NamedTuple):
    """A state in which something is released, and whom of it the neighbour is about."""

    rounds: int
    """Rounds played before."""
    replaced: int
    """The user whose row is replaced; the one who is next, if it is the number of rounds."""
    calls: int = 0
    """Calls of both private optimizers before, in addition to those that come about."""
    length: float = _SHORT
    """Of the arms that the replaced user has in the neighbour's world; it is 1 in world 0."""


@dataclass(frozen=True)
class _Kind:
    """A kind of release, and the states in which it is made."""

    policy: str
    release: Action
    points: tuple[_Point, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


# Boundaries of the geometric schedule, with and without a head start; and leaves that complete tree nodes of many
# levels and of none, which hold the replaced row.
_LEAVES: Final = (_Point(32, 4), _Point(63, 62), _Point(82, 81), _Point(254, 100))
_NODES: Final = (_Point(31, 4), *_LEAVES[1:3], _Point(255, 100))
_TREE: Final = MappingProxyType({"factorization": "tree"})
_BATCHES: Final = MappingProxyType({"first_batch": 32})  # released after 32 and 64 decisions
# An optimizer's first call begins at the ridge's center, where nothing pulls, so that later ones are of interest.
_EXPLORING: Final = (_Point(100, 10, 1), _Point(200, 10, 1, 1.0), _Point(300, 20, 1), _Point(600, 10, 2, 1.0))
_EXPLOITING: Final = (
    _Point(600, 598, 0, 1.0),
    _Point(600, 598, 1, 1.0),
    _Point(800, 30, 1),
    _Point(1_000, 980, 1, 1.0),
)
# Two calls of each optimizer are allowed; the number of steps grows with the rounds, from 10 to 80 here.
_THEORY: Final = (_Point(16, 3, 1), _Point(24, 20), _Point(32, 10, 1), _Point(48, 30, 1))
# With the paper's own constant every round explores up to this horizon, and theta_tau has no data.
_PAPER: Final = MappingProxyType({"profile": "theory", "constant": 0.02})
_KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        "leaf of stream-glm": _Kind("stream-glm", _tick, _LEAVES),
        "leaf of stream-glm, tree": _Kind("stream-glm", _tick, _NODES, _TREE),
        "leaf of joint-linucb": _Kind("joint-linucb", _tick, _LEAVES),
        "leaf of joint-linucb, tree": _Kind("joint-linucb", _tick, _NODES, _TREE),
        "leaf of joint-glm": _Kind("joint-glm", _tick, _LEAVES),
        "leaf of joint-glm, tree": _Kind("joint-glm", _tick, _NODES, _TREE),
        "gradient of theta_o, tuned": _Kind("joint-glm", _explore_call, _EXPLORING),
        "gradient of theta_tau, tuned": _Kind("joint-glm", _exploit_call, _EXPLOITING),
        "gradient of theta_o, theory": _Kind("joint-glm", _explore_call, _THEORY, _PAPER),
        "gradient of theta_tau, theory": _Kind("joint-glm", _exploit_call, _THEORY, _PAPER),
        "batch of adaprivate-ts": _Kind("adaprivate-ts", _tick, (_Point(32, 4), _Point(64, 40)), _BATCHES),
        "report of local-glm": _Kind("local-glm", _report, (_Point(10, 10), _Point(60, 60))),
        "report of ldp-linucb": _Kind("ldp-linucb", _report, (_Point(10, 10), _Point(60, 60))),
    }
)
KINDS: Final = tuple(_KINDS)
"""All kinds of releases under exact noise: the shuffle model has none, its noise consists of integers anyway."""


def count_exclusions(kind: str, redraws: int, seed: int) -> Exclusions:
    """Draw the noise of a release of ``kind`` anew ``redraws`` times; how often is the neighbour excluded?"""
    if kind not in _KINDS:
        raise InvalidInput(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    integer_at_least("redraws", redraws, 1)
    chosen = _KINDS[kind]
    excluded, moved, fields = 0, 0, set[str]()
    for index, point in enumerate(chosen.points):
        pair = _Neighbours.at(chosen, point, np.random.default_rng((seed, index)))
        for _ in range(index, redraws, len(chosen.points)):
            differs, differing = pair.redraw(chosen.release)
            moved += differs
            excluded += bool(differing)
            fields |= differing
    return Exclusions(redraws, excluded, moved, frozenset(fields))


# Noise that was chosen before, and releases that are watched


class _SeededNoise(ExactNoise):
    """The grid and the accounting of exact noise, with draws that can be repeated."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        grid = self.grid or 1.0
        return np.asarray(grid * self.integers(scale / grid, shape))

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return np.asarray(np.rint(parameter * self._rng.standard_normal(shape)))


class _ChosenNoise(ExactNoise):
    """Hands out noise vectors that were chosen before, in order."""

    def __init__(self, vectors: Iterable[FloatArray]) -> None:
        super().__init__()
        self._vectors = deque(vectors)

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        count = 1 if isinstance(shape, int) else shape[0]
        if count > len(self._vectors):
            raise InvalidInput("a world draws more noise than its neighbour: their releases differ in number")
        drawn = np.array([self._vectors.popleft() for _ in range(count)])
        return drawn.reshape(shape)

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return self.gaussian(parameter, shape)


class _Watched(Publisher):
    """Writes down the noise of every release: of ticks and reports, and of the optimizers' gradients."""

    def __init__(self) -> None:
        self.ticks: list[FloatArray] = []
        self.events: list[FloatArray] = []

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        if leaf_is_due(stream) and not is_used_up(stream):
            noise = np.asarray(self._noise(exact_release(stream), noise), dtype=np.float64)
            self.ticks.append(noise)
        return close_leaf(stream, noise, users)

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        noise = self._noise(exact, noise)
        (self.ticks if kind == "report" else self.events).append(noise)
        return exact + noise

    def _noise(self, exact: FloatArray, noise: FloatArray) -> FloatArray:
        raise NotImplementedError


class _Written(_Watched):
    """World 0: releases with the noise that was drawn, and keeps what it released."""

    def __init__(self) -> None:
        super().__init__()
        self.released: deque[FloatArray] = deque()

    def _noise(self, exact: FloatArray, noise: FloatArray) -> FloatArray:
        self.released.append(exact + noise.astype(exact.dtype))
        return noise.copy()


class _Implied(_Watched):
    """The neighbour: the noise is what makes the releases those of world 0."""

    def __init__(self, released: deque[FloatArray]) -> None:
        super().__init__()
        self._released = released

    def _noise(self, exact: FloatArray, noise: FloatArray) -> FloatArray:
        return np.asarray(self._released.popleft() - exact)


# Two worlds


class _Moment:
    """A policy between two calls, to come back to."""

    def __init__(self, policy: PrivatePolicy) -> None:
        self._state = policy.state
        self._arrays = {path: array.copy() for path, array in flatten(policy.state).items()}
        self._coins = deepcopy(policy.randomness.coins)
        self._entries = policy.ledger.entries
        self._ledger = deepcopy(policy.ledger)

    def bring_back(self, policy: PrivatePolicy) -> None:
        """Make the policy what it was."""
        policy.state, policy._clock.ticks_left = self._state, 0
        for path, array in flatten(policy.state).items():
            array[...] = self._arrays[path]
        policy.randomness = replace(policy.randomness, coins=deepcopy(self._coins))
        if policy.ledger.entries != self._entries:
            policy.ledger = deepcopy(self._ledger)


@dataclass
class _Neighbours:
    """Two policies that are the same in all that is public, and the rows of the users who are about to act."""

    policies: tuple[PrivatePolicy, PrivatePolicy]
    rows: tuple[_Row, _Row]
    rng: np.random.Generator

    @classmethod
    def at(cls, kind: _Kind, point: _Point, rng: np.random.Generator) -> _Neighbours:
        """Play up to ``point`` in worlds that differ in one user's row."""
        policies = [audited_policy(kind.policy, seed=0, **_SETTING, **kind.options) for _ in range(2)]
        pair = cls((policies[0], policies[1]), (_random_row(rng),) * 2, rng)
        replaced = _random_row(rng, 1.0), _random_row(rng, point.length)
        for user in range(point.rounds):
            pair.rows = replaced if user == point.replaced else (_random_row(rng),) * 2
            pair.both(_round)
        for _ in range(point.calls):
            pair.both(_explore_call)
            pair.both(_exploit_call)
        pair.rows = replaced if point.rounds == point.replaced else (_random_row(rng),) * 2
        return pair

    def both(self, action: Action) -> tuple[_Watched, _Watched]:
        """Do the same in both worlds, the releases of world 0 being those of the neighbour; how it was done."""
        written = _Written()
        watched = written, _Implied(written.released)
        for policy, publisher, row in zip(self.policies, watched, self.rows, strict=True):
            policy.publisher = publisher
            noise = _SeededNoise(self.rng)
            policy.randomness = replace(policy.randomness, ticks=noise, events=noise)
            action(policy, row)
            policy.publisher = DIRECT
        # Where the program is at fault they may differ by now, and are neighbours again after this.
        mine, theirs = (public_part(policy.state) for policy in self.policies)
        for path, array in theirs.items():
            array[...] = mine[path]
        return watched

    def redraw(self, release: Action) -> tuple[bool, set[str]]:
        """Whether raw sums differ, and what differs in public when the release is made with noise that hides them."""
        moments = [_Moment(policy) for policy in self.policies]
        watched = self.both(release)
        outcomes = []
        for policy, noise, moment, row in zip(self.policies, watched, moments, self.rows, strict=True):
            moment.bring_back(policy)
            ticks, events = _ChosenNoise(noise.ticks), _ChosenNoise(noise.events)
            policy.randomness = replace(policy.randomness, ticks=ticks, events=events)
            outcomes.append(release(policy, row) | _public(policy))
            moment.bring_back(policy)
        first, second = outcomes
        differing = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
        drawn, implied = ([*noise.ticks, *noise.events] for noise in watched)
        if not all(_on_grid(vector) for vector in (*drawn, *implied)):
            differing.add(OFF_GRID)
        return any(not np.array_equal(*vectors) for vectors in zip(drawn, implied, strict=True)), differing


def _round(policy: PrivatePolicy, row: _Row) -> dict[str, bytes]:
    policy.update(policy.select(row.arms), row.reward)
    return {}


def _random_row(rng: np.random.Generator, length: float | None = None) -> _Row:
    """Long arms, for which `joint-glm` explores in its first rounds, or short ones, for which it hardly ever does."""
    if length is None:
        length = 1.0 if rng.random() < 0.8 else _SHORT
    arms = rng.standard_normal((_ARMS, _DIM))
    return _Row(length * arms / np.linalg.norm(arms, axis=1, keepdims=True), float(rng.random()))


def _public(policy: PrivatePolicy) -> dict[str, bytes]:
    """All that others may see, byte by byte."""
    fields = {path: array.tobytes() for path, array in public_part(policy.state).items()}
    entries = policy.ledger.entries if policy.ledger else ()
    return fields | {"ledger": "\n".join(map(str, entries)).encode()}


def _on_grid(vector: FloatArray) -> bool:
    grid = ExactNoise().grid or 0.0
    steps = vector / grid  # a power of two: exact
    return bool(np.all((steps == np.rint(steps)) & (np.abs(steps) < 2.0**53)))
