"""SASL as a server speaks it: PLAIN (RFC 4616) and SCRAM, one exchange at a time. Pure.

Users come from two places. The file in `sasl.users.file` is there before any metadata is: the brokers' own user must be
in it. All others are kept in the metadata log, by AlterUserScramCredentials (KIP-554), and have SCRAM alone.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.security.passwords import Password
from broker.security.scram import (
    MECHANISMS,
    MIN_ITERATIONS,
    Mechanism,
    ScramCredential,
    ScramError,
    ScramServer,
    credential_of,
    parse_client_first,
    salted,
)

PLAIN: Final = "PLAIN"
LONGEST_TOKEN = 4_096  # bytes
SALT_BYTES = 24

Stored = Callable[[str, Mechanism], ScramCredential | None]
"""The credential that the metadata has of a user."""


class AuthenticationError(Exception):
    """The peer is not who it says it is, or does not say it rightly. The message is for it, and holds no credential."""


class Exchange(Protocol):
    """The steps of one authentication."""

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        """What to answer to the client's next token; and the user, once it is known. Raises `AuthenticationError`."""
        ...


class Accounts:
    """All users. `key` is a secret of this process from which everything is made that nobody may foresee."""

    def __init__(self, users: Mapping[str, Password], stored: Stored, key: bytes) -> None:
        self._users = users
        self._stored = stored
        self._key = key
        self._made: dict[tuple[str, Mechanism], ScramCredential] = {}
        self._nonces = 0

    def knows(self, user: str, password: str) -> bool:
        """Whether a user of the file has this password."""
        known = self._users.get(user)
        # One that is unknown takes as long.
        return (known or Password("")).is_(password) and known is not None

    def credential(self, user: str, mechanism: Mechanism) -> ScramCredential:
        """A user's credential. That of an unknown one fits no password, and looks like any other: who exists is not
        told."""
        if user in self._users:
            if (user, mechanism) not in self._made:
                self._made[user, mechanism] = self._make(self._users[user], user, mechanism)
            return self._made[user, mechanism]
        found = self._stored(user, mechanism)
        nothing = self._derived("key", user, mechanism.title)
        return found or ScramCredential(self._salt(user, mechanism), nothing, nothing, MIN_ITERATIONS)

    def nonce(self) -> str:
        """One that was never used before."""
        self._nonces += 1
        return base64.b64encode(self._derived("nonce", str(self._nonces))[:18]).decode()

    def _make(self, password: Password, user: str, mechanism: Mechanism) -> ScramCredential:
        salt = self._salt(user, mechanism)
        salted_password = salted(password.reveal(), salt, MIN_ITERATIONS, mechanism)
        return credential_of(salted_password, salt, MIN_ITERATIONS, mechanism)

    def _salt(self, user: str, mechanism: Mechanism) -> bytes:
        return self._derived("salt", user, mechanism.title)[:SALT_BYTES]

    def _derived(self, *parts: str) -> bytes:
        return hmac.digest(self._key, "\0".join(parts).encode(), "sha256")


class PlainExchange:
    """PLAIN: one token that says everything."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        try:
            authorized, user, password = token.decode().split("\0")
        except ValueError:  # also what is not UTF-8
            raise AuthenticationError("a PLAIN token must be UTF-8, with two zeros in it") from None
        if authorized not in ("", user):
            raise AuthenticationError("one user may not act for another")
        if not self._accounts.knows(user, password):
            raise AuthenticationError("invalid credentials with SASL mechanism PLAIN")
        return b"", user


class ScramExchange:
    """SCRAM: the client's first message, then its proof."""

    def __init__(self, accounts: Accounts, mechanism: Mechanism) -> None:
        self._accounts = accounts
        self._mechanism = mechanism
        self._user = ""
        self._server: ScramServer | None = None

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        try:
            if self._server is None:
                _, self._user, _, _ = parse_client_first(token)
                credential = self._accounts.credential(self._user, self._mechanism)
                self._server = ScramServer(token, credential, self._accounts.nonce(), self._mechanism)
                return self._server.challenge, None
            return self._server.finish(token), self._user
        except ScramError as error:
            title = self._mechanism.title
            raise AuthenticationError(f"invalid credentials with SASL mechanism {title}: {error}") from None


def begin(mechanism: str, accounts: Accounts) -> Exchange:
    """An exchange by an enabled mechanism."""
    return PlainExchange(accounts) if mechanism == PLAIN else ScramExchange(accounts, MECHANISMS[mechanism])
