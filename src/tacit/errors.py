"""Every error that the package raises on purpose, as one tree; each message states the remedy.

    TacitError
        InvalidInput                 an argument is outside its domain (also a ValueError)
            UnknownDecision          no decision has this id
            ExpiredDecision          the decision is older than reward_window or reward_age admits
            AlreadyRewarded          the decision's reward has been taken in
        BudgetExceeded               a release does not fit what is left of the budget
        CorruptState                 a file does not hold a complete saved state
        OneLife                      a private state would go on in two places
            StateInUse               a saved state has been resumed already
            CannotMark               a saved state cannot be marked as resumed, so that it must not be
            CannotCopy               a private policy was copied, pickled, or used in a forked process
        BatchTooSmall                a shuffled batch has fewer reports than it was calibrated for
        AlreadyReleased              a shuffled batch was released before
        CalibrationError             no message of the allowed size meets the budget
        StoreError                   something about a durable store
            StoreInUse               another process works on the store (also OneLife)
            StoreMoved               the store is a copy, or was moved to another machine (also OneLife)
            JournalLost              another process has appended to the journal meanwhile (also OneLife)
            StoreDamaged             the store does not hold what it should (also CorruptState)
            StoreTooNew              the store was written by a later version
            StoreFailed              a write failed part of the way
            UnknownJournal           the store has no journal of this name
            JournalExists            the store has a journal of this name already
        MissingExtra                 an optional package is not installed (also a ModuleNotFoundError)
        ServiceRefused               a decision service refused a call: ``status`` and its words
        ServiceUnavailable           a decision service could not be reached, or could not answer in time

``RecoveryWarning`` is no error: it says what a recovered policy has lost.
"""

from __future__ import annotations


class TacitError(Exception):
    """Base of every error the package raises on purpose."""


class InvalidInput(TacitError, ValueError):  # noqa: N818 - reads as a statement at the call site
    """An argument is outside its stated domain; nothing was changed."""


class UnknownDecision(InvalidInput):
    """No decision of this policy has this id."""


class ExpiredDecision(InvalidInput):
    """The decision is older than ``reward_window`` or ``reward_age`` admits, which count decisions."""


class AlreadyRewarded(InvalidInput):
    """The decision's reward has been taken in; a reward counts once."""


class BudgetExceeded(TacitError):  # noqa: N818
    """A release does not fit into what is left of the privacy budget; nothing was recorded or drawn."""


class CorruptState(TacitError):  # noqa: N818
    """A file does not hold a complete saved state."""


class OneLife(TacitError):  # noqa: N818
    """A private state would go on in two places, and release the same rows twice."""


class StateInUse(OneLife):
    """A saved state has been resumed already."""


class CannotMark(OneLife):
    """A saved state cannot be marked as resumed, so that nothing would stop a second resumption."""


class CannotCopy(OneLife):
    """A private policy was copied, pickled, or used in a forked process."""


class BatchTooSmall(TacitError):  # noqa: N818
    """A batch has fewer reports than its noise was calibrated for; it is never opened."""


class AlreadyReleased(TacitError):  # noqa: N818
    """A shuffled batch was released before."""


class CalibrationError(TacitError):
    """No message of the allowed size meets the budget."""


class StoreError(TacitError):
    """Something about a durable store; nothing was answered that it does not hold."""


class StoreInUse(StoreError, OneLife):  # noqa: N818
    """Another process works on the store: two of them would release the same rows twice."""


class StoreMoved(StoreError, OneLife):  # noqa: N818
    """The store is a copy of another one, or was moved to another machine; the original may still go on."""


class JournalLost(StoreError, OneLife):  # noqa: N818
    """Another process has appended to the journal meanwhile; nothing was changed, and this one must not go on."""


class StoreDamaged(StoreError, CorruptState):  # noqa: N818
    """The store does not hold what it should: a checksum does not match, or something is missing."""


class StoreBusy(StoreError, InvalidInput):  # noqa: N818
    """Others, such as a dump, read what is to be erased: nothing was changed, and the call may be repeated."""


class StoreTooNew(StoreError):  # noqa: N818
    """The store was written by a later version of the package."""


class StoreFailed(StoreError):  # noqa: N818
    """A write failed, perhaps after a part was written: discard the state in memory and open the store anew."""


class UnknownJournal(StoreError):  # noqa: N818
    """The store has no journal of this name."""


class JournalExists(StoreError):  # noqa: N818
    """The store has a journal of this name already."""


class MissingExtra(TacitError, ModuleNotFoundError):  # noqa: N818
    """An optional package is not installed; the message has the command that installs it."""


class ServiceRefused(TacitError):  # noqa: N818
    """A decision service refused a call; ``status`` is that of HTTP, ``code`` the last word of the problem's type."""

    def __init__(self, status: int, detail: str, code: str = "") -> None:
        super().__init__(f"{detail} ({status})")
        self.status, self.code = status, code


class ServiceUnavailable(TacitError):  # noqa: N818
    """A decision service could not be reached, or could not answer in time; the call may be made again.

    ``lost`` says whether the call may have had its effect all the same.
    """

    def __init__(self, detail: str, *, lost: bool = True) -> None:
        super().__init__(detail)
        self.lost = lost


class RecoveryWarning(UserWarning):
    """What a policy that was recovered from a stale file has lost."""
