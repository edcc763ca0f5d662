"""How a policy is kept: as a snapshot, in a file, as a log, and never as a copy that goes on beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tacit.errors import InvalidInput
from tacit.policies import persistence
from tacit.policies.config import Config
from tacit.policies.decision import Pending
from tacit.policies.log import LogEntry, LoggingPublisher
from tacit.policies.one_life import PolicyLife
from tacit.policies.publisher import DIRECT, Publisher
from tacit.policies.snapshots import Snapshot, restored_state
from tacit.policies.state import flatten
from tacit.privacy.randomness import Randomness

Kept = TypeVar("Kept", bound="Storable")


class Storable:
    """The part of a policy that turns it into plain arrays and JSON, and back."""

    name: ClassVar[str]
    config_type: ClassVar[type[Config]]
    config: Any
    state: Any
    randomness: Randomness
    _pending: Pending
    _life: PolicyLife
    _ticks_left: int
    publisher: Publisher
    _log: Callable[[LogEntry], None] | None = None

    def __init__(self, config: Config | None = None, /, *, randomness: Randomness | None = None, **fields: Any) -> None:
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """The whole state as plain arrays and JSON.  It contains raw sums and waiting rows: as secret as the data.

        ``Policy.from_snapshot`` and `tacit.restore` go on from it.  Of a private policy one only may go on: whoever
        keeps snapshots must see to it, since noise drawn twice for one release is a privacy loss.  ``save`` and
        `tacit.load` do so for files.
        """
        with self._life.free():
            self._life.go_on()  # else the file of an earlier save and the snapshot could both go on
            return self._taken().copied()

    @classmethod
    def from_snapshot(cls: type[Kept], snapshot: Snapshot, *, randomness: Randomness | None = None) -> Kept:
        """The policy in the state of a snapshot."""
        saved = Randomness.from_json(snapshot.header["randomness"]) if randomness is None else randomness
        kept = cls(cls.config_type.from_json(snapshot.header["config"]), randomness=saved)
        kept._restore(snapshot)
        return kept

    def _taken(self) -> Snapshot:
        """A snapshot that shares its arrays with the policy."""
        arrays = {f"state.{path}": array for path, array in flatten(self.state).items()}
        arrays |= {f"pending.{path}": array for path, array in self._pending.to_arrays().items()}
        return Snapshot(self._header(), arrays)

    def _restore(self, snapshot: Snapshot) -> None:
        self.state = restored_state(self.state, snapshot)
        self._pending.restore(**snapshot.group("pending"))
        self._ticks_left = 0

    def _header(self) -> dict[str, Any]:
        """What a snapshot holds beside arrays."""
        return {"policy": self.name, "config": self.config.to_json(), "randomness": self.randomness.to_json()}

    def fingerprint(self) -> str:
        """Hash of everything that future behaviour depends on, raw sums included: as secret as the data."""
        with self._life.free():
            return self._taken().digest()

    def public_fingerprint(self) -> str:
        """Hash of all that others may see: public fields of the state, ledger, clock.  A function of releases."""
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
        with self._life.free():
            self._life.go_on()  # else two files of one state, or a file and this object, could both go on
            snapshot = self._taken()
            claim = persistence.new_claim(path)
            self._life.saved(claim)  # before there is a file: from then on one of the two goes on, whatever fails here
            persistence.write(claim, snapshot.header, snapshot.arrays)

    def keep_log(self, sink: Callable[[LogEntry], None] | None) -> None:
        """Hand every release, decision and reward to ``sink`` from now on, in order; None ends it.

        Entries are handed over inside of the call that they belong to, before it returns (`tacit.policies.log`).  A
        policy whose sink raised has done what is not in the log, and must not go on.
        """
        with self._life.free():
            self._log = sink
            self.publisher = DIRECT if sink is None else LoggingPublisher(sink)

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self._life.refuse_copies("copied")
        return type(self).from_snapshot(self.snapshot())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        self._life.refuse_copies("pickled")
        return type(self).from_snapshot, (self.snapshot(),)
