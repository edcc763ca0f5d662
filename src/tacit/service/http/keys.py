"""Keys of callers: 32 random bytes each, of which the store knows the SHA-256 and no more.

A plain hash is enough for a key that nobody can guess.  A key is looked up by its digest: how long that takes may tell
something about digests of keys, from which nothing follows about any key.  The digest that is found is then compared
in constant time.  Callers with wrong keys are not slowed down: of 2^256 keys nobody finds one by trying, at any rate.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, get_args

from tacit.errors import InvalidInput, StoreDamaged
from tacit.service.store import Store

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
ADMIN_FILE: Final = "admin.key"
DEFAULT_NAMESPACE: Final = "default"
_PREFIX: Final = "tacit_"
_SETTINGS: Final = "key"
_NAMED: Final = "key-named."
"""Settings are named after keys, so that there is one of a name whichever process makes it."""
_BY_DIGEST: Final = ("key.", "key-bound.")
"""Settings of earlier versions are named after digests."""
_NAMES: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
PATTERN: Final = r"^[A-Za-z0-9._*?!\[\]-]{1,64}\Z"
MOST_PATTERNS: Final = 100
_LONGEST_NAME: Final = 64
_REMEMBERED: Final = 10_000
_BEARER: Final = b"bearer "
LEAST_RATE, MOST_RATE = 0.01, 1e9
"""Bounds of a key's own rate, in requests per second."""


@dataclass(frozen=True)
class Key:
    """What a key may do; the key itself is with its holder alone."""

    name: str
    scopes: tuple[str, ...]
    namespace: str
    created: str
    rate: float | None = None
    """Requests per second that it may make; None for as many as the service allows any key."""
    policies: tuple[str, ...] | None = None
    """Names and patterns of the policies that it is bound to; None for a key that reaches all."""

    def may(self, scope: Scope) -> bool:
        """Whether it reaches this far; ``admin`` includes all."""
        return scope in self.scopes or "admin" in self.scopes

    def reaches(self, policy: str) -> bool:
        """Whether it is bound to the policy of this name, or to none."""
        return self.policies is None or (len(policy) <= _LONGEST_NAME and _matches(self.policies, policy))


@lru_cache(_REMEMBERED)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class KeyTaken(InvalidInput):
    """There is a key of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a key named {name!r} already: revoke it first, or choose another name")


@dataclass(frozen=True)
class _Held:
    digest: bytes
    key: Key


class Keyring:
    """All keys of a deployment, in memory and in the store."""

    def __init__(self, store: Store) -> None:
        self._store, self._changing = store, threading.Lock()
        self._keys: dict[bytes, _Held] = {}
        """By digest; replaced as a whole."""
        self.refresh()

    def refresh(self) -> None:
        """Know of all that other processes have changed."""
        with self._changing:
            self._read()

    def _read(self) -> None:
        held = (_read(name, value) for name, value in self._store.settings(_SETTINGS).items())
        self._keys = {each.digest: each for each in held}

    def holder(self, authorization: bytes | None) -> Key | None:
        """The key of an ``Authorization`` header, if there is one that is known."""
        if authorization is None or authorization[:7].lower() != _BEARER:
            return None
        digest = hashlib.sha256(authorization[7:].strip()).digest()
        held = self._keys.get(digest)
        return held.key if held is not None and hmac.compare_digest(held.digest, digest) else None

    def all(self) -> list[Key]:
        """Every key, by name."""
        return sorted((held.key for held in self._keys.values()), key=lambda key: key.name)

    def add(
        self,
        name: str,
        scopes: Collection[str],
        namespace: str = DEFAULT_NAMESPACE,
        rate: float | None = None,
        policies: Collection[str] | None = None,
    ) -> tuple[str, Key]:
        """Make a key; its text is returned here and known nowhere else."""
        text = new_key()
        return text, self.admit(text, name, scopes, namespace, rate, policies)

    def admit(
        self,
        text: str,
        name: str,
        scopes: Collection[str],
        namespace: str = DEFAULT_NAMESPACE,
        rate: float | None = None,
        policies: Collection[str] | None = None,
    ) -> Key:
        """Let a key in that somebody has made."""
        key = Key(
            checked_name("name", name),
            checked_scopes(scopes),
            checked_name("namespace", namespace),
            datetime.now(UTC).isoformat(timespec="seconds"),
            checked_rate(rate),
            checked_policies(policies),
        )
        digest = hashlib.sha256(text.encode()).digest()
        with self._changing:
            self._read()
            if all(held.key.name != name for held in self._keys.values()):
                value = json.dumps(asdict(key) | {"digest": digest.hex()}).encode()
                self._store.change_settings({_NAMED + name: value}, replace=False)
                self._read()
            if digest not in self._keys:  # another process may have been quicker
                raise KeyTaken(name)
        return key

    def revoke(self, name: str) -> bool:
        """Forget a key; False where there is none of this name."""
        with self._changing:
            self._read()
            found = [digest.hex() for digest, held in self._keys.items() if held.key.name == name]
            earlier = [kind + digest for digest in found for kind in _BY_DIGEST]
            self._store.change_settings({}, [_NAMED + name, *earlier])
            self._read()
        return bool(found)


def _read(setting: str, value: bytes) -> _Held:
    try:
        found = json.loads(value)
        rate = checked_rate(found.get("rate"))
        policies = checked_policies(found.get("policies"))
        key = Key(found["name"], tuple(found["scopes"]), found["namespace"], found["created"], rate, policies)
        return _Held(bytes.fromhex(found.get("digest") or setting.partition(".")[2]), key)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"a key in the store cannot be read: {error!r}") from error


def new_key() -> str:
    """A key that nobody has."""
    return _PREFIX + secrets.token_urlsafe(32)


def checked_name(what: str, name: str) -> str:
    """A name that fits into paths and tables."""
    if not _NAMES.fullmatch(name):
        raise InvalidInput(f"{what} must be 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}")
    return name


def checked_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """At least one scope, each of them known."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        what = f"unknown: {', '.join(unknown)}" if unknown else "none given"
        raise InvalidInput(f"scopes: {what}; choose from {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in scopes)


def checked_rate(rate: float | None) -> float | None:
    """Requests per second, if any are given."""
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise InvalidInput(f"rate must be {LEAST_RATE:g} to {MOST_RATE:g} requests per second, not {rate!r}")
    return rate


def checked_policies(policies: Collection[str] | None) -> tuple[str, ...] | None:
    """Names and patterns of policies, if a key is bound to any."""
    if policies is None:
        return None
    if not 1 <= len(policies) <= MOST_PATTERNS:
        raise InvalidInput(f"policies must be 1 to {MOST_PATTERNS} names or patterns, not {len(policies)}")
    for pattern in policies:
        if not re.match(PATTERN, pattern):
            raise InvalidInput(f"policies must be names, or patterns such as news-*, not {pattern!r}")
    return tuple(dict.fromkeys(policies))


def first_key(keyring: Keyring, folder: Path) -> Path | None:
    """At the first start: an admin key in a file that its owner alone can read; None where there are keys already.

    The text comes first: when the process dies in between, it is in a file beside that one.  Of several processes that
    start together one makes the key, and the others leave no file, though they may have the same folder.
    """
    if keyring.all():
        return None
    path, text = folder / ADMIN_FILE, new_key()
    descriptor, beside = tempfile.mkstemp(prefix=f"{ADMIN_FILE}.", dir=folder)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    try:
        keyring.admit(text, "admin", ("admin",))
    except KeyTaken:
        os.unlink(beside)
        return None
    os.replace(beside, path)
    return path
