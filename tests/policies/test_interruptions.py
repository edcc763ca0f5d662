"""Calls that an error or a signal leaves in the middle: what they were doing may be lost, and is never done twice."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
import tacit.errors
from tacit.errors import InvalidInput, OneLife
from tacit.policies import clock, continual_policy, persistence
from tacit.policies.baselines.shuffle_linucb import ShuffleLinUcb
from tacit.policies.decision import Decision
from tacit.policies.log import Publisher
from tacit.policies.policy import Policy
from tacit.policies.shuffle import ShuffleGLM
from tacit.privacy.continual import leaf_is_due, start_epoch
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray
from tests.contracts.policies import PRIVATE, make, make_private, rounds


class Interrupted(Exception):  # noqa: N818 - reads as a statement
    """Stands for a time-out, a signal, an empty disk."""


def _failing(original: Callable[..., Any], failures: int = 1) -> Callable[..., Any]:
    """Fails so many times, and is itself from then on."""
    left = [failures]

    def call(*arguments: Any, **names: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise Interrupted
        return original(*arguments, **names)

    return call


class Counting(Publisher):
    """Counts the shuffled sums of each label, and keeps how many users each had."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.rows: list[FloatArray] = []

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        self.sums[protocol.label] += 1
        self.rows.append(rows.copy())
        return release()


def _walk(policy: Policy, count: int, seed: int = 11) -> int:
    """Selects and updates; how many selects were interrupted."""
    contexts, rewards = rounds(count, seed)
    interrupted = 0
    for arms, outcome in zip(contexts, rewards, strict=True):
        try:
            decision = policy.select(arms)
        except Interrupted:
            interrupted += 1
            continue
        policy.update(decision, float(outcome[decision.arm]))
    return interrupted


