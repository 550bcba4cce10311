"""The server side of SASL: PLAIN (RFC 4616) and SCRAM, one exchange at a time. Without I/O.

Users have two sources. The file in `sasl.users.file` is available before any metadata is: the brokers' own user must be
in it. All other users are in the metadata log, created with AlterUserScramCredentials (KIP-554), and have only SCRAM.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.security.passwords import Password
from broker.security.scram import (
    MECHANISMS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramError,
    ScramMechanism,
    ScramServer,
    credential_of,
    parse_client_first,
    salted,
)

PLAIN: Final = "PLAIN"
LONGEST_TOKEN = 4_096  # bytes
SALT_BYTES = 24
_DIGEST = 32  # bytes of SHA-256
_READABLE = b"0123456789abcdefghijklmnopqrstuvwxyz"

Stored = Callable[[], Mapping[tuple[str, ScramMechanism], ScramCredential]]
"""Returns the credentials that the metadata contains now."""


class AuthenticationError(Exception):
    """The authentication has failed, or the exchange is malformed. The peer gets the message; it has no credential."""


class Exchange(Protocol):
    """The steps of one authentication."""

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        """The answer to the client's next token, and the user once authenticated. Raises `AuthenticationError`."""
        ...


class Accounts:
    """All users.

    `key` is a secret of this process, for unpredictable values. `shared` is a secret of all brokers, for values that
    must be the same on each of them and after a restart, such as salts; None: the brokers have no such secret.
    """

    def __init__(
        self, users: Mapping[str, Password], stored: Stored, key: bytes, shared: Password | None = None
    ) -> None:
        self._users = users
        self._stored = stored
        self._key = key
        self._salt_key = key if shared is None else stretched(shared)
        self._made: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._nonces = 0

    def knows(self, user: str, password: str) -> bool:
        """Whether a user of the file has this password."""
        known_password = self._users.get(user)
        # An unknown user takes the same time.
        return (known_password or Password("")).is_(password) and known_password is not None

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """A user's credential. An unknown user gets one that no password matches and that looks like a stored one, so
        that clients cannot find out which users exist."""
        stored_credential = None if user in self._users else self._stored().get((user, mechanism))
        if stored_credential is not None:
            return stored_credential
        salt, iterations = self._salt_and_iterations(user, mechanism)
        if user not in self._users:
            nothing = _derived(self._key, "key", user, mechanism.title)
            return ScramCredential(salt, nothing, nothing, iterations)
        credential = self._made.get((user, mechanism))
        if credential is None or (credential.salt, credential.iterations) != (salt, iterations):
            salted_password = salted(self._users[user].reveal(), salt, iterations, mechanism)
            credential = self._made[user, mechanism] = credential_of(salted_password, salt, iterations, mechanism)
        return credential

    def nonce(self) -> str:
        """A nonce that was never used before."""
        self._nonces += 1
        return base64.b64encode(_derived(self._key, "nonce", str(self._nonces))[:18]).decode()

    def _salt_and_iterations(self, user: str, mechanism: ScramMechanism) -> tuple[bytes, int]:
        """A salt and iterations that are always the same for a user, and look like those of the first stored
        credential. Salts of Kafka's tools consist of digits and letters."""
        like = next((credential for (_, kind), credential in self._stored().items() if kind is mechanism), None)
        size, iterations = (SALT_BYTES, MIN_ITERATIONS) if like is None else (len(like.salt), like.iterations)
        parts = (_derived(self._salt_key, "salt", user, mechanism.title, str(at)) for at in range(0, size, _DIGEST))
        salt = b"".join(parts)[:size]
        if like is not None and set(like.salt) <= set(_READABLE):
            salt = bytes(_READABLE[byte % len(_READABLE)] for byte in salt)
        return salt, iterations


def stretched(secret: Password) -> bytes:
    """A key derived from a password, slowly, so that values made from the key cannot be used to find the password."""
    return hashlib.scrypt(secret.reveal(), salt=b"salts of users", n=1 << 14, r=8, p=1, dklen=_DIGEST)


def _derived(key: bytes, *parts: str) -> bytes:
    return hmac.digest(key, "\0".join(parts).encode(), "sha256")


class PlainExchange:
    """PLAIN: one token with user and password."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        try:
            authorized, user, password = token.decode().split("\0")
        except ValueError:  # also raised for bytes that are not UTF-8
            raise AuthenticationError("a PLAIN token must be UTF-8, with two zeros in it") from None
        if authorized not in ("", user):
            raise AuthenticationError("a user may not act for another one")
        if not self._accounts.knows(user, password):
            raise AuthenticationError("invalid credentials with SASL mechanism PLAIN")
        return b"", user


class ScramExchange:
    """SCRAM: the client's first message, then its proof."""

    def __init__(self, accounts: Accounts, mechanism: ScramMechanism) -> None:
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
    """A new exchange with an enabled mechanism."""
    return PlainExchange(accounts) if mechanism == PLAIN else ScramExchange(accounts, MECHANISMS[mechanism])
