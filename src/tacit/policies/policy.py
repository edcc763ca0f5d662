"""What every policy is: select, update, play, privacy, save."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput, TacitError
from tacit.glm.links import LINKS
from tacit.policies.admission import admit_reward, admit_rewards
from tacit.policies.arm_forms import ArmForm, Record
from tacit.policies.config import Config, described_fields
from tacit.policies.decision import Decision, Pending
from tacit.policies.log import Abandoned, Decided, LogEntry, Rewarded
from tacit.policies.one_life import ALIVE, PolicyLife
from tacit.policies.predicting import Predicting
from tacit.policies.publisher import DIRECT, Publisher
from tacit.policies.replay import ReplayingPublisher, apply_entry
from tacit.policies.setting import Setting, make_setting
from tacit.policies.steps import ArraySteps
from tacit.policies.storable import Storable
from tacit.privacy.randomness import Randomness
from tacit.privacy.report import Model, PrivacyReport, no_privacy
from tacit.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from tacit.features.encoding import Arms
    from tacit.features.support import Support

NO_END = 1 << 30
"""Ticks of a span that nothing ends."""
_NOTHING, _NO_COINS = np.zeros((1, 0)), np.zeros((1, 0))
_QUEUE = 64
"""Rewards that are learned from together: a call of NumPy costs about the same for one row and for sixty."""
_CHUNK = 1 << 17
"""Numbers of contexts that ``play`` chooses by at a time: what the processor's cache holds."""


class Span(NamedTuple):
    """Ticks that may follow each other without anything between them, and the noise that they draw."""

    ticks: int
    noise_size: int
    noise_scale: float
    rare: bool = False
    """Whether ``ticks`` counts decisions, and only the first tick draws noise, in whole numbers."""


def _described_arguments(kind: type[Policy]) -> str:
    """Return the sections of a policy's ``help()`` that follow from its configuration."""
    config = kind.config_type
    shown = f"config : {config.__name__}, optional\n    The whole configuration, in place of its fields."
    text = f"Parameters\n----------\n{shown}\n{described_fields(config)}"
    if not kind.__module__.startswith("tacit.policies."):
        return text
    values = "dim=2, horizon=1_000" + (", epsilon=1.0, delta=1e-6" if kind.private else "")
    example = f"policy = tacit.{kind.__name__}(tacit.{config.__name__}({values}))"
    return f"{text}\n\nExamples\n--------\n>>> import tacit\n>>> {example}"