@pytest.mark.parametrize("step", ["sync_folder", "replace"])
@pytest.mark.parametrize("first", ["object", "file"])
@pytest.mark.parametrize("name", PRIVATE)
def test_a_save_that_fails_leaves_one_life(
    name: str, first: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the file is in its place by then: object and file never both go on."""
    policy, path, (contexts, _) = make(name), tmp_path / "state", rounds(2)
    policy.select(contexts[0])
    if step == "replace":

        def replaced(source: str, target: Path) -> None:
            Path(source).rename(target)
            raise Interrupted

        monkeypatch.setattr("tacit.policies.persistence.os.replace", replaced)
    else:
        monkeypatch.setattr(persistence, "sync_folder", _failing(persistence.sync_folder))
    with pytest.raises(Interrupted):
        policy.save(path)
    monkeypatch.undo()
    monkeypatch.setenv("TACIT_STATE_DIR", str(tmp_path / "registry"))
    going = [lambda: policy.select(contexts[1]), lambda: tacit.load(path).select(contexts[1])]
    if first == "file":
        going.reverse()
    going[0]()
    with pytest.raises(OneLife):
        going[1]()


@pytest.mark.parametrize("where", ["_next_plan", "_append", "_plan"])
def test_shuffle_glm_releases_a_batch_once(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ShuffleGLM(dim=3, horizon=600, epsilon=4.0, delta=0.01, theta_bound=2.0, seed=1)
    policy.publisher = counting = Counting()
    _walk(policy, policy.batch_users)
    monkeypatch.setattr(policy, where, _failing(getattr(policy, where), 3))
    assert _walk(policy, 300, seed=12) == 3
    assert counting.sums, "no batch was released"
    assert set(counting.sums.values()) == {1}
    charged = {entry.event.name for entry in policy.ledger.entries}
    assert {label.rsplit("/", 1)[0] for label in counting.sums} <= charged
    assert policy.ledger.mu_spent <= policy.ledger.budget.mu


@pytest.mark.parametrize("where", ["charge", "sums"])
def test_shuffle_linucb_releases_rows_once(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ShuffleLinUcb(dim=3, horizon=600, batch_size=30, epsilon=4.0, delta=0.01, theta_bound=2.0, seed=1)
    policy.publisher = counting = Counting()
    if where == "charge":
        monkeypatch.setattr(policy.ledger, "charge", _failing(policy.ledger.charge))
    else:
        monkeypatch.setattr(counting, "shuffled", _failing(counting.shuffled))
    assert _walk(policy, 200) == 1
    grams = np.concatenate(counting.rows[::2])
    filled = grams[np.any(grams != 0.0, axis=1)]
    assert np.unique(filled, axis=0).shape == filled.shape
    assert all(rows.shape[0] == 30 for rows in counting.rows)
    assert len({entry.cohort for entry in policy.ledger.entries}) == len(policy.ledger.entries) / 2


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "joint-linucb"])
def test_an_epoch_that_was_interrupted_is_charged_once_and_noised_as_charged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continual_policy, "start_epoch", _failing(start_epoch, 2))
    policy = make_private(name, horizon=None, first_epoch=8, factorization="toeplitz")
    assert _walk(policy, 40) == 2
    charged = {entry.cohort: entry.event.noise_sd for entry in policy.ledger.entries if entry.cohort}
    assert list(charged) == ["epoch 1", "epoch 2", "epoch 3"]
    assert policy._noise_scale == charged["epoch 3"]


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "joint-linucb"])
def test_a_leaf_whose_tick_was_interrupted_gets_noise_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise was drawn, and the tick did not happen: the leaf is still due, and the next decision draws for it again."""
    policy, contexts = make_private(name), rounds(1)[0][0]
    for _ in range(260):
        policy.update(policy.select(contexts), 1.0)
    while not leaf_is_due(policy.state.stream):
        policy.update(policy.select(contexts), 1.0)
    closed = int(policy.state.stream.closed[()])
    monkeypatch.setattr(clock, "release", _failing(clock.release))
    with pytest.raises(Interrupted):
        policy.select(contexts)
    assert int(policy.state.stream.closed[()]) == closed
    policy.select(contexts)
    assert int(policy.state.stream.closed[()]) == closed + 1
    leaves: Any = policy.state.stream.mechanism
    assert np.all(leaves.observed != leaves.weighted)


def test_a_process_that_c_code_forked_is_refused() -> None:
    """Servers that fork before they know of Python run none of its hooks."""
    script = """
        import ctypes, os, numpy as np, tacit
        policy = tacit.make_policy("local-glm", dim=2, epsilon=1.0, delta=1e-6)
        decision = policy.select(np.eye(2))
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            for call in (lambda: policy.select(np.eye(2)), lambda: policy.update(decision, 1.0),
                         lambda: policy.save("state"), lambda: policy.privacy):
                try:
                    call()
                except tacit.errors.CannotCopy as error:
                    assert "fork" in str(error)
                else:
                    os._exit(1)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        policy.update(decision, 1.0)
        print("fine")
    """
    script = "import tacit.errors\n" + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("bad", ["text", [[1.0]], [[10**400, 0.0, 0.0]] * 6, None, [["a", "b", "c"]] * 6])
def test_arms_that_are_no_numbers_are_an_error_for_their_user_alone(bad: Any) -> None:
    contexts, _ = rounds(3)
    for name in ("stream-glm", "local-glm"):
        answers = make(name).select_batch([contexts[0].tolist(), bad, contexts[2].tolist()])
        assert [type(answer) for answer in answers] == [Decision, InvalidInput, Decision]
        only = make(name).select_batch([bad])
        assert [type(answer) for answer in only] == [InvalidInput]


def test_ids_of_private_policies_are_no_other_lifes_unless_they_are_seeded() -> None:
    contexts, _ = rounds(2)
    first, second = (make("stream-glm", seed=None) for _ in range(2))
    decisions = [policy.select(contexts[0]) for policy in (first, second)]
    assert abs(decisions[0].id - decisions[1].id) > 1_000
    assert first.decisions == 1
    with pytest.raises(tacit.errors.UnknownDecision):
        first.update(decisions[1], 1.0)
    assert make("stream-glm", seed=1).select(contexts[0]).id == 0
