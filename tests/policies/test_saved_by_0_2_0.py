"""States and backups of version 0.2.0 are read, and policies go on from them as they did there.

``python tests/policies/test_saved_by_0_2_0.py FOLDER``, run with that version installed, made the files.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import RecoveryWarning
from tacit.features import Category, Flag, Number, Schema
from tacit.service.backup import back_up_store, restore_store
from tacit.service.sqlite_store import SQLiteStore

SAVED = Path(__file__).parent / "saved_by_0_2_0"
SCHEMA = Schema(
    user=[Number("age", 0, 100), Flag("subscriber")],
    arm=[Category("topic", ["news", "sport"])],
    crosses=[("age", "topic")],
)
JOINT: dict[str, Any] = {"theta_bound": 2.0, "seed": 7, "epsilon": 2.0, "delta": 1e-4}
POLICIES: dict[str, dict[str, Any]] = {
    "stream-glm": {"name": "stream-glm", "dim": 3, **JOINT},
    "joint-glm": {"name": "joint-glm", "dim": 3, "horizon": 500, **JOINT},
    "shuffle-glm": {"name": "shuffle-glm", "dim": 3, "horizon": 600, **JOINT, "epsilon": 4.0, "delta": 0.01},
    "glm-ucb": {"name": "glm-ucb", "dim": 3, "theta_bound": 2.0, "seed": 7},
    "schema": {"name": "stream-glm", "features": SCHEMA, **JOINT},
}


def played(policy: Any, seed: int, rounds: int = 150) -> str:
    """Play rounds, of which every seventh has no reward, and return the arms."""
    rng, arms = np.random.default_rng(seed), []
    for t in range(rounds):
        if policy.config.features is not None:
            user = {"age": float(rng.integers(0, 100)), "subscriber": bool(rng.random() < 0.5)}
            decision = policy.select(user=user, arms=[{"topic": "news"}, {"topic": "sport"}])
        else:
            contexts = rng.standard_normal((4, 3))
            decision = policy.select(contexts / (1.0 + np.linalg.norm(contexts, axis=1, keepdims=True)))  # no ties
        reward = float(rng.random() < 0.3 + 0.1 * decision.arm)
        if t % 7 != 3:
            policy.update(decision, reward)
        arms.append(str(decision.arm))
    return "".join(arms)


def save_all(folder: Path) -> None:
    """Save each policy in the middle of its rounds, and write down how a twin of it went on."""
    went_on: dict[str, Any] = {}
    for label, arguments in POLICIES.items():
        policy, twin = tacit.make_policy(**arguments), tacit.make_policy(**arguments)
        played(policy, 3), played(twin, 3)
        policy.save(folder / label)
        (folder / f"{label}.gz").write_bytes(gzip.compress((folder / label).read_bytes(), mtime=0))
        (folder / label).unlink()
        went_on[label] = {"arms": played(twin, 4), "spent": twin.privacy.spent_epsilon}
    with tacit.open(folder / "store", "stream-glm", dim=3, epsilon=2.0, delta=1e-4) as kept:
        played(kept, 3)
    store = SQLiteStore(folder / "store")
    back_up_store(store, folder / "backup")
    store.close()
    shutil.rmtree(folder / "store")
    (folder / "went_on.json").write_text(json.dumps(went_on, indent=1) + "\n")


@pytest.mark.parametrize("label", POLICIES)
def test_a_policy_that_0_2_0_saved_goes_on_as_it_did_there(label: str, tmp_path: Path) -> None:
    went_on = json.loads((SAVED / "went_on.json").read_text())[label]
    path = tmp_path / label
    path.write_bytes(gzip.decompress((SAVED / f"{label}.gz").read_bytes()))
    policy = tacit.load(path)
    assert policy.decisions == 150
    assert played(policy, 4) == went_on["arms"]
    assert policy.privacy.spent_epsilon == pytest.approx(went_on["spent"], rel=1e-12)
    assert tacit.restore(policy.snapshot()).fingerprint() == policy.fingerprint()


@pytest.mark.parametrize("label", [label for label in POLICIES if label != "glm-ucb"])
def test_a_policy_that_0_2_0_saved_is_recovered(label: str, tmp_path: Path) -> None:
    path = tmp_path / label
    path.write_bytes(gzip.decompress((SAVED / f"{label}.gz").read_bytes()))
    with pytest.warns(RecoveryWarning):
        policy = tacit.load(path, recover=True)
    assert played(policy, 4)
    assert policy.decisions == 300


def test_a_backup_of_0_2_0_is_restored(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    restore_store(SAVED / "backup", store, nothing_released_since=True)
    store.close()
    with tacit.open_policy(tmp_path) as policy:
        assert policy.decisions == 150
        assert len(played(policy, 4)) == 150
    with tacit.open_policy(tmp_path) as policy:
        assert policy.decisions == 300
        assert 0.0 < policy.privacy.spent_epsilon <= 2.0


if __name__ == "__main__":
    save_all(Path(sys.argv[1]))
