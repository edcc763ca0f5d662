"""What a campaign finds: how much was done, how often and where processes were killed, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

_MOST_WORDS: Final = 200


@dataclass
class Findings:
    """What a campaign has seen; ``wrong`` is empty where all is well."""

    kills: Counter[str] = field(default_factory=Counter)
    """By where the process was: starting, at work, in a commit, in a snapshot, stopping since it was asked to."""
    stopped: int = 0
    """Processes that were asked to stop, and had done so before the kill."""
    real_starts: int = 0
    """Kills of processes that were started from nothing."""
    decisions: int = 0
    rewards: int = 0
    abandoned: int = 0
    expired: int = 0
    releases: int = 0
    polls: int = 0
    entries: int = 0
    wrong: list[str] = field(default_factory=list)

    def expect(self, right: bool, words: str) -> None:
        """Note what is wrong, unless it is right."""
        if not right and words not in self.wrong and len(self.wrong) < _MOST_WORDS:
            self.wrong.append(words)

    def __str__(self) -> str:
        where = ", ".join(f"{count:,} {place}" for place, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total():,} kills: {where}; {self.real_starts} of processes that were started from nothing\n"
            f"{self.decisions:,} decisions and {self.rewards:,} rewards acknowledged, {self.abandoned:,} abandoned, "
            f"{self.expired:,} too late\n"
            f"{self.releases:,} releases seen in {self.polls:,} polls, {self.entries:,} entries replayed"
        )


class Witness:
    """What one policy has answered and shown, in all lives of its process; says at once when it contradicts itself."""

    def __init__(self, name: str, found: Findings) -> None:
        self.name, self.found = name, found
        self.arms: dict[int, int] = {}
        """Acknowledged decisions by number."""
        self.rewards: set[int] = set()
        """Decisions whose reward was taken."""
        self.abandoned: set[int] = set()
        self.expired: set[int] = set()
        """Decisions whose reward was refused, since it came too late."""
        self.values: dict[tuple[str, Hashable], Hashable] = {}
        """What was shown of each release, by what it is and the number of the release."""
        self.explained: set[Hashable] = set()
        """Estimates that were explained to somebody."""

    def expect(self, right: bool, words: str) -> None:
        """Note what is wrong, unless it is right."""
        self.found.expect(right, f"{self.name}: {words}")

    def decided(self, number: int, arm: int) -> None:
        """A decision was acknowledged."""
        self.expect(self.arms.setdefault(number, arm) == arm, f"decision {number} has two arms")

    def rewarded(self, number: int) -> None:
        """A reward was acknowledged."""
        self.rewards.add(number)
        self.expect(number not in self.expired, f"reward {number} was taken after it had expired")

    def refused(self, number: int) -> None:
        """A reward came too late."""
        self.expired.add(number)
        self.expect(number not in self.rewards, f"reward {number} had been taken, and is now said to be late")

    def shows(self, what: str, key: Hashable, value: Hashable) -> None:
        """Others saw this: one key has one value for ever."""
        self.expect(self.values.setdefault((what, key), value) == value, f"{what} {key} was seen with two values")

    @property
    def estimates(self) -> dict[int, Hashable]:
        """The estimates that were seen, by number of releases."""
        return {key: value for (what, key), value in self.values.items() if what == RELEASE and isinstance(key, int)}

    def count(self) -> None:
        """Add what was done to the findings."""
        self.found.decisions += len(self.arms)
        self.found.rewards += len(self.rewards)
        self.found.abandoned += len(self.abandoned)
        self.found.expired += len(self.expired)
        self.found.releases += sum(number > 0 for number in self.estimates)


RELEASE: Final = "release"
"""The name under which the estimate of a release is shown."""
