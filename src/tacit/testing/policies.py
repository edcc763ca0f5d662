"""What every policy must do, as checks of any policy that is registered.

Policies are small ones: 3 features, a horizon of 400 decisions, and private ones at epsilon 4 and delta 0.01.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from tacit.audit.contracts import Contract, Subject, contracts_for
from tacit.errors import CorruptState, InvalidInput, StateInUse
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.decision import Decision
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import load, make_policy, policy_class
from tacit.testing.links import Checks, require
from tacit.typing import FloatArray

DIM: Final = 3
ARMS: Final = 6
HORIZON: Final = 400
EPSILON: Final = 4.0
DELTA: Final = 0.01


@dataclass(frozen=True)
class Candidate:
    """A policy to be checked: the name that it is registered by, and options that it needs beyond the usual ones."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether the policy claims a guarantee."""
        return policy_class(self.name).guarantee != "none"

    @property
    def link(self) -> str:
        """The link that the policy is made with: logistic where it takes that."""
        links = policy_class(self.name).links
        return "logistic" if "logistic" in links else next(iter(links))

    def make(self, seed: int | None = 3, **changes: Any) -> Policy:
        """Make the small policy anew, with some arguments changed."""
        told: dict[str, Any] = {"dim": DIM, "horizon": HORIZON, "link": self.link, "theta_bound": 2.0, "seed": seed}
        budget = {"epsilon": EPSILON, "delta": DELTA} if self.private else {}
        return make_policy(self.name, **(told | budget | dict(self.options) | changes))


def rounds(count: int, seed: int = 11) -> tuple[FloatArray, FloatArray]:
    """Draw contexts of ``count`` users and the reward of every arm."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, ARMS, DIM))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    theta = np.array([1.5, -1.0, 0.5])
    rewards = (rng.random((count, 1)) < 1.0 / (1.0 + np.exp(-contexts @ theta))).astype(np.float64)
    return contexts, rewards


def walk(policy: Policy, contexts: FloatArray, rewards: FloatArray) -> list[int]:
    """Call ``select`` and ``update`` in turn, and return the arms."""
    arms = []
    for arms_of_user, outcome in zip(contexts, rewards, strict=True):
        decision = policy.select(arms_of_user)
        policy.update(decision, float(outcome[decision.arm]))
        arms.append(decision.arm)
    return arms


@contextmanager
def _refused(words: str, kind: type[Exception] = InvalidInput) -> Iterator[None]:
    """Require that what is done inside raises an error whose message has these words, a regular expression."""
    try:
        yield
    except kind as error:
        if not re.search(words, str(error)):
            raise AssertionError(f"the error {str(error)!r} should say {words!r}") from error
    else:
        raise AssertionError(f"{kind.__name__} about {words!r} was expected, and nothing was refused")


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder for states, which also keeps the tokens of resumed ones."""
    with TemporaryDirectory() as folder, patch.dict(os.environ, TACIT_STATE_DIR=str(Path(folder, "registry"))):
        yield Path(folder)


def seeds_decide(candidate: Candidate) -> None:
    """Equal seeds give equal arms and states; another seed gives a private policy another state."""
    contexts, rewards = rounds(120)
    first, second = candidate.make(), candidate.make()
    assert walk(first, contexts, rewards) == walk(second, contexts, rewards), "arms differ with the same seed"
    assert first.fingerprint() == second.fingerprint(), "states differ with the same seed"
    if candidate.private:
        third = candidate.make(seed=4)
        walk(third, contexts, rewards)
        assert third.fingerprint() != first.fingerprint(), "states are the same with another seed: there is no noise"


def play_is_select_and_update_in_turn(candidate: Candidate) -> None:
    """``play`` gives the arms that ``select`` and ``update`` give one by one, then and later."""
    contexts, rewards = rounds(150)
    by_hand, at_once = candidate.make(), candidate.make()
    assert walk(by_hand, contexts, rewards) == list(at_once.play(contexts, rewards)), "play gives other arms"
    rest, outcome = rounds(60, seed=12)
    assert walk(by_hand, rest, outcome) == walk(at_once, rest, outcome), "play leaves another state"


