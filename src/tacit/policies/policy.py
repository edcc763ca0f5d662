"""What every policy is: select, update, play, explain, privacy, save."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput, TacitError
from tacit.glm.links import LINKS
from tacit.policies import persistence
from tacit.policies.admission import ArmForm, Record, admit_reward, admit_rewards
from tacit.policies.beliefs import AnyBelief, PointBelief, prediction, predictions
from tacit.policies.clock import NO_END, QUEUE, Clock, Span, learn_queued, play, tick
from tacit.policies.config import Config, described_fields
from tacit.policies.decision import Decision, Pending
from tacit.policies.explanation import ChoiceExplanation, Explanation, explanation
from tacit.policies.exploring import COINS, exploring
from tacit.policies.log import (
    DIRECT,
    Abandoned,
    Decided,
    LogEntry,
    LoggingPublisher,
    Publisher,
    ReplayingPublisher,
    Rewarded,
    apply_entries,
)
from tacit.policies.one_life import ALIVE, PolicyLife
from tacit.policies.setting import Setting, make_setting
from tacit.policies.state import Snapshot, rebuild, taken
from tacit.policies.steps import Steps
from tacit.privacy.randomness import Randomness
from tacit.privacy.report import Model, PrivacyReport, no_privacy
from tacit.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from tacit.features.encoding import Arms
    from tacit.features.support import Support

Kept = TypeVar("Kept", bound="Policy")


def _described_arguments(kind: type[Policy]) -> str:
    """Return the sections of a policy's ``help()`` that follow from its configuration."""
    config = kind.config_type
    shown = f"config : {config.__name__}, optional\n    The whole configuration, in place of its fields."
    return f"Parameters\n----------\n{shown}\n{described_fields(config)}{_example(kind)}"


def _example(kind: type[Policy]) -> str:
    """Return the example of a policy of the package, and of its configuration; none for a policy from outside."""
    if not kind.__module__.startswith("tacit.policies."):
        return ""
    values = "dim=2, horizon=1_000" + (", epsilon=1.0, delta=1e-6" if kind.private else "")
    config = f"config = tacit.{kind.config_type.__name__}({values})"
    return f"\n\nExamples\n--------\n>>> import tacit\n>>> {config}\n>>> policy = tacit.{kind.__name__}(config)"


def _parameters(kind: type) -> str:
    """Return the section of a class's documentation on its parameters."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("\nParameters\n")[2].partition("\n\nExamples\n")[0]
    return f"Parameters\n{text}"


def configuration_of(kind: type[Policy], fields: Mapping[str, Any]) -> Config:
    """Return a policy's configuration with these fields; an error names what is missing or unknown."""
    asked = sorted({"epsilon", "delta"} & set(fields))
    if asked and not kind.private:
        raise InvalidInput(f"{kind.name} learns from raw data and has no privacy: it takes no {', '.join(asked)}")
    return kind.config_type.given(fields, kind.name)


