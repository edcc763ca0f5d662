"""What every policy is: select, update, play, privacy, save."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.glm.link_names import LINK_NAMES
from tacit.policies.admission import admit_reward, admit_rewards
from tacit.policies.arm_forms import ArmForm, Record
from tacit.policies.config import Config, described_fields
from tacit.policies.decision import Decision, Pending
from tacit.policies.log import Abandoned, Decided, Entry, Rewarded
from tacit.policies.one_life import ALIVE, OneLife
from tacit.policies.predicting import Predicting
from tacit.policies.publisher import DIRECT, Publisher
from tacit.policies.replay import ReplayingPublisher, apply_entry
from tacit.policies.setting import Setting, make_setting
from tacit.policies.steps import TICKED, BoundSteps, bind_steps, compiled_run, take_in
from tacit.policies.storable import Storable
from tacit.privacy.randomness import Randomness
from tacit.privacy.report import Model, PrivacyReport, no_privacy
from tacit.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from tacit.features.encoding import Arms
    from tacit.features.support import Support

NO_END = 1 << 30
"""Ticks of a span that nothing ends."""
_NOTHING, _NO_COINS, _NO_REWARDS = np.zeros((1, 0)), np.zeros((1, 0)), np.zeros((0, 0))


class Span(NamedTuple):
    """Ticks that may follow each other without anything between them, and the noise that they draw."""

    ticks: int
    noise_size: int
    noise_scale: float
    rare: bool = False
    """Whether ``ticks`` counts decisions, and only the first tick draws noise, in whole numbers."""


class Policy(Storable, Predicting, ABC):
    """A contextual bandit policy.

    A subclass states its name, links and configuration, makes its state in ``_make_state`` and registers compiled
    steps for that state's type (`tacit.policies.steps`).  A private one derives from
    `tacit.policies.private_policy.PrivatePolicy`.  Everything else is done here.

    A policy may be used from several threads: calls wait for each other, each reward counts once, and a saved state is
    one between two calls.  A private one cannot be copied, pickled or used in a forked process.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Model] = "none"
    """Privacy model: ``joint``, ``shuffle``, ``local`` or ``none``."""
    links: ClassVar[Collection[str]] = LINK_NAMES
    """Names of the links that it can work with; all of them unless stated."""
    config_type: ClassVar[type[Config]] = Config
    coin_count: ClassVar[int] = 0
    """Uniform random numbers that a choice consumes."""
    states_propensity: ClassVar[bool] = False
    """Whether a choice that consumes coins leaves the probability of its arm in place of the first one."""
    shares_ticks: ClassVar[bool] = True
    """Whether ``select_batch`` is one tick of the clock for all of its users, or one for each."""
    config: Any
    state: Any

    def __init_subclass__(cls, **rest: Any) -> None:
        """Let ``help()`` and interactive completion show the configuration of this very policy."""
        super().__init_subclass__(**rest)
        keywords = inspect.signature(cls.config_type).parameters.values()
        cls.__signature__ = inspect.Signature(list(keywords))  # type: ignore[attr-defined]
        if "name" in vars(cls) and cls.__doc__:
            cls.__doc__ = (
                f"{inspect.cleandoc(cls.__doc__)}\n\nArguments\n---------\n{described_fields(cls.config_type)}"
            )

    def __init__(self, config: Config | None = None, /, *, randomness: Randomness | None = None, **fields: Any) -> None:
        """Make the policy from a configuration, or from the fields of one.

        ``randomness`` holds the sources of all random numbers; one that is passed in may be taped or played back
        (`tacit.privacy.randomness`).
        """
        self.config = self._chosen(config, fields)
        if self.config.link not in self.links and self.config.link in LINK_NAMES:
            raise InvalidInput(f"{self.name} supports the links {', '.join(self.links)}, not {self.config.link!r}")
        self.setting: Setting = self._make_setting()
        self._arms = ArmForm(self.setting, self.structure, self.config.features)
        self._row_size, self._link_form = self._arms.size, self.setting.link.form
        self.randomness = self._make_randomness() if randomness is None else randomness
        self.publisher: Publisher = DIRECT
        """Where releases pass through; another one may watch them or play them back."""
        self._open_ledger()
        self.state = self._make_state()
        self._pending = Pending(self.memo_size, self.config.reward_window, self.config.reward_age)
        self._life = OneLife(private=self.private)
        self._span = Span(0, 0, 0.0)
        self._ticks_left = 0
        """How many ticks of the span may still follow; none when the state was replaced."""
        self._bound: BoundSteps | None = None
        self._playing: tuple[Any, Callable[..., tuple[int, int]]] | None = None
        self._replayed: ReplayingPublisher | None = None
        self._begin()

    @classmethod
    def configured(cls, fields: Mapping[str, Any]) -> Config:
        """The configuration with these fields; an error names what is missing or unknown."""
        asked = sorted({"epsilon", "delta"} & set(fields))
        if asked and not cls.private:
            raise InvalidInput(f"{cls.name} learns from raw data and has no privacy: it takes no {', '.join(asked)}")
        return cls.config_type.given(fields, cls.name)

    @classmethod
    def _chosen(cls, config: Config | None, fields: dict[str, Any]) -> Config:
        if config is None:
            return cls.configured(fields)
        if fields:
            raise InvalidInput(f"give {cls.name} a configuration or its fields, not both: {', '.join(fields)}")
        if type(config) is not cls.config_type:
            raise InvalidInput(f"{cls.name} needs a {cls.config_type.__name__}, not {type(config).__name__}")
        return config

    # What a subclass supplies

    @abstractmethod
    def _make_state(self) -> Any:
        """The state before the first decision."""

    def _begin(self) -> None:
        """Do what must be done before the first decision, with the state in place."""

    @property
    def structure(self) -> Support | None:
        """Which features can be nonzero together, where kernels take compact rows; None where they take all of d."""
        return None

    @property
    def row_size(self) -> int:
        """Numbers that kernels are given for an arm."""
        return self._row_size

    def as_kernels_take(self, contexts: npt.ArrayLike) -> FloatArray:
        """Arms of shape (N, K, d), checked, in the form that kernels take: for whoever looks from outside."""
        return self._arms.rounds(contexts)

    @property
    def memo_size(self) -> int:
        """Numbers that learning must remember of a decision; the arm's features by default."""
        return self.row_size

    @property
    def noise_size(self) -> int:
        """Privacy noise entries that a tick consumes."""
        return 0

    @property
    def noise_scale(self) -> float:
        """Standard deviation of that noise now."""
        return 0.0

    def _next_span(self) -> Span:
        """Do what is due before the next tick, such as beginning an epoch; what the ticks from there on draw."""
        return Span(NO_END, self.noise_size, self.noise_scale)

    def _on_event(self, flag: int) -> None:
        """Do what ``advance`` asked for with ``flag``."""
        raise NotImplementedError(f"{self.name} raised the unexpected event {flag}")

    def _close(self, noise: FloatArray, users: int) -> bool:
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

    # What a private policy supplies (`tacit.policies.private_policy`)

    private: ClassVar[bool] = False

    def _make_setting(self) -> Setting:
        return make_setting(self.config)

    def _make_randomness(self) -> Randomness:
        return Randomness.make(self.config.seed, None, private=False)

    def _open_ledger(self) -> None:
        """Make the ledger, before the state is made and charged."""

    @property
    def privacy(self) -> PrivacyReport:
        """Target, spent and remaining budget; prints as a table."""
        return no_privacy()

    # What users call

    def select(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        user: Record | None = None,
        arms: Arms | None = None,
    ) -> Decision:
        """Choose an arm for one user, whose arms are the rows of ``contexts``, shape (K, d).

        A policy with a schema (``features``) takes records instead: ``user`` and one of ``arms`` for each arm.
        """
        return self.select_admitted(self.admit(contexts, user=user, arms=arms))

    def admit(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        user: Record | None = None,
        arms: Arms | None = None,
    ) -> FloatArray:
        """Check and encode one user's arms, shape (1, K, row_size), for ``select_admitted``; changes nothing."""
        return self._arms.one(contexts, user, arms)

    def select_admitted(self, block: FloatArray) -> Decision:
        """Choose for one user, whose arms were admitted by ``admit``."""
        life = self._life
        if life.lock._is_owned() or not ALIVE[0]:
            life.look()
        with life.lock:
            arms, memos, coins = self._decide(block)
            decision = self._decision(arms.item(0), memos[0], coins[0])
            if self._log is not None:
                self._log(Decided(decision.id, [decision.arm], memos.copy()))
            return decision

    def select_batch(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        users: Sequence[Record] | None = None,
        arms: Arms | None = None,
    ) -> list[Decision | InvalidInput]:
        """Choose for many users at once, shape (N, K, d), on one tick of the clock where the policy has such.

        A policy with a schema takes records instead: ``users``, and ``arms``, the same for all or a list for each.

        A user whose arms are not valid gets an error *in place of* a decision, and the others get theirs.  How many
        users were valid is public: decisions are numbered.
        """
        block, refused = self._arms.many(contexts, users, arms)
        with self._life.free():
            made = iter(self._decisions(block))
        count = block.shape[0] + len(refused)
        return [refused[user] if user in refused else next(made) for user in range(count)]

    def _decisions(self, block: FloatArray) -> list[Decision]:
        if block.shape[0] == 0:
            return []
        if not self.shares_ticks and block.shape[0] > 1:
            return [self._decisions(block[user : user + 1])[0] for user in range(block.shape[0])]
        arms, memos, coins = self._decide(block)
        users = zip(arms.tolist(), memos, coins, strict=True)
        decisions = [self._decision(arm, memo, spent) for arm, memo, spent in users]
        if self._log is not None:
            self._log(Decided(decisions[0].id, arms.tolist(), memos.copy()))
        return decisions

    def _decision(self, arm: int, memo: FloatArray, coins: FloatArray) -> Decision:
        """The decision that is handed out, and waits for its reward from now on."""
        propensity = 1.0 if not self.coin_count else float(coins[0]) if self.states_propensity else None
        belief = self._judged_by
        if belief is None:
            return Decision(arm, self._pending.add(memo), propensity)
        predict = self._predict or self._bound_prediction(belief)
        mean, sd = predict(self._link_form, belief, memo[: self._row_size])
        return Decision(arm, self._pending.add(memo), propensity, mean, None if sd != sd else sd)

    def _decide(self, contexts: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """One tick, then an arm and a memo for each user, in one compiled call unless something must happen between.

        Last come the coins, which a choice leaves its propensity in.
        """
        if self._life.claim is not None:
            self._life.go_on()
        if self._pending.age:
            self._mature()
        users = contexts.shape[0]
        counted = self._pending.coming_of_age(users) if self._pending.age else users
        memos, arms = np.empty((users, self._pending.memo_size)), np.empty(users, dtype=np.int64)
        noise, coins = self._draw(users, counted)
        if self.publisher is not DIRECT and self._may_release(noise):
            self._tick_in_the_open(noise, counted)
            counted = TICKED
        bound = self._bound
        if bound is None or bound.state is not self.state:
            bound = self._steps()
        while flag := bound.run(self.state, counted, contexts, _NO_REWARDS, noise, coins, memos, arms)[1]:
            self._on_event(flag)
            bound, counted = self._steps(), TICKED
        return arms, memos, coins

    def _may_release(self, noise: FloatArray) -> bool:
        """Whether the tick that this noise was drawn for may release anything; between rare leaves it only counts."""
        return not (self._span.rare and noise.size == 0)

    def _tick_in_the_open(self, noise: FloatArray, counted: int) -> None:
        """A tick whose release passes through the publisher, and what it asks for."""
        flag = take_in(self.state, self._close(noise[0], counted))
        if flag:
            self._on_event(flag)

    def update(self, decision: Decision | int, reward: float) -> None:
        """Report the reward of a decision: later, in any order, at most once.

        A user who did not click, or was not cured, needs ``update(decision, 0.0)``: what is never reported teaches
        nothing, and reporting the good outcomes alone teaches that every arm is good.
        """
        value, life = admit_reward(reward, self.setting), self._life
        if life.lock._is_owned() or not ALIVE[0]:
            life.look()
        with life.lock:
            if life.claim is not None:
                self._pending.find(decision)  # a call that is refused does not count as going on
                life.go_on()
            if self._pending.age:
                self._keep(decision, value)
            elif self.publisher is DIRECT:
                # Taken first: whatever interrupts the rest, a reward never counts twice.
                self._learn(self._pending.take(decision), value)
            else:
                self._learn_in_the_open(decision, value)

    def abandon(self, decision: Decision | int) -> None:
        """Give a decision up whose arm was never shown: it teaches nothing, and no reward of it is taken any more.

        The clock has counted it.  Where an arm was shown and nothing came of it, ``update(decision, 0.0)`` says so.
        """
        with self._life.free():
            identity = self._pending.find(decision)
            self._life.go_on()
            self._pending.take(identity)
            if self._log is not None:
                self._log(Abandoned(identity))

    def _learn_in_the_open(self, decision: Decision | int, reward: float) -> None:
        identity = self._pending.find(decision)
        self._learn_published(self._pending.take(identity), reward)
        if self._log is not None:
            self._log(Rewarded(identity, reward))

    def _keep(self, decision: Decision | int, reward: float) -> None:
        """Keep a reward until its decision has reached ``reward_age``; the log has it where it came."""
        identity = self._pending.keep(decision, reward)
        if self._log is not None:
            self._log(Rewarded(identity, reward))

    def _mature(self) -> None:
        """Before a tick: learn from the decisions that have reached ``reward_age`` and have a reward."""
        learn = self._learn if self.publisher is DIRECT else self._learn_published
        for memo, reward in self._pending.matured():
            learn(memo, reward)

    def play(self, contexts: npt.ArrayLike, rewards: npt.ArrayLike) -> IntArray:
        """Play whole rounds at once and return the arms: the compiled loop behind the simulator.

        ``contexts`` has shape (n, K, d); ``rewards[t, k]`` is what arm k would earn in round t, and only the chosen
        arm's entry is looked at.  The same as ``select`` and ``update`` in turn, round by round.
        """
        block = self._arms.rounds(contexts)
        table = admit_rewards(rewards, block.shape[:2], self.setting)
        if self.publisher is not DIRECT:
            raise InvalidInput("play releases inside compiled code, where no publisher sees it: use select and update")
        with self._life.free():
            self._life.go_on()
            if self._pending.age:
                return self._play_one_by_one(block, table)
            self._ticks_left = 0  # spans of its own: whatever interrupts it, the next decision begins another
            arms, start = np.empty(block.shape[0], dtype=np.int64), 0
            compiled = self._compiled_run()
            while start < block.shape[0]:
                span = self._next_span()
                stop = min(block.shape[0], start + span.ticks)
                self._play_span(compiled, span, block[start:stop], table[start:stop], arms[start:stop])
                start = stop
            self._pending.skip(block.shape[0])
        return arms

    def _play_one_by_one(self, contexts: FloatArray, rewards: FloatArray) -> IntArray:
        """The same where rewards wait: what is learned before a round is a matter of the clock."""
        arms = np.empty(contexts.shape[0], dtype=np.int64)
        for t in range(arms.size):
            chosen, memos, _ = self._decide(contexts[t : t + 1])
            arms[t] = chosen[0]
            self._pending.keep(self._pending.add(memos[0]), rewards.item(t, arms[t]))
        return arms

    def _play_span(
        self,
        compiled: Callable[..., tuple[int, int]],
        span: Span,
        contexts: FloatArray,
        rewards: FloatArray,
        arms: IntArray,
    ) -> None:
        count, memo = arms.size, np.empty((1, self.memo_size))
        noise = self._noise(span, 1 if span.rare else count)
        coins = self.randomness.coins.random((count, self.coin_count))
        start, counted = 0, 1
        while start < count:
            left = slice(start, count)
            lines = noise if span.rare else noise[left]
            done, flag = compiled(
                self.state, counted, contexts[left], rewards[left], lines, coins[left], memo, arms[left]
            )
            start += done
            if flag:
                self._on_event(flag)
            counted = TICKED if flag else 1

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        return self._pending.decisions

    def replay(self, entry: Entry) -> None:
        """Apply an entry of a log to the state from before it: the state after it, without new noise.

        Releases and everything made of them are equal to the bit.  Releases come before the decision or reward that
        they belong to, as in the log.
        """
        with self._life.free():
            self._life.go_on()
            if self._replayed is None:
                self._replayed = ReplayingPublisher()
            apply_entry(self, entry, self._replayed)

    # Steps and draws

    def _steps(self) -> BoundSteps:
        """The steps of the present state, bound anew when an event or a restore replaced it."""
        bound = self._bound
        if bound is None or bound.state is not self.state:
            bound = self._bound = bind_steps(self.state, self._unbind)
            self._judged_by = self.belief
        return bound

    def _compiled_run(self) -> Callable[..., tuple[int, int]]:
        """The loop for the present state, compiled: to look up its type takes as long as a few rounds."""
        if self._playing is None or self._playing[0] is not self.state:
            self._playing = self.state, compiled_run(self.state)
        return self._playing[1]

    def _unbind(self) -> None:
        """A better form of the steps has become ready."""
        self._bound = None

    def _draw(self, users: int, counted: int) -> tuple[FloatArray, FloatArray]:
        """Noise of the next tick, in a span that has begun, and coins of its users; it counts as so many decisions."""
        begins = self._ticks_left <= 0
        if begins:
            self._span = self._next_span()
            self._ticks_left = self._span.ticks
        span = self._span
        noise = self._noise(span, 1) if begins or not span.rare else _NOTHING
        self._ticks_left -= counted if span.rare else 1
        if begins and span.rare and span.noise_size:
            self._ticks_left = 0  # whatever interrupts this tick, the next one asks the state whether its leaf is due
        count = self.coin_count
        if count:
            return noise, self.randomness.coins.random((users, count))
        return noise, _NO_COINS if users == 1 else np.zeros((users, 0))

    def _noise(self, span: Span, ticks: int) -> FloatArray:
        """What the span draws for so many ticks, a line for each."""
        shape = (ticks, span.noise_size)
        if span.noise_size == 0:
            return _NOTHING if ticks == 1 else np.zeros(shape)
        source = self.randomness.ticks
        return source.integers(span.noise_scale, shape) if span.rare else source.gaussian(span.noise_scale, shape)