def a_loaded_policy_goes_on(candidate: Candidate) -> None:
    """A policy that is saved and loaded goes on as if nothing had happened, rewards that it waits for included."""
    contexts, rewards = rounds(200)
    whole, split = candidate.make(), candidate.make()
    expected = walk(whole, contexts, rewards)
    arms = walk(split, contexts[:90], rewards[:90])
    waiting = split.select(contexts[90])
    with _folder() as folder:
        split.save(folder / "state")
        loaded = load(folder / "state")
    assert loaded.fingerprint() == split.fingerprint(), "the loaded state is another one"
    loaded.update(waiting.id, float(rewards[90, waiting.arm]))
    arms += [waiting.arm, *walk(loaded, contexts[91:], rewards[91:])]
    assert arms == expected, "arms differ after loading"
    assert loaded.fingerprint() == whole.fingerprint(), "states differ after loading"


def rewards_may_be_late_or_missing(candidate: Candidate) -> None:
    """Rewards may come late, in any order, or never; a second one for a decision is refused."""
    contexts, rewards = rounds(120)
    policy = candidate.make()
    decisions = [policy.select(user) for user in contexts]
    order = np.random.default_rng(0).permutation(len(decisions))
    for position in order[:80]:
        decision = decisions[position]
        policy.update(decision.id, float(rewards[position, decision.arm]))
    with _refused("already has its reward"):
        policy.update(decisions[order[0]], 1.0)
    policy.select(contexts[0])
    policy.update(decisions[order[100]], 1.0)


def bad_input_changes_nothing(candidate: Candidate) -> None:
    """Bad contexts, rewards and decisions are refused by name, and leave the state as it was."""
    contexts, rewards = rounds(40)
    policy = candidate.make()
    walk(policy, contexts, rewards)
    waiting = policy.select(contexts[0])
    good = contexts[0]
    with_nan, too_long = good.copy(), good.copy()
    with_nan[1, 1] = np.nan
    too_long[2] = 1.0
    before = policy.fingerprint()
    shapes: tuple[Any, ...] = (good[:, :2], good[0], np.zeros((0, DIM)), "text", [[1, 2], [3]], None)
    for bad in (*shapes, with_nan, too_long, np.inf * good):
        with _refused("contexts"):
            policy.select(bad)
    too_large: list[Any] = [] if policy.setting.link.clips_rewards else [1.1 * policy.setting.reward_bound]
    for bad in (*too_large, -0.1, math.nan, math.inf, "much", None):
        with _refused("reward"):
            policy.update(waiting, bad)
    unknown: tuple[Any, ...] = (waiting.id + 1, -1, 0, "0", None, 1.5, True)
    for bad in unknown:
        with _refused("decision"):
            policy.update(bad, 1.0)
    for bad in (*too_large, -0.5):
        with _refused("rewards"):
            policy.play(contexts, np.full_like(rewards, bad))
    with _refused("shape"):
        policy.play(contexts, rewards[:-1])
    assert policy.fingerprint() == before, "a refused call changed the state"


def arm_sets_may_change_in_size(candidate: Candidate) -> None:
    """Users may have different numbers of arms, also a single one."""
    policy = candidate.make()
    for count in (1, 5, 2, 30):
        decision = policy.select(np.full((count, DIM), 0.1))
        assert 0 <= decision.arm < count, f"arm {decision.arm} of {count}"
        policy.update(decision, 1.0)


def zero_and_identical_arms_are_fine(candidate: Candidate) -> None:
    """Arms of zeros, and arms that are all the same, are no error."""
    policy = candidate.make()
    for _ in range(30):
        policy.update(policy.select(np.zeros((ARMS, DIM))), 0.0)
    arms = policy.play(np.full((50, ARMS, DIM), 0.3), np.ones((50, ARMS)))
    assert np.all((arms >= 0) & (arms < ARMS)), "an arm that was not offered"


