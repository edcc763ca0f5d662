"""All policies of a store: made once, never changed, found again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tacit.errors import InvalidInput, JournalExists, StoreDamaged, StoreFailed, UnknownJournal
from tacit.policies.config import Config
from tacit.policies.registry import POLICIES
from tacit.service import deployment as deployment_module
from tacit.service import journal as journal_module
from tacit.service.deployment import Deployment
from tacit.service.host import Answer
from tacit.service.http.reads import total
from tacit.service.journal import PolicyJournal
from tests.contracts.policies import LOCAL
from tests.service.hosting import arms_of
from tests.service.parts import PRIVATE, Clock, FaultyStore, body, quick_store

OFF = body("stream-glm") | {"mode": "off"}


def test_the_same_body_again_is_the_same_policy(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    deployment = Deployment(store)
    made, new = deployment.put("p", body("stream-glm"))
    assert new
    assert deployment.put("p", body("stream-glm")) == (made, False)
    assert deployment.put("p", body("stream-glm", epsilon=4)) == (made, False)  # 4 is 4.0
    for change in ({"epsilon": 2.0}, {"reward_wait": 5.0}, {"hold": False}, {"default_reward": 0.0}, {"dim": 2}):
        with pytest.raises(JournalExists, match="never changes"):
            deployment.put("p", body("stream-glm") | change)
    with pytest.raises(JournalExists):
        deployment.put("p", body("joint-linucb"))
    again = Deployment(store)
    assert not again.put("p", body("stream-glm"))[1]
    with pytest.raises(JournalExists):
        again.put("p", body("stream-glm") | {"reward_wait": 5.0})
    with pytest.raises(UnknownJournal, match="no policy named 'q'"):
        again.get("q")
    store.close()


def test_a_policy_of_an_earlier_version_is_the_one_that_its_body_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that came later has its default there, as it has in a body that does not name it."""
    store = quick_store(tmp_path)
    whole = Config.to_json
    monkeypatch.setattr(Config, "to_json", lambda self: {k: v for k, v in whole(self).items() if k != "explore"})
    Deployment(store).put("p", body("stream-glm"))
    monkeypatch.undo()
    assert b"explore" not in store.journals()[0].config
    again = Deployment(store)
    assert not again.put("p", body("stream-glm"))[1]
    assert again.get("p").config["explore"] == 0.0
    with pytest.raises(JournalExists, match="never changes"):
        again.put("p", body("stream-glm") | {"explore": 0.5})
    store.close()


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in LOCAL])
def test_every_policy_is_served_and_found_again(name: str, tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    deployment = Deployment(store)
    served, _ = deployment.put("p", body(name))
    for number in range(20):
        _, ask = served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))
        reward = served.intake.reward("n", str(number), reward=1.0)
        first, second = served.host.process([ask, reward])
        assert isinstance(first, Answer)
        assert isinstance(second, Answer)
    again = Deployment(store)
    assert again.get("p").host.published.decisions == 20
    assert again.get("p").host.published.estimate == served.host.published.estimate
    assert math.isfinite(again.get("p").host.published.spent_mu) == (name in PRIVATE)
    again.close()
    store = quick_store(tmp_path)
    assert Deployment(store).get("p").host.published.decisions == 20
    store.close()