class Policy(Storable, Predicting, ABC):
    """A contextual bandit policy.

    A subclass states its name, links, configuration and steps (`tacit.policies.steps`), and makes its state in
    ``_make_state``.  A private one derives from
    `tacit.policies.private_policy.PrivatePolicy`.  Everything else is done here.

    A policy may be used from several threads: calls wait for each other, each reward counts once, and a saved state is
    one between two calls.  A private one cannot be copied, pickled or used in a forked process.

    Parameters
    ----------
    config : Config, optional
        The whole configuration, of the class's ``config_type``.
    randomness : Randomness, optional
        Sources of all random numbers, which may be taped or played back (`tacit.privacy.randomness`).
    **fields : Any
        Fields of the configuration, in place of ``config``.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.make_policy("greedy-mle", dim=2)
    >>> policy.update(policy.select([[1.0, 0.0], [0.0, 1.0]]), 1.0)
    >>> policy.decisions
    1
    """

    name: ClassVar[str]
    guarantee: ClassVar[Model] = "none"
    """Privacy model: ``joint``, ``shuffle``, ``local`` or ``none``."""
    links: ClassVar[Collection[str]] = LINKS
    """Names of the links that it can work with; all of them unless stated."""
    config_type: ClassVar[type[Config]] = Config
    coin_count: int = 0
    """Uniform random numbers that a choice consumes."""
    states_propensity: ClassVar[bool] = False
    """Whether a choice that consumes coins leaves the probability of its arm in place of the first one."""
    shares_ticks: ClassVar[bool] = True
    """Whether ``select_batch`` is one tick of the clock for all of its users, or the clock counts users."""
    noise_for_each: ClassVar[bool] = False
    """Whether a tick draws ``noise_size`` numbers for each of its users, whose devices add them; else once for all."""
    steps: ClassVar[ArraySteps]
    """The steps on its state."""
    chooses_by_releases: ClassVar[bool] = False
    """Whether nothing that arms are chosen by changes between two releases.

    Rounds up to the next release are then played together, and rewards are summed several at a time.
    """
    config: Any

    def __init_subclass__(cls, **rest: Any) -> None:
        """Let ``help()`` and interactive completion show the configuration of this very policy."""
        super().__init_subclass__(**rest)
        only, kind = inspect.Parameter.POSITIONAL_ONLY, cls.config_type
        config = inspect.Parameter("config", only, default=None, annotation=f"{kind.__name__} | None")
        keywords = inspect.signature(kind).parameters.values()
        cls.__signature__ = inspect.Signature([config, *keywords])  # type: ignore[attr-defined]
        if "name" in vars(cls) and cls.__doc__:
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{_described_arguments(cls)}"

    def __init__(self, config: Config | None = None, /, *, randomness: Randomness | None = None, **fields: Any) -> None:
        """Make the policy from a configuration, or from the fields of one."""
        if not hasattr(self, "steps"):
            raise TacitError(
                f"{self.name} has no steps: its class must say steps = ArraySteps(choose, learn, advance) "
                "(CONTRIBUTING.md, 'How to add a policy')"
            )
        self.config = self._chosen(config, fields)
        if self.config.link not in self.links and self.config.link in LINKS:
            raise InvalidInput(f"{self.name} supports the links {', '.join(self.links)}, not {self.config.link!r}")
        self.setting: Setting = self._make_setting()
        self._arms = ArmForm(self.setting, self.structure, self.config.features)
        self._row_size = self._arms.size
        self.randomness = self._make_randomness() if randomness is None else randomness
        self.publisher: Publisher = DIRECT
        """Where releases pass through; another one may watch them or play them back."""
        self._unlearned: list[tuple[FloatArray, float]] = []
        """Memos and rewards that were taken in and not summed yet: `state` sees to it that others see none."""
        self._open_ledger()
        self.state = self._make_state()
        self._pending = Pending(self.memo_size, self.config.reward_window, self.config.reward_age)
        self._life = PolicyLife(private=self.private)
        self._span = Span(0, 0, 0.0)
        self._ticks_left = 0
        """How many ticks of the span may still follow; none when the state was replaced."""
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

    @property
    def state(self) -> Any:
        """Everything that the policy remembers between two calls, as arrays; all rewards so far are in it."""
        if self._unlearned:
            with self._life.lock:
                self._learn_queued()
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state

    # What a subclass supplies

    @abstractmethod
    def _make_state(self) -> Any:
        """The state before the first decision."""

    def _begin(self) -> None:
        """Do what must be done before the first decision, with the state in place."""

    @property
    def structure(self) -> Support | None:
        """Which features can be nonzero together, where steps take compact rows; None where they take all of d."""
        return None

    @property
    def row_size(self) -> int:
        """Numbers that steps are given for an arm."""
        return self._row_size

    def as_steps_take(self, contexts: npt.ArrayLike) -> FloatArray:
        """Arms of shape (N, K, d), checked, in the form that steps take: for looks from outside."""
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
        """Release what is due before the decisions of ``users``; whether anything is new.  True without a stream."""
        return True

    def _learn(self, memo: FloatArray, reward: float) -> None:
        """Take in one admitted reward."""
        self._unlearned.append((memo, reward))
        if not self.chooses_by_releases or len(self._unlearned) >= _QUEUE:
            self._learn_queued()

    def _learn_queued(self) -> None:
        """Sum up what waits.  Taken out first: an interruption may lose rewards, and never counts one twice."""
        queued, self._unlearned = self._unlearned, []
        memos, rewards = zip(*queued, strict=True)
        self._learn_rows(np.array(memos), np.array(rewards))

    def _learn_rows(self, memos: FloatArray, rewards: FloatArray) -> None:
        """Take in the admitted rewards of N decisions."""
        self.steps.learn(self._state, memos, rewards)

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
        """Choose an arm for one user.

        Parameters
        ----------
        contexts : array_like, shape (K, d), optional
            The user's arms as rows of features, of norm at most 1.
        user : mapping, optional
            Record of the user, for a policy with a schema (``features``).
        arms : sequence of mappings or columns, optional
            Records of the arms, for a policy with a schema.

        Returns
        -------
        Decision
            The arm to play, and the id by which its reward is reported.

        Raises
        ------
        InvalidInput
            When the arms are not valid; nothing was changed.
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
            (decision,) = self._handed_out(arms, memos, coins)
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
        """Choose for many users at once, on one tick of the clock where the policy has such.

        How many users were valid is public: decisions are numbered.

        Parameters
        ----------
        contexts : array_like, shape (N, K, d), optional
            Each user's arms as rows of features, of norm at most 1.
        users : sequence of mappings, optional
            Records of the users, for a policy with a schema (``features``).
        arms : sequence of mappings or columns, optional
            Records of the arms, one list for all users or a list for each.

        Returns
        -------
        list of Decision or InvalidInput
            For each user a decision, or the error for one whose arms are not valid; the others get theirs.
        """
        block, refused = self._arms.many(contexts, users, arms)
        with self._life.free():
            made = iter(self._decisions(block))
        count = block.shape[0] + len(refused)
        return [refused[user] if user in refused else next(made) for user in range(count)]

    def _decisions(self, block: FloatArray) -> list[Decision]:
        decisions: list[Decision] = []
        while (start := len(decisions)) < block.shape[0]:
            arms, memos, coins = self._decide(block[start : start + self._users_at_once])
            decisions += self._handed_out(arms, memos, coins)
            if self._log is not None:
                self._log(Decided(decisions[start].id, arms.tolist(), memos.copy()))
        return decisions

    @property
    def _users_at_once(self) -> int:
        """How many users of ``select_batch`` the next tick serves at most."""
        return NO_END if self.shares_ticks else 1

    def _handed_out(self, arms: IntArray, memos: FloatArray, coins: FloatArray) -> list[Decision]:
        """The decisions of N users, which wait for their rewards from now on."""
        predictions = self._predictions(memos[:, : self._row_size])
        propensities: list[float] | list[None] | list[float | None]
        if self.coin_count:
            propensities = coins[:, 0].tolist() if self.states_propensity else [None] * arms.size
        else:
            propensities = [1.0] * arms.size
        add = self._pending.add
        return [
            Decision(arm, add(memo), propensity, mean, sd)
            for arm, memo, propensity, (mean, sd) in zip(arms.tolist(), memos, propensities, predictions, strict=True)
        ]

    def _decide(self, contexts: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """One tick, then an arm and a memo for each user; last come the coins, which may hold propensities now."""
        if self._life.claim is not None:
            self._life.go_on()
        if self._pending.age:
            self._mature()
        users = contexts.shape[0]
        counted = self._counted(users)
        memos = np.empty((users, self._pending.memo_size))
        noise, coins = self._draw(users, counted)
        self._tick(noise[0], users, counted)
        return self.steps.choose(self._state, contexts, coins, memos), memos, coins

    def _counted(self, users: int) -> int:
        """How many decisions the clock counts with the next ``users``: with ``reward_age`` those that come of age."""
        return self._pending.coming_of_age(users) if self._pending.age else users

    def _tick(self, noise: FloatArray, users: int, counted: int) -> None:
        """The tick before the decisions of ``users``: release what is due with this noise, and take it in.

        The clock of releases counts it as ``counted`` decisions.
        """
        if self._unlearned and (noise.size or not self._span.rare):
            self._learn_queued()
        fresh = self._close(noise, counted)  # may replace the state
        event = self.steps.advance(self._state, fresh, users)
        if event:
            self._on_event(event)

    def update(self, decision: Decision | int, reward: float) -> None:
        """Report the reward of a decision: later, in any order, at most once.

        A user who did not click, or was not cured, needs ``update(decision, 0.0)``: what is never reported teaches
        nothing, and reporting the good outcomes alone teaches that every arm is good.

        Parameters
        ----------
        decision : Decision or int
            What ``select`` gave, or its ``id``.
        reward : float
            Between 0 and the policy's ``reward_bound``.

        Raises
        ------
        UnknownDecision, ExpiredDecision, AlreadyRewarded
            When no reward is waited for; nothing was changed.
        """
        value, life = admit_reward(reward, self.setting), self._life
        if life.lock._is_owned() or not ALIVE[0]:
            life.look()
        with life.lock:
            if life.claim is not None:
                self._pending.find(decision)  # a call that is refused does not count as going on
                life.go_on()
            if self._pending.age:
                self._pending.keep(decision, value)  # until its decision has reached ``reward_age``
            else:
                # Taken first: whatever interrupts the rest, a reward never counts twice.
                self._learn(self._pending.take(decision), value)
            if self._log is not None:
                self._log(Rewarded(decision.id if isinstance(decision, Decision) else int(decision), value))

    def abandon(self, decision: Decision | int) -> None:
        """Give a decision up whose arm was never shown: it teaches nothing, and no reward of it is taken any more.

        The clock has counted it.  Where an arm was shown and nothing came of it, ``update(decision, 0.0)`` says so.

        Parameters
        ----------
        decision : Decision or int
            What ``select`` gave, or its ``id``.
        """
        with self._life.free():
            identity = self._pending.find(decision)
            self._life.go_on()
            self._pending.take(identity)
            if self._log is not None:
                self._log(Abandoned(identity))

    def _mature(self) -> None:
        """Before a tick: learn from the decisions that have reached ``reward_age`` and have a reward."""
        for memo, reward in self._pending.matured():
            self._learn(memo, reward)

    def play(self, contexts: npt.ArrayLike, rewards: npt.ArrayLike) -> IntArray:
        """Play whole rounds at once, with the result of ``select`` and ``update`` in turn, round by round.

        Parameters
        ----------
        contexts : array_like, shape (n, K, d)
            The arms of each round as rows of features, of norm at most 1.
        rewards : array_like, shape (n, K)
            What each arm would earn in each round; only the chosen arm's entry is looked at.

        Returns
        -------
        numpy.ndarray, shape (n,)
            The arms that were chosen.
        """
        block = self._arms.rounds(contexts)
        table = admit_rewards(rewards, block.shape[:2], self.setting)
        if self._log is not None:
            raise InvalidInput("play hands no decisions over to a log: use select and update where one is kept")
        with self._life.free():
            self._life.go_on()
            if self._pending.age:
                return self._play_one_by_one(block, table)
            self._ticks_left = 0  # spans of its own: whatever interrupts it, the next decision begins another
            if self._unlearned:
                self._learn_queued()  # before those of these rounds, as they came
            arms, start = np.empty(block.shape[0], dtype=np.int64), 0
            while start < block.shape[0]:
                span = self._span = self._next_span()
                stop = min(block.shape[0], start + span.ticks)
                self._play_rounds(span, block[start:stop], table[start:stop], arms[start:stop])
                start = stop
            self._pending.skip(block.shape[0])
        return arms

    def _play_rounds(self, span: Span, contexts: FloatArray, rewards: FloatArray, arms: IntArray) -> None:
        """Play the rounds of a span: together where only its first tick can release anything, else one by one."""
        count, together = arms.size, span.rare and self.chooses_by_releases
        noise = self._noise(span, 1 if span.rare else count)
        coins = self.randomness.coins.random((count, self.coin_count))
        if together:
            self._tick(noise[0], count, count)
        most = max(1, _CHUNK // contexts[0].size) if together else 1
        for start in range(0, count, most):
            part = slice(start, min(count, start + most))
            if not together:
                self._tick(noise[start] if start < len(noise) else _NOTHING[0], 1, 1)
            self._play_part(contexts[part], rewards[part], coins[part], arms[part])

    def _play_part(self, contexts: FloatArray, rewards: FloatArray, coins: FloatArray, arms: IntArray) -> None:
        """Choose for all of these users, and learn from what their arms earn."""
        memos = np.empty((arms.size, self.memo_size))
        arms[:] = self.steps.choose(self._state, contexts, coins, memos)
        earned = rewards[0][arms] if arms.size == 1 else rewards[np.arange(arms.size), arms]
        self._learn_rows(memos, earned)

    def _play_one_by_one(self, contexts: FloatArray, rewards: FloatArray) -> IntArray:
        """The same where rewards wait: what is learned before a round is a matter of the clock."""
        arms = np.empty(contexts.shape[0], dtype=np.int64)
        for t in range(arms.size):
            chosen, memos, _ = self._decide(contexts[t : t + 1])
            arms[t] = chosen[0]
            self._pending.keep(self._pending.add(memos[0]), rewards.item(t, arms[t]))
        return arms

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        return self._pending.decisions

    def replay(self, entry: LogEntry) -> None:
        """Apply an entry of a log to the state from before it: the state after it, without new noise.

        Releases and everything made of them are equal to the bit.  Releases come before the decision or reward that
        they belong to, as in the log.
        """
        with self._life.free():
            self._life.go_on()
            if self._replayed is None:
                self._replayed = ReplayingPublisher()
            apply_entry(self, entry, self._replayed)

    # Draws

    def _draw(self, users: int, counted: int) -> tuple[FloatArray, FloatArray]:
        """Noise of the next tick, in a span that has begun, and coins of its users; it counts as so many decisions."""
        begins = self._ticks_left <= 0
        if begins:
            self._span = self._next_span()
            self._ticks_left = self._span.ticks
        span = self._span
        noise = self._noise(span, users if self.noise_for_each else 1) if begins or not span.rare else _NOTHING
        if self.noise_for_each:
            noise = noise.reshape(1, -1)
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