def decisions_go_on_after_the_horizon(candidate: Candidate) -> None:
    """After the horizon decisions go on, and nothing is spent that was not planned."""
    contexts, rewards = rounds(HORIZON + 30)
    policy = candidate.make()
    policy.play(contexts[:HORIZON], rewards[:HORIZON])
    spent, charged = policy.privacy.spent_mu, len(policy.ledger.entries) if isinstance(policy, PrivatePolicy) else 0
    walk(policy, contexts[HORIZON:], rewards[HORIZON:])
    assert policy.decisions == HORIZON + 30
    if policy.privacy.spent_mu != spent:  # calls that the budget was reserved for may come late
        assert isinstance(policy, ContinualPolicy), "the ledger went on after the horizon"
        added = {entry.event.name for entry in policy.ledger.entries[charged:]}
        assert added <= {event.name for event in policy._planned_calls()}, f"{added} were charged after the horizon"
    assert policy.privacy.spent_epsilon <= policy.privacy.target_epsilon * (1.0 + 1e-9), "the budget was exceeded"


def old_decisions_expire(candidate: Candidate) -> None:
    """With ``reward_window`` a decision waits for as many later ones as that says, and no longer."""
    policy = candidate.make(reward_window=5)
    contexts, _ = rounds(8)
    decisions = [policy.select(user) for user in contexts]
    with _refused("expired"):
        policy.update(decisions[2], 1.0)
    policy.update(decisions[3], 1.0)


def a_batch_is_decided_on_one_tick(candidate: Candidate) -> None:
    """``select_batch`` decides for all of its users, whose rewards are then taken; an empty batch is fine."""
    policy = candidate.make()
    contexts, rewards = rounds(20)
    decisions = [decision for decision in policy.select_batch(contexts) if isinstance(decision, Decision)]
    assert [decision.id for decision in decisions] == list(range(20)), "a user of the batch has no decision"
    for decision, outcome in zip(decisions, rewards, strict=True):
        policy.update(decision, float(outcome[decision.arm]))
    assert policy.select_batch(np.zeros((0, ARMS, DIM))) == []
    with _refused("contexts"):
        policy.select_batch(contexts[0])