def test_the_mode_alone_may_change(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    deployment = Deployment(store)
    served, _ = deployment.put("p", body("random") | {"mode": "off"})
    assert served.host.published.mode == "off"
    deployment.put("p", body("random"))  # says nothing of the mode
    assert served.host.published.mode == "off"
    deployment.put("p", body("random") | {"mode": "apprentice"})
    assert Deployment(store).get("p").host.published.mode == "apprentice"
    with pytest.raises(InvalidInput, match="mode must be one of online, apprentice, off"):
        deployment.put("p", body("random") | {"mode": "on"})
    store.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": None}, "policy is missing"),
        ({"policy": "nothing"}, "policy must be one of"),
        ({"dim": -1}, "dim"),
        ({"unknown": 1}, "unknown"),
        ({"seed": 1}, "seed must be left out"),
        ({"noise": "fast"}, "noise='fast' is for simulations"),
        ({"reward_age": 5}, "reward_age counts decisions"),
        ({"reward_wait": 0.0}, "reward_wait"),
        ({"reward_wait": math.inf}, "reward_wait"),
        ({"reward_wait": math.nan}, "reward_wait"),
        ({"reward_wait": "long"}, "reward_wait"),
        ({"reward_wait": True}, "reward_wait"),
        ({"reward_wait": 1e9}, "at most"),
        ({"event_memory": 1.0}, "event_memory must be at least reward_wait"),
        ({"default_reward": 2.0}, "default_reward"),
        ({"default_reward": -1.0}, "default_reward"),
        ({"default_reward": math.nan}, "default_reward"),
        ({"default_reward": "a lot"}, "default_reward"),
        ({"hold": 1}, "hold must be true or false"),
        ({"user_level": "yes"}, "user_level must be true or false"),
        ({"mode": "on"}, "mode must be one of"),
    ],
    ids=str,
)
def test_bad_bodies_are_refused_and_leave_nothing(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    deployment = Deployment(store)
    with pytest.raises(InvalidInput, match=words):
        deployment.put("p", body("stream-glm") | change)
    assert store.journals() == []
    assert deployment.put("p", body("stream-glm"))[1]
    store.close()


def test_users_are_counted_for_privacy_alone(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    with pytest.raises(InvalidInput, match="user_level is for private policies"):
        Deployment(store).put("p", body("greedy-mle") | {"user_level": True})
    store.close()


@pytest.mark.parametrize("name", ["", "a/b", "x" * 65, "a b", "-a"])
def test_names_are_plain(name: str, tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    with pytest.raises(InvalidInput, match="name must be 1 to 64"):
        Deployment(store).put(name, body("random"))
    assert store.journals() == []
    store.close()


def steps_of_a_put(folder: Path) -> list[tuple[str, int]]:
    """Every call of the store that making a policy takes: its name, and how many of that name came before it."""
    store, calls = FaultyStore(quick_store(folder)), list[str]()
    deployment = Deployment(store)
    store.before = calls.append
    deployment.put("p", OFF)
    store.close()
    return [(method, calls[:place].count(method)) for place, method in enumerate(calls)]


def test_a_policy_is_made_in_one_transaction(tmp_path: Path) -> None:
    changes = [method for method, _ in steps_of_a_put(tmp_path) if method in ("create", "swap", "append", "compact")]
    assert changes == ["create"]


@pytest.mark.parametrize("error", [StoreFailed("disk full"), RuntimeError("cannot join thread")], ids=repr)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_policy_whose_making_failed_is_made_by_the_next_call(after: bool, error: Exception, tmp_path: Path) -> None:
    """At every step; in the same process and in a new one.

    A store that fails ends the process, anything else is answered with 500.
    """
    steps = steps_of_a_put(tmp_path / "steps")
    made = steps.index(("create", 0))
    for place, (method, calls) in enumerate(steps):
        store = FaultyStore(quick_store(tmp_path / str(place)))
        deployment = Deployment(store)
        store.fail(method, error=error, after=after, calls=calls)
        with pytest.raises(type(error)):
            deployment.put("p", OFF)
        assert deployment.policies == {}
        created = place > made or (after and place == made)
        assert [journal.name for journal in store.inner.journals()] == (["p"] if created else []), method
        store.before = store.after = lambda called: None
        check_made_once(deployment)
        check_made_once(Deployment(store.inner))
        store.close()


def check_made_once(deployment: Deployment) -> None:
    """A policy that is switched off is made or found, with one change of its mode, and is no other one."""
    served, _ = deployment.put("p", OFF)
    assert [change.mode for change in served.host.published.modes] == ["off"]
    assert served.host.published.decisions == 0
    assert deployment.put("p", OFF) == (served, False)
    with pytest.raises(JournalExists):
        deployment.put("p", OFF | {"epsilon": 1.0})


@pytest.mark.parametrize("step", ["PolicyJournal", "Host", "Intake"])
def test_a_policy_that_could_not_be_served_at_first(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after the transaction, in memory: the policy is there, and the next call finds it."""
    deployment = Deployment(quick_store(tmp_path))
    with monkeypatch.context() as broken:
        broken.setattr(deployment_module, step, _raises)
        with pytest.raises(MemoryError):
            deployment.put("p", body("stream-glm"))
    assert deployment.policies == {}
    with pytest.raises(JournalExists, match="another configuration"):
        deployment.put("p", body("stream-glm", epsilon=1.0))
    assert set(deployment.policies) == {"p"}  # it is shown what there is
    served, new = deployment.put("p", body("stream-glm"))
    assert not new
    _, ask = served.intake.decision("n", contexts=arms_of(1).tolist(), event_id="1")
    assert isinstance(served.host.process([ask])[0], Answer)
    deployment.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["create", "read", "scan"])
def test_a_policy_whose_making_failed_is_made_by_another_process(method: str, after: bool, database: str) -> None:
    """On PostgreSQL: whoever is asked next finds it in the store, or makes it; both processes go on."""
    from tacit.service.postgres_store import PostgresStore

    store = FaultyStore(PostgresStore(database))
    one, other = Deployment(store), Deployment(PostgresStore(database))
    store.fail(method, error=RuntimeError("cannot join thread"), after=after)
    with pytest.raises(RuntimeError):
        one.put("p", OFF)
    assert one.policies == {}
    store.before = store.after = lambda called: None
    assert other.put("p", OFF)[1] == (method == "create" and not after)
    check_made_once(other)
    assert one.put("q", OFF)[1]
    other.close()
    one.close()


def test_a_policy_that_could_not_be_written_was_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails before the transaction leaves nothing: another policy may take the name."""
    deployment = Deployment(quick_store(tmp_path))
    with monkeypatch.context() as broken:
        broken.setattr(journal_module, "pack_snapshot", _raises)
        with pytest.raises(MemoryError):
            deployment.put("p", body("stream-glm"))
    assert deployment.store.journals() == []
    assert deployment.put("p", body("joint-linucb"))[1]
    deployment.close()


def _raises(*given: object, **named: object) -> NoReturn:
    raise MemoryError


def test_what_was_spent_is_composed(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    deployment = Deployment(store)
    seen = {name: deployment.put(name, body(name))[0].host.published for name in ("stream-glm", "joint-linucb")}
    mus = [each.spent_mu for each in seen.values()]
    assert all(mu > 0.0 for mu in mus)
    assert total(seen).mu == pytest.approx(math.hypot(*mus))
    store.close()


def test_several_policies_tick_together(tmp_path: Path) -> None:
    clock, store = Clock(), quick_store(tmp_path)
    deployment = Deployment(store, clock=clock)
    for name in ("a", "b"):
        served, _ = deployment.put(name, body("random") | {"reward_wait": 5.0})
        _, ask = served.intake.decision("n", contexts=arms_of(1).tolist(), event_id="e")
        served.host.process([ask])
        assert served.host.unsettled == 1
    clock.now += 5.0
    deployment.tick()
    assert [served.host.unsettled for served in deployment.policies.values()] == [0, 0]
    deployment.close()


def test_close_erases_the_rows_of_all_policies(tmp_path: Path) -> None:
    clock, store = Clock(), quick_store(tmp_path)
    deployment = Deployment(store, clock=clock)
    rows = []
    for place, name in enumerate(("joint-linucb", "stream-glm")):
        served, _ = deployment.put(name, body(name) | {"hold": False})
        for number in range(10 * place, 10 * place + 10):
            _, ask = served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))
            (found,) = served.host.process([ask])
            assert isinstance(found, Answer)
            rows.append(arms_of(number)[found.arm].tobytes())
            served.host.process([served.intake.reward("n", str(number), reward=1.0)])

    def held() -> int:
        files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        return sum(row in files for row in rows)

    assert held() == 20
    deployment.close()
    assert held() == 0


def test_terms_that_cannot_be_read_are_damage(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    Deployment(store).put("p", body("random"))
    (journal,) = store.journals()
    store.create("q", journal.config.replace(b'"hold": true', b'"hold": 12345'), store.read("p").snapshot or b"")
    with pytest.raises(StoreDamaged, match="the terms of 'q' cannot be read"):
        Deployment(store)
    store.close()


@pytest.mark.parametrize("name", LOCAL)
def test_policies_whose_releases_come_with_rewards_are_refused(name: str, tmp_path: Path) -> None:
    """How often such a policy has released, which everybody may see, would tell whose reward never came."""
    deployment = Deployment(quick_store(tmp_path))
    with pytest.raises(InvalidInput, match="clock of decisions"):
        deployment.put("p", body(name))
    assert deployment.policies == {}
    assert deployment.store.journals() == []
    deployment.close()


def test_no_time_passes_while_a_service_stops(tmp_path: Path) -> None:
    """How long it waits for a reward that is on its way would decide where the clock of others goes on."""
    store, clock = quick_store(tmp_path), Clock()
    deployment = Deployment(store, clock=clock)
    served, _ = deployment.put("p", body("stream-glm") | {"reward_wait": 10.0})
    _, request = served.intake.decision("n", contexts=arms_of(0).tolist())
    served.host.process([request])
    clock.now += 3.1
    deployment.clock.stop()
    for _ in range(3):
        clock.now += 4.0
        deployment.tick()
    deployment.close()
    store = quick_store(tmp_path)
    assert json.loads(store.read("p").journal.note)["uptime"] == 3.0
    store.close()


def test_all_clocks_of_a_process_begin_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a policy takes as long as rewards of it are in its log, and others come after it."""
    store, clock = quick_store(tmp_path), Clock()
    deployment = Deployment(store, clock=clock)
    for name in "abc":
        deployment.put(name, body("stream-glm"))
    catch_up = PolicyJournal.catch_up

    def slow(journal: PolicyJournal) -> None:
        clock.now += 5.0
        catch_up(journal)

    monkeypatch.setattr(PolicyJournal, "catch_up", slow)
    again = Deployment(store, clock=clock)
    assert {served.host._since for served in again.policies.values()} == {clock.now - 15.0}
    again.close()
