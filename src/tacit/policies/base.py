"""What every policy is: select, update, privacy, save."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.glm.links import LINKS, Link
from tacit.policies import persistence
from tacit.policies.admission import admit_contexts, admit_reward, admit_rewards, admit_rounds, admit_users
from tacit.policies.decision import Decision, Pending
from tacit.policies.one_life import ALIVE, OneLife
from tacit.policies.publisher import DIRECT, Publisher
from tacit.policies.setting import make_setting
from tacit.policies.state import flatten, public_part, rebuild
from tacit.policies.steps import BoundSteps, absorb, bind_steps, play
from tacit.policies.steps import advance as tick
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import FastNoise, NoiseSource, make_noise, noise_from_state
from tacit.privacy.report import Model, PrivacyReport, no_privacy
from tacit.typing import FloatArray, IntArray

DEFAULT_REWARD_WINDOW = 100_000
_NOTHING, _NO_COINS = np.zeros(0), np.zeros((1, 0))


@dataclass(frozen=True)
class NoOptions:
    """Options of a policy that has none."""


class Policy(ABC):
    """A contextual bandit policy.

    A subclass states its name, guarantee and links, builds ``self.state`` in ``_build`` and registers three compiled
    steps for that state's type (see `tacit.policies.steps`).  Everything else is done here.

    A policy may be used from several threads: calls wait for each other, each reward counts once, and a saved state is
    one between two calls.  A private one cannot be copied, pickled or used in a forked process.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Model] = "none"
    """Privacy model: ``joint``, ``shuffle``, ``local`` or ``none``."""
    links: ClassVar[Sequence[str]] = tuple(LINKS)
    options_type: ClassVar[type] = NoOptions
    shares_ticks: ClassVar[bool] = True
    """Whether ``select_batch`` is one tick of the clock for all of its users, or one for each."""
    state: Any

    def __init__(
        self,
        *,
        dim: int,
        horizon: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        link: str | Link = "logistic",
        theta_bound: float = 1.0,
        reward_bound: float | None = None,
        seed: int | None = None,
        noise: str | None = None,
        rounds_per_user: int = 1,
        kappa: float | None = None,
        kappa_star: float | None = None,
        reward_window: int = DEFAULT_REWARD_WINDOW,
        **options: Any,
    ) -> None:
        budget = self._budget(epsilon, delta, rounds_per_user)
        self.setting = make_setting(
            dim=dim,
            horizon=horizon,
            link=link,
            theta_bound=theta_bound,
            reward_bound=reward_bound,
            kappa=kappa,
            kappa_star=kappa_star,
            budget=budget,
        )
        if self.setting.link.name not in self.links:
            raise InvalidInput(
                f"{self.name} supports the links {', '.join(self.links)}, not {self.setting.link.name!r}"
            )
        integer_at_least("reward_window", reward_window, 1)
        self.options = self._parse_options(options)
        self.config: dict[str, Any] = {
            "dim": dim,
            "horizon": horizon,
            "epsilon": epsilon,
            "delta": delta,
            "link": self.setting.link.name,
            "theta_bound": theta_bound,
            "reward_bound": reward_bound,
            "seed": seed,
            "noise": noise,
            "rounds_per_user": rounds_per_user,
            "kappa": kappa,
            "kappa_star": kappa_star,
            "reward_window": reward_window,
            **options,
        }
        noise_seed, coin_seed, event_seed = np.random.SeedSequence(seed).spawn(3)
        self.noise: NoiseSource = _noise_source(noise, seed, np.random.default_rng(noise_seed), budget)
        # Events draw from a source of their own, so that noise drawn ahead for many ticks does not depend on them.
        self.event_noise: NoiseSource = _noise_source(noise, seed, np.random.default_rng(event_seed), budget)
        self._coins = np.random.default_rng(coin_seed)
        self.ledger = Ledger(budget) if budget is not None else None
        self.publisher: Publisher = DIRECT
        """Where releases pass through; another one may watch them or play them back."""
        self.recovered_at: list[int] = []
        """The decisions after which this policy was recovered from a file (`tacit.load`, ``recover=True``)."""
        self._build()
        self._pending = Pending(self.memo_size, reward_window)
        if self.setting.private and seed is None:
            self._pending.renumber()  # no other life's, and no other policy's; those of simulations begin at 0
        self._life = OneLife(private=self.setting.private)
        self._bound: BoundSteps | None = None

    # What a subclass supplies

    @abstractmethod
    def _build(self) -> None:
        """Set ``self.state`` and charge the ledger for what the state will release."""

    @property
    def memo_size(self) -> int:
        """Numbers that learning must remember of a decision; the arm's features by default."""
        return self.setting.dim

    @property
    def noise_size(self) -> int:
        """Privacy noise entries that a tick consumes."""
        return 0

    @property
    def noise_scale(self) -> float:
        """Standard deviation of that noise now."""
        return 0.0

    @property
    def coin_count(self) -> int:
        """Uniform random numbers that a choice consumes."""
        return 0

    def _before_ticks(self) -> int:
        """Make ready for the next tick; how many ticks may follow before this must be called again."""
        return 1 << 30

    def _on_event(self, flag: int) -> None:
        """Do what ``advance`` asked for with ``flag``."""
        raise NotImplementedError(f"{self.name} raised the unexpected event {flag}")

    def _close(self, noise: FloatArray) -> bool:
        """Close a tick outside of compiled code, for a publisher that wants to see it; True without a release."""
        return True

    def _learn(self, memo: FloatArray, reward: float) -> None:
        """Take in one admitted reward."""
        bound = self._bound
        if bound is None or bound.state is not self.state:
            bound = self._steps()
        bound.learn(self.state, memo, reward)

    def _learn_published(self, memo: FloatArray, reward: float) -> None:
        """The same where a publisher wants to see it: only of interest where a reward is released as it comes."""
        self._learn(memo, reward)

    def _drop_raw(self) -> None:  # noqa: B027 - a state may hold nothing secret
        """Empty every secret field of the state, and open what is to be released from now on as a new cohort."""

    def _cohort(self, name: str) -> str:
        """A cohort of this life: rows of one life are in no other's."""
        return f"recovery {len(self.recovered_at)}, {name}" if self.recovered_at else name

    def _warnings(self) -> tuple[str, ...]:
        """What the privacy report must say beyond the figures."""
        return ()

    # What users call

    def select(self, contexts: npt.ArrayLike) -> Decision:
        """Choose an arm for one user, whose arms are the rows of ``contexts``, shape (K, d)."""
        block, life = admit_contexts(contexts, self.setting), self._life
        if life.lock._is_owned() or not ALIVE[0]:
            life.look()
        with life.lock:
            arms, memos = self._decide(block)
            return Decision(arms.item(0), self._pending.add(memos[0]))

    def select_batch(self, contexts: npt.ArrayLike) -> list[Decision | InvalidInput]:
        """Choose for many users at once, shape (N, K, d), on one tick of the clock where the policy has such.

        A user whose arms are not valid gets an error *in place of* a decision, and the others get theirs.  How many
        users were valid is public: decisions are numbered.
        """
        block, refused = admit_users(contexts, self.setting)
        with self._life.free():
            made = iter(self._decisions(block))
        users = block.shape[0] + len(refused)
        return [refused[user] if user in refused else next(made) for user in range(users)]

    def _decisions(self, block: FloatArray) -> list[Decision]:
        if block.shape[0] == 0:
            return []
        if not self.shares_ticks and block.shape[0] > 1:
            return [self._decisions(block[user : user + 1])[0] for user in range(block.shape[0])]
        arms, memos = self._decide(block)
        return [Decision(arm, self._pending.add(memo)) for arm, memo in zip(arms.tolist(), memos, strict=True)]

    def _decide(self, contexts: FloatArray) -> tuple[IntArray, FloatArray]:
        """One tick, then an arm and a memo for each user, in one compiled call."""
        if self._life.claim is not None:
            self._life.go_on()
        self._before_ticks()
        users = contexts.shape[0]
        memos, arms = np.empty((users, self._pending.memo_size)), np.empty(users, dtype=np.int64)
        size = self.noise_size
        noise = self.noise.gaussian(self.noise_scale, size) if size else _NOTHING
        coins = self._draw_coins(users)
        if self.publisher is DIRECT:
            flag = self._steps().decide(self.state, 1, contexts, noise, coins, memos, arms)
            if flag == 0:
                return arms, memos
        else:
            flag = absorb(self.state, self._close(noise))
        if flag != 0:
            self._on_event(flag)
        self._steps().decide(self.state, 0, contexts, noise, coins, memos, arms)
        return arms, memos

    def update(self, decision: Decision | int, reward: float) -> None:
        """Report the reward of a decision: later, in any order, at most once."""
        value, life = admit_reward(reward, self.setting), self._life
        if life.lock._is_owned() or not ALIVE[0]:
            life.look()
        with life.lock:
            if life.claim is not None:
                self._pending.find(decision)  # a call that is refused does not count as going on
                life.go_on()
            memo = self._pending.take(decision)  # first: whatever interrupts the rest, a reward never counts twice
            if self.publisher is DIRECT:
                self._learn(memo, value)
            else:
                self._learn_published(memo, value)

    def play(self, contexts: npt.ArrayLike, rewards: npt.ArrayLike) -> IntArray:
        """Play whole rounds at once and return the arms: the compiled loop behind the simulator.

        ``contexts`` has shape (n, K, d); ``rewards[t, k]`` is what arm k would earn in round t, and only the chosen
        arm's entry is looked at.  The same as ``select`` and ``update`` in turn, round by round.
        """
        block = admit_rounds(contexts, self.setting)
        table = admit_rewards(rewards, block.shape[:2], self.setting)
        if self.publisher is not DIRECT:
            raise InvalidInput("play releases inside compiled code, where no publisher sees it: use select and update")
        with self._life.free():
            self._life.go_on()
            arms = np.empty(block.shape[0], dtype=np.int64)
            start = 0
            while start < block.shape[0]:
                stop = min(block.shape[0], start + self._before_ticks())
                self._play_span(block[start:stop], table[start:stop], arms[start:stop])
                start = stop
            self._pending.skip(block.shape[0])
        return arms

    def _play_span(self, contexts: FloatArray, rewards: FloatArray, arms: IntArray) -> None:
        noise, coins = self._draw_noise(contexts.shape[0]), self._draw_coins(contexts.shape[0])
        memo = np.empty(self.memo_size)
        position, flag = 0, tick(self.state, noise[0])
        while True:
            if flag != 0:
                self._on_event(flag)
            position, flag = play(self.state, position, contexts, rewards, noise, coins, memo, arms)
            if position == contexts.shape[0]:
                return

    @property
    def privacy(self) -> PrivacyReport:
        """Target, spent and remaining budget; prints as a table."""
        if self.ledger is None:
            return no_privacy()
        with self._life.free():
            warnings = (*self._warnings(), *(_recovery_text(decision) for decision in self.recovered_at))
            return self.ledger.report(model=self.guarantee, noise=self.noise.describe(), warnings=warnings)

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        return self._pending.decisions

    def fingerprint(self) -> str:
        """Hash of everything that future behaviour depends on, raw sums included: as secret as the data."""
        with self._life.free():
            header, arrays = self._snapshot()
        return _digest(json.dumps(header, sort_keys=True), arrays)

    def public_fingerprint(self) -> str:
        """Hash of all that others may see: public fields of the state, ledger, clock.  A function of releases."""
        with self._life.free():
            if self.ledger is None:
                raise InvalidInput(f"{self.name} learns from raw data: nothing of its state is public")
            header = {"ledger": self.ledger.to_dict(), "decisions": self.decisions}
            return _digest(json.dumps(header, sort_keys=True), public_part(self.state))

    def save(self, path: str | Path) -> None:
        """Write the whole state to ``path``.  It contains raw sums and waiting rows: as secret as the data.

        Exactly one of this object and the file can go on: the first to do so takes the other's right away, since noise
        drawn twice for one release is a privacy loss.  An earlier file of this object goes stale.
        """
        with self._life.free():
            self._life.go_on()  # else two files of one state, or a file and this object, could both go on
            header, arrays = self._snapshot()
            claim = persistence.new_claim(path)
            self._life.saved(claim)  # before there is a file: from then on one of the two goes on, whatever fails here
            persistence.write(claim, self.name, header, arrays)

    def __copy__(self) -> Policy:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        self._life.refuse_copies("copied")
        with self._life.free():
            return from_snapshot(type(self), *self._snapshot())

    def __reduce__(self) -> tuple[Callable[..., Policy], tuple[Any, ...]]:
        self._life.refuse_copies("pickled")
        with self._life.free():
            header, arrays = self._snapshot()
            # Copied while nobody learns: the pickler reads the arrays after this call.
            return from_snapshot, (type(self), header, {path: np.array(array) for path, array in arrays.items()})

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        arrays = {f"state.{key}": value for key, value in flatten(self.state).items()}
        arrays |= {f"pending.{key}": value for key, value in self._pending.to_arrays().items()}
        header = {
            "config": self.config,
            "ledger": None if self.ledger is None else self.ledger.to_dict(),
            "noise": self.noise.state(),
            "event_noise": self.event_noise.state(),
            "coins": FastNoise(self._coins).state() if self.config["seed"] is not None else None,
            "recovered_at": self.recovered_at,
        }
        return header, arrays

    def _restore(self, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        groups: dict[str, dict[str, Any]] = {"state": {}, "pending": {}}
        for path, array in arrays.items():
            group, _, key = path.partition(".")
            groups.setdefault(group, {})[key] = array
        self.state = rebuild(self.state, groups["state"])
        self._pending.restore(**groups["pending"])
        if self.ledger is not None:
            self.ledger = Ledger.from_dict(header["ledger"])
        self.noise = noise_from_state(header["noise"])
        self.event_noise = noise_from_state(header["event_noise"])
        if header["coins"] is not None:
            self._coins = _restored_coins(header["coins"])
        self.recovered_at = [int(decision) for decision in header["recovered_at"]]

    def _recover(self) -> str:
        """Go on from the public part alone; says what was lost (docs/theory.md, "Recovery after a crash")."""
        self.recovered_at.append(self.decisions)
        # Another life of this state may have used the generators' next draws on other rows: never the same twice.
        noise, events = (np.random.default_rng() for _ in range(2))
        self.noise = _noise_source(self.config["noise"], self.config["seed"], noise, self.setting.budget)
        self.event_noise = _noise_source(self.config["noise"], self.config["seed"], events, self.setting.budget)
        self._coins = np.random.default_rng()
        self._pending.recover()
        self._drop_raw()
        return _recovery_text(self.recovered_at[-1])

    def _steps(self) -> BoundSteps:
        """The steps of the present state, bound anew when an event or a restore replaced it."""
        if self._bound is None or self._bound.state is not self.state:
            self._bound = bind_steps(self.state)
        return self._bound

    def _draw_noise(self, ticks: int) -> FloatArray:
        size = self.noise_size
        return self.noise.gaussian(self.noise_scale, (ticks, size)) if size else np.zeros((ticks, 0))

    def _draw_coins(self, users: int) -> FloatArray:
        count = self.coin_count
        if count:
            return self._coins.random((users, count))
        return _NO_COINS if users == 1 else np.zeros((users, 0))

    def _budget(self, epsilon: float | None, delta: float | None, rounds_per_user: int) -> Budget | None:
        if self.guarantee == "none":
            return None
        if epsilon is None or (delta is None and epsilon != float("inf")):
            raise InvalidInput(
                f"{self.name} is private and needs epsilon and delta, for example epsilon=1.0, delta=1e-6 "
                f"(epsilon=inf turns its noise off)"
            )
        return Budget(float(epsilon), 1e-6 if delta is None else float(delta), rounds_per_user)

    def _parse_options(self, options: dict[str, Any]) -> Any:
        known = [f.name for f in fields(self.options_type) if f.default is not MISSING]
        unknown = sorted(set(options) - set(known))
        if unknown:
            offer = f"its options are {', '.join(known)}" if known else "it has no options"
            raise InvalidInput(f"{self.name} does not know {', '.join(map(repr, unknown))}: {offer}")
        return self.options_type(**options)


def _noise_source(name: str | None, seed: int | None, rng: np.random.Generator, budget: Budget | None) -> NoiseSource:
    """Reproducible noise for a seeded policy, the operating system's entropy for every other one."""
    if budget is None or budget.unlimited:
        return make_noise("none")
    return make_noise(name or ("secure" if seed is None else "fast"), rng)


def _recovery_text(decision: int) -> str:
    return (
        f"recovered from a saved file after decision {decision}: raw sums, the open leaf or batch and all rewards that "
        "were waited for are lost, as is whatever was decided after that save; what had been released by then is kept."
    )


def _digest(header: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256(header.encode())
    for path in sorted(arrays):
        digest.update(path.encode())
        digest.update(np.ascontiguousarray(arrays[path]).tobytes())
    return digest.hexdigest()


def from_snapshot(kind: type[Policy], header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Policy:
    """A policy in the state of a snapshot.  Of a private one only an audit may make a second: it would not serve."""
    policy = kind(**header["config"])
    # Copied: arrays of a snapshot are those of the policy that it was taken of.
    policy._restore(header, {path: np.array(array) for path, array in arrays.items()})
    return policy


def _restored_coins(state: dict[str, Any]) -> np.random.Generator:
    source = noise_from_state(state)
    if not isinstance(source, FastNoise):
        raise InvalidInput("the saved coins are not those of a seeded generator")
    return source.rng