def bad_arguments_are_refused(candidate: Candidate) -> None:
    """Unknown options and links, and arguments out of their range, are refused with what is possible."""
    with _refused("nonsense"):
        candidate.make(nonsense=1)
    with _refused(candidate.link, ValueError):
        candidate.make(link="cauchit")
    bad: list[dict[str, Any]] = [{"dim": 0}, {"horizon": 0}, {"theta_bound": -1.0}, {"theta_bound": math.nan}]
    bad.append({"reward_bound": 0.0})
    if candidate.private:
        bad += [{"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"rounds_per_user": 0}]
        bad.append({"epsilon": None})
    for change in bad:
        with _refused(next(iter(change))):
            candidate.make(**change)


def corrupt_files_are_refused(candidate: Candidate) -> None:
    """A file that is cut short, changed, something else or missing is not loaded."""
    with _folder() as folder:
        path = folder / "state"
        candidate.make().save(path)
        whole = path.read_bytes()
        for damaged in (b"", b"nonsense", whole[: len(whole) // 2], whole[:200] + b"\x00\xff" + whole[202:]):
            path.write_bytes(damaged)
            with _refused("", CorruptState):
                load(path)
        with _refused("missing", FileNotFoundError):
            load(folder / "missing")


def the_budget_is_kept(candidate: Candidate) -> None:
    """A private policy spends some of its budget, never more, and its report says so."""
    contexts, rewards = rounds(HORIZON)
    policy = candidate.make()
    policy.play(contexts, rewards)
    report = policy.privacy
    assert 0.0 < report.spent_epsilon <= EPSILON * (1.0 + 1e-9), f"epsilon {report.spent_epsilon} of {EPSILON} is spent"
    text = str(report)
    for words in (f"epsilon = {EPSILON:g}", policy.guarantee, policy.randomness.ticks.describe()):
        assert words.lower() in text.lower(), f"the report does not say {words!r}"


def without_a_limit_there_is_no_noise(candidate: Candidate) -> None:
    """With an infinite epsilon a private policy has no noise, and its report says so."""
    contexts, rewards = rounds(100)
    first, second = candidate.make(epsilon=math.inf, seed=1), candidate.make(epsilon=math.inf, seed=2)
    if not first._coin_count:
        assert walk(first, contexts, rewards) == walk(second, contexts, rewards), "there is noise without a limit"
    assert "noise is off" in str(first.privacy), "the report does not say that noise is off"


def a_state_is_resumed_once(candidate: Candidate) -> None:
    """A saved state of a private policy is resumed once, copies included, and not after the policy went on."""
    contexts, rewards = rounds(30)
    policy = candidate.make()
    walk(policy, contexts, rewards)
    with _folder() as folder:
        original, copy = folder / "original", folder / "copy"
        policy.save(original)
        policy.select(contexts[0])
        with _refused("already", StateInUse):
            load(original)
        policy.save(original)
        shutil.copy(original, copy)
        loaded = load(original)
        for path in (original, copy):
            with _refused("already", StateInUse):
                load(path)
        with _refused("already", StateInUse):
            policy.select(contexts[0])
        walk(loaded, contexts, rewards)


EVERY_POLICY: Final[tuple[Callable[[Candidate], None], ...]] = (
    seeds_decide,
    play_is_select_and_update_in_turn,
    a_loaded_policy_goes_on,
    rewards_may_be_late_or_missing,
    bad_input_changes_nothing,
    arm_sets_may_change_in_size,
    zero_and_identical_arms_are_fine,
    decisions_go_on_after_the_horizon,
    old_decisions_expire,
    a_batch_is_decided_on_one_tick,
    bad_arguments_are_refused,
    corrupt_files_are_refused,
)
PRIVATE_POLICIES: Final[tuple[Callable[[Candidate], None], ...]] = (
    the_budget_is_kept,
    without_a_limit_there_is_no_noise,
    a_state_is_resumed_once,
)


def policy_checks(name: str, **options: Any) -> Checks:
    """List what a policy must do, one check for each requirement.

    Those of single steps (`tacit.audit.contracts`) are included; what a private policy claims is attacked by
    ``tacit audit``.

    Parameters
    ----------
    name : str
        The name that the policy is registered by.
    **options
        What the policy is told beyond `make_policy`'s usual arguments.

    Returns
    -------
    dict
        Functions without arguments, by their names, which raise where the policy is at fault.

    Examples
    --------
    >>> checks = policy_checks("random")
    >>> checks["arm_sets_may_change_in_size"]()
    """
    candidate = Candidate(name, options)
    checks = EVERY_POLICY + (PRIVATE_POLICIES if candidate.private else ())
    found: Checks = {check.__name__: partial(check, candidate) for check in checks}
    contracts = contracts_for(candidate.make()).values()
    return found | {contract.__name__: partial(_check_steps, contract, candidate) for contract in contracts}


def _check_steps(contract: Contract, candidate: Candidate) -> None:
    assert contract(Subject.rehearsed(candidate.make, longest=HORIZON)) > 0, "nothing was looked at"


def check_policy(name: str, **options: Any) -> None:
    """Check all that a policy must do: seeds, saving, late rewards, bad input, budget, and the contracts of its steps.

    Parameters
    ----------
    name : str
        The name that the policy is registered by.
    **options
        What the policy is told beyond `make_policy`'s usual arguments.

    Raises
    ------
    AssertionError
        When the policy is at fault, with a line for each requirement that it does not satisfy.

    Examples
    --------
    >>> check_policy("random")
    """
    require(policy_checks(name, **options))
