"""Keys of callers: 32 random bytes each, of which the store knows the SHA-256 and no more.

A plain hash is enough for a key that cannot be guessed.  A key is looked up by its digest: how long that takes may tell
something about digests of keys, from which nothing follows about any key.  The digest that is found is then compared
in constant time.  Callers with wrong keys are not slowed down: 2^256 keys cannot be tried, at any rate.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from tacit.errors import InvalidInput, StoreDamaged
from tacit.policies.persistence import write_beside
from tacit.service.store import KEYS, Store

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
ADMIN_FILE: Final = "admin.key"
_PREFIX: Final = "tacit_"
_NAMED: Final = "key-named."
"""Settings are named after keys, so that a name has one key whichever process makes it."""
_BY_DIGEST: Final = ("key.", "key-bound.")
"""Settings of earlier versions are named after digests."""
NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\Z"
PATTERN: Final = r"^[A-Za-z0-9._*?!\[\]-]{1,64}\Z"
MOST_PATTERNS: Final = 100
_LONGEST_NAME: Final = 64
_REMEMBERED: Final = 10_000
_BEARER: Final = b"bearer "
LEAST_RATE, MOST_RATE = 0.01, 1e9
"""Bounds of a key's own rate, in requests per second."""


@dataclass(frozen=True)
class Key:
    """What a key allows; the text of the key is with its holder alone.

    Raises `InvalidInput` for a name, scope, rate or pattern that is not allowed.
    """

    name: str
    scopes: tuple[str, ...]
    namespace: str
    created: str
    rate: float | None = None
    """Requests per second that its holder may make; None for as many as the service allows any key."""
    policies: tuple[str, ...] | None = None
    """Names and patterns of the policies that it is bound to; None for a key that reaches all."""

    def __post_init__(self) -> None:
        for what, name in (("name", self.name), ("namespace", self.namespace)):
            if not re.match(NAME, name):
                raise InvalidInput(f"{what} must be 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}")
        unknown = sorted(set(self.scopes) - set(SCOPES))
        if unknown or not self.scopes:
            what = f"unknown: {', '.join(unknown)}" if unknown else "none given"
            raise InvalidInput(f"scopes: {what}; choose from {', '.join(SCOPES)}")
        if self.rate is not None and not LEAST_RATE <= self.rate <= MOST_RATE:
            raise InvalidInput(f"rate must be {LEAST_RATE:g} to {MOST_RATE:g} requests per second, not {self.rate!r}")
        if self.policies is not None and not 1 <= len(self.policies) <= MOST_PATTERNS:
            raise InvalidInput(f"policies must be 1 to {MOST_PATTERNS} names or patterns, not {len(self.policies)}")
        for pattern in self.policies or ():
            if not re.match(PATTERN, pattern):
                raise InvalidInput(f"policies must be names, or patterns such as news-*, not {pattern!r}")

    def may(self, scope: Scope) -> bool:
        """Return whether the key has this scope; ``admin`` includes all."""
        return scope in self.scopes or "admin" in self.scopes

    def reaches(self, policy: str) -> bool:
        """Return whether the key is bound to the policy of this name, or to none."""
        return self.policies is None or (len(policy) <= _LONGEST_NAME and _matches(self.policies, policy))


@lru_cache(_REMEMBERED)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class KeyTaken(InvalidInput):
    """There is a key of this name."""


class Keyring:
    """All keys of a deployment, in memory and in the store."""

    def __init__(self, store: Store) -> None:
        self._store, self._changing = store, threading.RLock()
        self._keys: dict[bytes, tuple[bytes, Key]] = {}
        """Digest and key, by digest; replaced as a whole."""
        self.refresh()

    def refresh(self) -> None:
        """Read the keys from the store, where other processes may have changed them."""
        with self._changing:
            found = [_read(name, value) for name, value in self._store.settings(KEYS).items()]
            self._keys = {digest: (digest, key) for digest, key in found}

    def holder(self, authorization: bytes | None) -> Key | None:
        """Return the key of an ``Authorization`` header, or None where it has no known key."""
        if authorization is None or authorization[:7].lower() != _BEARER:
            return None
        digest = hashlib.sha256(authorization[7:].strip()).digest()
        known, key = self._keys.get(digest, (b"", None))
        return key if hmac.compare_digest(known, digest) else None

    def all(self) -> list[Key]:
        """Return every key, by name."""
        return sorted((key for _, key in self._keys.values()), key=lambda key: key.name)

    def add(
        self,
        name: str,
        scopes: Collection[str],
        namespace: str = "default",
        rate: float | None = None,
        policies: Collection[str] | None = None,
        *,
        text: str | None = None,
    ) -> tuple[str, Key]:
        """Make a key, by default with a new text; its text is returned here and known nowhere else."""
        text = text or new_text()
        digest = hashlib.sha256(text.encode()).digest()
        created = datetime.now(UTC).isoformat(timespec="seconds")
        bound = None if policies is None else tuple(policies)
        given = Key(name, tuple(scopes), namespace, created, rate, bound)
        in_order = tuple(scope for scope in SCOPES if scope in scopes)
        key = replace(given, scopes=in_order, policies=bound and tuple(dict.fromkeys(bound)))
        with self._changing:
            self.refresh()
            if all(held.name != name for _, held in self._keys.values()):
                value = msgspec.json.encode(asdict(key) | {"digest": digest.hex()})
                self._store.change_settings({_NAMED + name: value}, replace=False)
                self.refresh()
            if digest not in self._keys:  # another process may have been quicker
                raise KeyTaken(f"there is a key named {name!r} already: revoke it first, or choose another name")
        return text, key

    def revoke(self, name: str) -> bool:
        """Forget a key; return False where no key has this name."""
        with self._changing:
            self.refresh()
            found = [digest.hex() for digest, key in self._keys.values() if key.name == name]
            earlier = [kind + digest for digest in found for kind in _BY_DIGEST]
            self._store.change_settings({}, [_NAMED + name, *earlier])
            self.refresh()
        return bool(found)


def _read(setting: str, value: bytes) -> tuple[bytes, Key]:
    """Return the digest of a key and what it allows, from a setting of the store."""
    try:
        found = msgspec.json.decode(value, type=dict[str, object])
        digest = str(found.get("digest") or setting.partition(".")[2])
        return bytes.fromhex(digest), msgspec.convert(found, Key)
    except (ValueError, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"a key in the store cannot be read: {error!r}") from error


def new_text() -> str:
    """Return the text of a new key."""
    return _PREFIX + secrets.token_urlsafe(32)


def first_key(keyring: Keyring, folder: Path) -> Path | None:
    """Write an admin key to a file that its owner alone can read; return None where there are keys already.

    The text comes first: when the process dies in between, it is in a file beside that one.  Of several processes that
    start together one makes the key, and the others leave no file, though they may have the same folder.
    """
    if keyring.all():
        return None
    path, text = folder / ADMIN_FILE, new_text()
    beside = write_beside(path, lambda stream: stream.write(f"{text}\n".encode()))
    try:
        keyring.add("admin", ("admin",), text=text)
    except KeyTaken:
        os.unlink(beside)
        return None
    os.replace(beside, path)
    return path
