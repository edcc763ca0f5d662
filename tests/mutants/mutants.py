"""Sabotage: faults that such software is known for, put in from outside, each to be caught by a named check.

A mutant replaces attributes while it is applied and leaves no trace.  The faults
themselves are in `tests.mutants.faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tacit.policies import persistence
from tacit.policies.baselines.joint_linucb import JointLinUcb
from tacit.policies.decision import Pending
from tacit.policies.joint import JointGLM
from tacit.policies.one_life import PolicyLife
from tacit.policies.stream import StreamGLM
from tests.mutants import faults, faulty_steps
from tests.mutants.checks import CHECKS
from tests.mutants.faults import Change
from tests.mutants.wrong_order import PullBeforeSum

_MISSING: Final = object()


@contextmanager
def changed(*changes: Change) -> Iterator[None]:
    """Put other attributes in place, and the old ones back."""
    before = [(owner, name, present(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            _put(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            _put(owner, name, value)


def present(owner: Any, name: Any) -> Any:
    """What stands there now."""
    return (owner if isinstance(owner, dict) else vars(owner)).get(name, _MISSING)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    elif value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


@dataclass(frozen=True)
class Mutant:
    """A fault, and the check that must find it."""

    name: str
    fault: str
    check: str
    because: str
    """Part of what the check must say: a fault that is found for another reason is not seen."""
    changes: Callable[[], tuple[Change, ...]]

    def caught(self) -> list[str]:
        """What the check finds of the fault while it is in place; nothing: the mutant survives."""
        with changed(*self.changes()):
            return [text for text in CHECKS[self.check]() if self.because in text]


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant("noise-halved", "noise halved", "noise scale", "times what was charged", faults.noise_halved),
    Mutant(
        "sqrt2-missing",
        "sqrt(2) missing",
        "replay of joint-glm",
        "(stream)",
        lambda: faults.row_bound(JointGLM, lambda _: 1.0),
    ),
    Mutant("clip-removed", "one clip removed", "replay of joint-linucb, counts", "measured mu", faults.clip_removed),
    Mutant(
        "late-clip-removed",
        "no clip for rewards that come late",
        "replay of stream-glm, late counts",
        "measured mu",
        faults.late_clip_removed,
    ),
    Mutant(
        "kept-clip-removed",
        "no clip for rewards that are kept",
        "replay of stream-glm, kept counts",
        "measured mu",
        faults.kept_clip_removed,
    ),
    Mutant(
        "noise-reused", "noise of a node reused after restore", "fresh noise", "were used before", faults.noise_reused
    ),
    Mutant(
        "exact-memoised",
        "exact noise drawn earlier is handed out again",
        "fresh exact noise",
        "were drawn before",
        faults.exact_noise_memoised,
    ),
    Mutant(
        "raw-sums-read",
        "choose reads raw sums, after a first release that comes late",
        "contract of choose",
        "choose read one of",
        faults.raw_sums_read,
    ),
    Mutant("noise-redrawn", "noise redrawn for a node", "stream reference", "tree: release", faults.noise_redrawn),
    Mutant(
        "resumed-twice",
        "a copied state goes on twice",
        "resumed once",
        "copies of one state went on",
        lambda: (
            (persistence, "register", lambda token: None),
            (persistence, "_mark", lambda path, token: None),
            (PolicyLife, "go_on", lambda self: None),
        ),
    ),
    Mutant(
        "reward-twice",
        "a reward counted twice",
        "replay of stream-glm",
        "a second reward",
        lambda: ((Pending, "take", lambda self, decision: self.memo(self.find(decision))),),
    ),
    Mutant(
        "private-refresh",
        "refresh triggered by private data",
        "replay of joint-glm, theory",
        "one world",
        faults.private_refresh,
    ),
    Mutant(
        "score-forgotten",
        "sensitivity of the score forgotten",
        "replay of stream-glm",
        "measured mu",
        lambda: faults.row_bound(StreamGLM, faults.without_score),
    ),
    Mutant(
        "fewer-rounds", "ledger charged for fewer rounds", "replay of joint-linucb", "measured mu", faults.fewer_rounds
    ),
    Mutant("message-short", "message one bit short", "message width", "does not fit", faults.message_short),
    Mutant("noise-bit-short", "one bit of noise short", "shuffled noise", "were calibrated", faults.noise_bit_short),
    Mutant("n-min-ignored", "n_min ignored", "smallest batch", "60 are needed", faults.smallest_batch_ignored),
    Mutant(
        "waits-for-rewards",
        "a batch waits for rewards",
        "replay of shuffle-linucb",
        "released in one world only",
        faults.waits_for_rewards,
    ),
    Mutant(
        "opposite-noise",
        "score noise is minus the matrix noise",
        "joint distribution of draws",
        "correlation -1.000",
        faults.opposite_noise,
    ),
    Mutant(
        "late-point",
        "a late row is linearised at its arrival",
        "late rows",
        "when its reward comes",
        lambda: (faults.other_steps(StreamGLM, learn=faulty_steps.linearised_at_arrival),),
    ),
    Mutant(
        "reward-shows",
        "a reward moves what others see",
        "replay of joint-linucb",
        "though all releases are the same",
        lambda: (faults.other_steps(JointLinUcb, learn=faulty_steps.moved_by_a_reward),),
    ),
    Mutant(
        "used-noise-short",
        "two thirds of the drawn noise are added",
        "replay of joint-glm, both optimizers",
        "not a draw of the source",
        faults.used_noise_short,
    ),
    Mutant(
        "group-noise-short",
        "ticks of several users have less noise",
        "replay of joint-linucb, groups",
        "not a draw of the source",
        faults.group_noise_short,
    ),
    Mutant(
        "call-noise-halved",
        "noise of the optimizers halved, charge unchanged",
        "replay of joint-glm, both optimizers",
        "charged as",
        faults.call_noise_halved,
    ),
    Mutant(
        "calls-uncharged",
        "optimizer calls are not charged",
        "replay of joint-glm, both optimizers",
        "charged as []",
        faults.calls_uncharged,
    ),
    Mutant(
        "diameter-short",
        "gradient diameter times 0.7",
        "replay of joint-glm, both optimizers",
        "(theta_",
        faults.diameter_short,
    ),
    Mutant(
        "movers-forgotten",
        "a pair of calls charged D, movers forgotten",
        "replay of joint-glm, movers",
        "(movers)",
        faults.movers_forgotten,
    ),
    Mutant(
        "waiting-leaf-twice",
        "a leaf that waits at an epoch's end counted twice",
        "replay of stream-glm, ends of epochs",
        "measured mu is 1.",
        faults.waiting_leaf_twice,
    ),
    Mutant(
        "carried-twice", "what an epoch carries over doubled", "stream reference", "of epoch 2", faults.carried_twice
    ),
    Mutant("weight-off", "weight of the next leaf", "stream reference", "weighted sum", faults.weight_of_the_next_leaf),
    Mutant("noise-off", "noise of the last leaf", "replay of stream-glm", "drawn with scale", faults.last_leafs_noise),
    Mutant(
        "rounded-late",
        "rows are rounded after they were added up",
        "whole sums",
        "off the grid",
        lambda: (faults.other_steps(StreamGLM, learn=faulty_steps.not_rounded),),
    ),
    Mutant(
        "both-orders",
        "products of two features are added twice",
        "replay of stream-glm, structure",
        "times the charged one",
        lambda: (faults.other_steps(StreamGLM, learn=faulty_steps.in_both_orders),),
    ),
    Mutant(
        "leaf-on-reward",
        "a leaf closes on rewards",
        "replay of stream-glm, absent rewards",
        "boundary differs between the worlds",
        lambda: (faults.other_steps(StreamGLM, learn=faulty_steps.closes_the_leaf),),
    ),
    Mutant(
        "play-disagrees",
        "rounds that are played have less noise",
        "play and select",
        "end in different states",
        faults.played_noise_short,
    ),
    Mutant(
        "recovered-leaf",
        "a recovery keeps the open leaf",
        "recovery",
        "stream.leaf still holds",
        faults.recovers_the_leaf,
    ),
    Mutant(
        "recovered-noise",
        "a recovery draws the noise of another life",
        "recovery",
        "draw the same noise",
        faults.recovers_the_noise,
    ),
    Mutant("unlocked", "two calls at a time", "threads", "at the same time", faults.unlocked),
    Mutant(
        "unmarked",
        "a file that cannot be marked is resumed",
        "files that cannot be marked",
        "a read-only file was resumed",
        faults.mark_given_up,
    ),
    Mutant(
        "reward-unclaimed",
        "a reward after a save does not count as going on",
        "rewards go on",
        "by object and file",
        faults.rewards_unclaimed,
    ),
    Mutant(
        "copied",
        "copies of a private policy go on",
        "copies",
        "goes on",
        lambda: ((PolicyLife, "refuse_copies", lambda self, how: None),),
    ),
    Mutant(
        "batch-refused",
        "a batch is refused for one user's bad arms",
        "errors of others",
        "reported to all",
        faults.batch_refused,
    ),
    Mutant(
        "dominance-short",
        "the dominating Gaussian understates a shift",
        "privacy loss of shuffled sums",
        "is claimed",
        faults.dominance_short,
    ),
    Mutant(
        "pull-first",
        "the ridge's pull is added to exact noise before the sum",
        "exact noise",
        "exclude a neighbour",
        lambda: PullBeforeSum().changes(),
    ),
)