class Policy(ABC):
    """A contextual bandit policy.

    A subclass states its name, links, configuration and steps (`tacit.policies.steps`), and makes its state in
    ``_make_state``.  A private one derives from `tacit.policies.private_policy.PrivatePolicy`.

    A policy may be used from several threads: calls wait for each other, each reward counts once, and a saved state is
    one between two calls.  A private one cannot be copied, pickled or used in a forked process.

    Six of its names are for hosts of a policy and for authors alone: ``arm_form`` admits arms apart from
    ``select_admitted``, which chooses among them; ``publisher`` passes on what is released, and may be watched
    (`tacit.policies.log`); ``randomness`` has all sources of random numbers; ``state`` is everything learned, as secret
    as the data in what is annotated `Secret`; ``belief`` is the estimate that predictions and explanations read.

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
    _coin_count: int = 0
    """Uniform random numbers that a choice consumes."""
    _states_propensity: bool = False
    """Whether a choice that consumes coins leaves the probability of its arm in place of the first one."""
    _shares_ticks: ClassVar[bool] = True
    """Whether ``select_batch`` is one tick of the clock for all of its users, or the clock counts users."""
    _noise_for_each: ClassVar[bool] = False
    """Whether a tick draws ``noise_size`` numbers for each of its users, whose devices add them; else once for all."""
    _steps: Steps
    """The steps on its state."""
    _remembers_score: ClassVar[bool] = False
    """Whether a memo has the score of the arm, by what is believed of theta, behind the arm's features."""
    _chooses_by_releases: ClassVar[bool] = False
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
        if cls.__doc__:
            text, heading, examples = inspect.cleandoc(cls.__doc__).partition("\n\nExamples\n")
            arguments = _described_arguments(cls) if "name" in vars(cls) else _parameters(Policy)
            cls.__doc__ = f"{text}\n\n{arguments}{heading}{examples}"
        if "name" in vars(cls) and "\nExamples\n" not in (kind.__doc__ or ""):
            kind.__doc__ = f"{kind.__doc__}{_example(cls)}"

    def __init__(self, config: Config | None = None, /, *, randomness: Randomness | None = None, **fields: Any) -> None:
        """Make the policy from a configuration, or from the fields of one."""
        if not hasattr(self, "_steps"):
            raise TacitError(
                f"{self.name} has no steps: its class must say _steps = Steps(choose, learn, advance) "
                "(CONTRIBUTING.md, 'How to add a policy')"
            )
        self.config = self._chosen(config, fields)
        if self.config.link not in self.links and self.config.link in LINKS:
            raise InvalidInput(f"{self.name} supports the links {', '.join(self.links)}, not {self.config.link!r}")
        self.setting: Setting = self._make_setting()
        if self.config.explore:
            self._explore()
        self.arm_form = ArmForm(self.setting, self._structure, self.config.features)
        """What the policy takes as arms: checks and encodes them, and knows no state."""
        self._row_size = self.arm_form.size  # numbers that steps are given for an arm
        self.randomness = self._make_randomness() if randomness is None else randomness
        self.publisher: Publisher = DIRECT
        """Where releases pass through; another one may watch them or play them back."""
        self._clock = Clock()
        self._open_ledger()
        self.state = self._make_state()
        self._pending = Pending(self._memo_size, self.config.reward_window, self.config.reward_age)
        self._life = PolicyLife(private=self.private)
        self._log: Callable[[LogEntry], None] | None = None
        self._replayed: ReplayingPublisher | None = None
        self._begin()

    def _explore(self) -> None:
        """Have the steps draw a share of the arms at random."""
        if self._coin_count:
            raise InvalidInput(f"{self.name} draws arms at random by itself: leave explore out")
        self._steps, self._coin_count = exploring(self._steps, self.config.explore), COINS
        self._states_propensity = True

    @classmethod
    def _chosen(cls, config: Config | None, fields: dict[str, Any]) -> Config:
        if config is None:
            return configuration_of(cls, fields)
        if fields:
            raise InvalidInput(f"give {cls.name} a configuration or its fields, not both: {', '.join(fields)}")
        if type(config) is not cls.config_type:
            raise InvalidInput(f"{cls.name} needs a {cls.config_type.__name__}, not {type(config).__name__}")
        return config

    @property
    def state(self) -> Any:
        """Everything that the policy remembers between two calls, as arrays; all rewards so far are in it."""
        if self._clock.unlearned:
            with self._life.lock:
                learn_queued(self)
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state
        vars(self).pop("belief", None)  # of the state before, where a subclass caches it

    # What a subclass supplies

    @abstractmethod
    def _make_state(self) -> Any:
        """The state before the first decision."""

    def _begin(self) -> None:  # noqa: B027 - a hook that most policies leave as it is
        """Do what must be done before the first decision, with the state in place."""

    @property
    def _structure(self) -> Support | None:
        """Which features can be nonzero together, where steps take compact rows; None where they take all of d."""
        return None

    @property
    def _memo_size(self) -> int:
        """Numbers that learning must remember of a decision; the arm's features by default."""
        return self._row_size

    @property
    def _noise_size(self) -> int:
        """Privacy noise entries that a tick consumes."""
        return 0

    @property
    def _noise_scale(self) -> float:
        """Standard deviation of that noise now."""
        return 0.0

    def _next_span(self) -> Span:
        """Do what is due before the next tick, such as beginning an epoch; what the ticks from there on draw."""
        return Span(NO_END, self._noise_size, self._noise_scale)

    def _on_event(self, flag: int) -> None:
        """Do what ``advance`` asked for with ``flag``."""
        raise NotImplementedError(f"{self.name} raised the unexpected event {flag}")

    def _close(self, noise: FloatArray, users: int) -> bool:
        """Release what is due before the decisions of ``users``; whether anything is new.  True without a stream."""
        stream = getattr(self._state, "stream", None)
        return True if stream is None else self.publisher.leaf(stream, noise, users)

    def _learn(self, memo: FloatArray, reward: float) -> None:
        """Take in one admitted reward."""
        queue = self._clock.unlearned
        queue.append((memo, reward))
        if not self._chooses_by_releases or len(queue) >= QUEUE:
            learn_queued(self)

    def _learn_rows(self, memos: FloatArray, rewards: FloatArray) -> None:
        """Take in the admitted rewards of N decisions."""
        if self._steps.make_room is not None:
            self._state = self._steps.make_room(self._state, rewards.size)
        self._steps.learn(self._state, memos, rewards)

    @property
    def _users_at_once(self) -> int:
        """How many users of ``select_batch`` the next tick serves at most."""
        return NO_END if self._shares_ticks else 1

    def _counted(self, users: int) -> int:
        """How many decisions the clock counts with the next ``users``: with ``reward_age`` those that come of age."""
        return self._pending.coming_of_age(users) if self._pending.age else users

    # What a private policy supplies (`tacit.policies.private_policy`)

    private: ClassVar[bool] = False

    def _make_setting(self) -> Setting:
        return make_setting(self.config)

    def _make_randomness(self) -> Randomness:
        return Randomness.make(self.config.seed, None, private=False)

    def _open_ledger(self) -> None:  # noqa: B027 - a hook that most policies leave as it is
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
        return self.select_admitted(self.arm_form.one(contexts, user, arms))

    def select_admitted(self, block: FloatArray) -> Decision:
        """Choose an arm for one user whose arms were admitted before.

        Parameters
        ----------
        block : array, shape (1, K, row size)
            What ``arm_form.one`` made of the arms.

        Returns
        -------
        Decision
            The arm to play, and the id by which its reward is reported.
        """
        life = self._life
        with life.lock if ALIVE[0] else life.free():  # the parts of ``free`` and ``turn``, where nanoseconds count
            if life.running.locked():
                life.turn()
            with life.running:
                arms, memos, coins = self._decide(block)
                decision = self._handed_out(arms, memos, coins)[0]
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
        block, refused = self.arm_form.many(contexts, users, arms)
        with self._life.free(), self._life.turn():
            answers: list[Decision | InvalidInput] = [*self._decisions(block)]
        for user, error in sorted(refused.items()):
            answers.insert(user, error)
        return answers

    def _decisions(self, block: FloatArray) -> list[Decision]:
        decisions: list[Decision] = []
        while (start := len(decisions)) < block.shape[0]:
            arms, memos, coins = self._decide(block[start : start + self._users_at_once])
            decisions += self._handed_out(arms, memos, coins)
            if self._log is not None:
                self._log(Decided(decisions[start].id, arms.tolist(), memos.copy()))
        return decisions

    def _handed_out(self, arms: IntArray, memos: FloatArray, coins: FloatArray) -> list[Decision]:
        """The decisions of N users, which wait for their rewards from now on."""
        link, belief, size, known = self.setting.link, self.belief, self._row_size, None if self._coin_count else 1.0
        if len(memos) == 1:  # single numbers: a call of NumPy costs more than they do
            memo, propensity = memos[0], coins.item(0) if self._states_propensity else known
            mean, sd = prediction(link, belief, memo[:size], memo.item(size) if self._remembers_score else None)
            return [Decision(arms.item(), self._pending.add(memo), propensity, mean, sd)]
        propensities = coins[:, 0].tolist() if self._states_propensity else [known] * len(memos)
        told = predictions(link, belief, memos[:, :size])
        fields = zip(arms.tolist(), self._pending.add_many(memos), propensities, *told, strict=True)
        return list(map(partial(tuple.__new__, Decision), fields))  # no call of Python for each user

    def _decide(self, contexts: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """One tick, then an arm and a memo for each user; last come the coins, which may hold propensities now."""
        if self._life.claim is not None:
            self._life.go_on()
        memos = np.empty((contexts.shape[0], self._pending.memo_size))
        coins = tick(self, contexts.shape[0])
        return self._steps.choose(self._state, contexts, coins, memos), memos, coins

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
        with life.lock if ALIVE[0] else life.free():
            if life.running.locked():
                life.turn()
            with life.running:
                if life.claim is not None:
                    self._pending.find(decision)  # a call that is refused does not count as going on
                    life.go_on()
                if self._pending.age:
                    self._pending.keep(decision, value)  # until its decision has reached ``reward_age``
                else:
                    # Taken first: where the rest is interrupted, a reward never counts twice.
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
        with self._life.free(), self._life.turn():
            identity = self._pending.find(decision)
            self._life.go_on()
            self._pending.take(identity)
            if self._log is not None:
                self._log(Abandoned(identity))

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
        block = self.arm_form.rounds(contexts)
        table = admit_rewards(rewards, block.shape[:2], self.setting)
        if self._log is not None:
            raise InvalidInput("play hands no decisions over to a log: use select and update where one is kept")
        with self._life.free(), self._life.turn():
            self._life.go_on()
            return play(self, block, table)

    def explain(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        user: Record | None = None,
        arms: Arms | None = None,
        arm: int | None = None,
    ) -> Explanation | ChoiceExplanation:
        """Explain what was learned, or with a user's arms why one of them is better than the others.

        All of it follows from the newest estimate, of a private policy from releases; nothing is kept, and the clock
        does not go on.

        Parameters
        ----------
        contexts : array_like, shape (K, d), optional
            One user's arms as rows of features; without any arms the estimate is explained.
        user : mapping, optional
            Record of the user, for a policy with a schema.
        arms : sequence of mappings or columns, optional
            Records of the arms, for a policy with a schema.
        arm : int, optional
            The arm to compare with the best of the others; by default the best one by what is predicted.

        Returns
        -------
        Explanation or ChoiceExplanation
            Every feature with its weight and standard deviation, or with what it contributes to the difference; prints
            as a table with bars.
        """
        form = self.arm_form
        rows = None if contexts is None and arms is None and user is None else form.one(contexts, user, arms)[0]
        with self._life.free(), self._life.turn():
            belief = self.belief
            if belief is None:
                raise InvalidInput(f"{self.name} has no estimate to explain anything by")
            told = f"From the estimate after {self.decisions} decisions"
            source = f"{told}, made of releases alone." if self.private else f"{told}, which no privacy protects."
            return explanation(form, self.setting.link, belief, source, rows, arm)

    @property
    def belief(self) -> AnyBelief | None:
        """What arms are predicted by; None for a policy that has no estimate.

        Its arrays are those of the state, and change with it.
        """
        theta = getattr(self._state, "theta", None)
        return PointBelief(theta) if theta is not None and theta.ndim == 1 else None

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        return self._pending.decisions

    # How it is kept: as a snapshot, in a file, as a log, and never as a copy that goes on beside it

    def snapshot(self) -> Snapshot:
        """Return the whole state as plain arrays and JSON.  It contains raw sums and waiting rows: secret as the data.

        ``Policy.from_snapshot`` and `tacit.restore` go on from it.  Of a private policy one only may go on, since noise
        drawn twice for one release is a privacy loss: the caller must see to it.  ``save`` and `tacit.load` do so for
        files.

        Returns
        -------
        Snapshot
            The state, with arrays of its own.
        """
        with self._life.free(), self._life.turn():
            self._life.go_on()  # else the file of an earlier save and the snapshot could both go on
            return taken(self).copied()

    @classmethod
    def from_snapshot(cls: type[Kept], snapshot: Snapshot, *, randomness: Randomness | None = None) -> Kept:
        """Return a policy in the state of a snapshot.

        Parameters
        ----------
        snapshot : Snapshot
            What ``snapshot`` gave.
        randomness : Randomness, optional
            Sources of all further random numbers; those of the snapshot by default.

        Returns
        -------
        Policy
            A policy of the class that this is called on.
        """
        saved = Randomness.from_json(snapshot.header["randomness"]) if randomness is None else randomness
        kept = cls(cls.config_type.from_json(snapshot.header["config"]), randomness=saved)
        kept._restore(snapshot)
        return kept

    def _restore(self, snapshot: Snapshot) -> None:
        self.state = rebuild(self.state, snapshot.group("state"))
        self._pending.restore(**snapshot.group("pending"))
        self._clock.ticks_left = 0

    def _header(self) -> dict[str, Any]:
        """What a snapshot holds beside arrays."""
        return {"policy": self.name, "config": self.config.to_json(), "randomness": self.randomness.to_json()}

    def fingerprint(self) -> str:
        """Return a hash of everything that future behaviour depends on, raw sums included: as secret as the data.

        Returns
        -------
        str
            Hexadecimal digits; equal states have equal ones.
        """
        with self._life.free(), self._life.turn():
            return taken(self).digest()

    def public_fingerprint(self) -> str:
        """Return a hash of all that others may see of a private policy.

        Returns
        -------
        str
            Hexadecimal digits; equal public states have equal ones (`PrivatePolicy.public_fingerprint`).

        Raises
        ------
        InvalidInput
            When the policy learns from raw data.
        """
        raise InvalidInput(f"{self.name} learns from raw data: nothing of its state is public")

    def save(self, path: str | Path) -> None:
        """Write the whole state to ``path``.  It contains raw sums and waiting rows: as secret as the data.

        Exactly one of this object and the file can go on: the first to do so takes the other's right away, since noise
        drawn twice for one release is a privacy loss.  An earlier file of this object goes stale.

        Parameters
        ----------
        path : str or Path
            The file, which is replaced at once; `tacit.load` reads it.
        """
        with self._life.free(), self._life.turn():
            self._life.go_on()  # else two files of one state, or a file and this object, could both go on
            snapshot = taken(self)
            claim = persistence.new_claim(path)
            self._life.saved(claim)  # before there is a file: from then on one of the two goes on, also after an error
            persistence.write(claim, snapshot.header, snapshot.arrays)

    def keep_log(self, sink: Callable[[LogEntry], None] | None) -> None:
        """Hand every release, decision, reward and abandoned decision to ``sink`` from now on, in order.

        Entries are handed over inside of the call that they belong to, before it returns (`tacit.policies.log`).  A
        policy whose sink raised has done what is not in the log, and must not go on.

        Parameters
        ----------
        sink : callable or None
            Takes one log entry; None ends the log.
        """
        with self._life.free(), self._life.turn():
            self._log = sink
            self.publisher = DIRECT if sink is None else LoggingPublisher(sink)

    def replay(self, entries: Iterable[LogEntry]) -> None:
        """Apply entries of a log to the state from before them, without new noise.

        Releases and everything made of them are equal to the bit, however a log is cut into calls.  An entry that
        cannot be applied raises, after all of those before it were applied.

        Parameters
        ----------
        entries : iterable of log entries
            What ``keep_log`` handed over, in the same order: a release before the decision or reward it belongs to.

        Raises
        ------
        TacitError
            When an entry does not follow from the state and the entries before it.
        """
        with self._life.free(), self._life.turn():
            self._life.go_on()
            if self._replayed is None:
                self._replayed = ReplayingPublisher()
            apply_entries(self, entries, self._replayed)

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self._life.refuse_copies("copied")
        return type(self).from_snapshot(self.snapshot())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        self._life.refuse_copies("pickled")
        return type(self).from_snapshot, (self.snapshot(),)
