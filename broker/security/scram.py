"""SCRAM (RFC 5802, RFC 7677) with SHA-256 and SHA-512 as in KIP-84: both sides, without I/O and channel binding.

The server keeps no passwords, only data with which it can verify one.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 16_384
"""As in Kafka. The bound limits the work that a peer can cause."""


class ScramError(Exception):
    """The exchange has failed. The message contains nothing of a credential."""


class ScramMechanism(IntEnum):
    """The mechanisms; the numbers are those of KIP-554."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def title(self) -> str:
        """The mechanism's name in SASL."""
        return f"SCRAM-SHA-{256 if self is ScramMechanism.SHA_256 else 512}"

    @property
    def digest(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"


MECHANISMS = {mechanism.title: mechanism for mechanism in ScramMechanism}


@dataclass(frozen=True)
class ScramCredential:
    """The server's verifier of a user's password. `repr` hides the keys."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted(password: bytes, salt: bytes, iterations: int, mechanism: ScramMechanism) -> bytes:
    """SaltedPassword (RFC 5802). Takes milliseconds, by design."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password, salt, iterations)


def credential_of(salted_password: bytes, salt: bytes, iterations: int, mechanism: ScramMechanism) -> ScramCredential:
    """The stored credential of a salted password."""
    client_key = _hmac(salted_password, b"Client Key", mechanism)
    server_key = _hmac(salted_password, b"Server Key", mechanism)
    return ScramCredential(salt, hashlib.new(mechanism.digest, client_key).digest(), server_key, iterations)


def parse_client_first(message: bytes) -> tuple[str, str, str, str]:
    """Returns the GS2 header, user, client nonce, and the message without the header. Raises `ScramError`."""
    binding, _, remainder = _text(message).partition(",")
    authorized, _, bare = remainder.partition(",")
    if binding not in ("n", "y"):
        raise ScramError("channel binding is not supported")
    fields = bare.split(",")
    if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r=") or len(fields[1]) < 10:
        raise ScramError("the client's first message is malformed")
    user = _user(fields[0][2:])
    if authorized and (not authorized.startswith("a=") or _user(authorized[2:]) != user):
        raise ScramError("a user may not act for another one")
    return f"{binding},{authorized},", user, fields[1][2:], bare


class ScramServer:
    """The server's side of one exchange, after the client's first message."""

    def __init__(self, client_first: bytes, credential: ScramCredential, nonce: str, mechanism: ScramMechanism) -> None:
        """Raises `ScramError`."""
        header, _, client_nonce, bare = parse_client_first(client_first)
        self._credential = credential
        self._mechanism = mechanism
        self._nonce = client_nonce + nonce
        self._binding = base64.b64encode(header.encode()).decode()
        salt = base64.b64encode(credential.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={credential.iterations}".encode()
        self._said = f"{bare},{self.challenge.decode()},"

    def finish(self, final: bytes) -> bytes:
        """Verify the client's proof and return the server's final message. Raises `ScramError` for a wrong password."""
        without_proof, separator, proof = _text(final).rpartition(",p=")
        fields = without_proof.split(",")
        if not separator or len(fields) < 2 or fields[0] != f"c={self._binding}" or fields[1] != f"r={self._nonce}":
            raise ScramError("the client's final message does not belong to this exchange")
        messages = (self._said + without_proof).encode()
        signature = _hmac(self._credential.stored_key, messages, self._mechanism)
        proof_bytes = _unbase64(proof)
        if len(proof_bytes) != len(signature):
            raise ScramError("the client's proof is malformed")
        client_key = bytes(a ^ b for a, b in zip(proof_bytes, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.digest, client_key).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise ScramError("the password is wrong")
        return b"v=" + base64.b64encode(_hmac(self._credential.server_key, messages, self._mechanism))


class ScramClient:
    """The client's side: this broker towards another one, which must prove that it knows the credential, too."""

    def __init__(self, user: str, password: bytes, nonce: str, mechanism: ScramMechanism) -> None:
        self._password = password
        self._nonce = nonce
        self._mechanism = mechanism
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self.first = f"n,,{self._bare}".encode()
        self._expected = b""

    def answer(self, challenge: bytes) -> bytes:
        """The client's final message, given the server's first. Raises `ScramError`."""
        text = _text(challenge)
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's challenge does not belong to this exchange")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 6):
            raise ScramError("the server's challenge is malformed")
        if not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise ScramError(f"the server requests {int(iterations)} iterations")
        salted_password = _salted_once(self._password, _unbase64(fields.get("s", "")), int(iterations), self._mechanism)
        without_proof = f"c=biws,r={nonce}"
        messages = f"{self._bare},{text},{without_proof}".encode()
        client_key = _hmac(salted_password, b"Client Key", self._mechanism)
        stored_key = hashlib.new(self._mechanism.digest, client_key).digest()
        signature = _hmac(stored_key, messages, self._mechanism)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = _hmac(salted_password, b"Server Key", self._mechanism)
        self._expected = b"v=" + base64.b64encode(_hmac(server_key, messages, self._mechanism))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, final: bytes) -> None:
        """Verify the server's final message. Raises `ScramError` when it does not know the user's credential."""
        if not self._expected or not hmac.compare_digest(final, self._expected):
            raise ScramError("the server does not know the password")


@lru_cache(maxsize=64)
def _salted_once(password: bytes, salt: bytes, iterations: int, mechanism: ScramMechanism) -> bytes:
    """`salted` with a cache: brokers connect often, with the same password and salts."""
    return salted(password, salt, iterations, mechanism)


def _hmac(key: bytes, message: bytes, mechanism: ScramMechanism) -> bytes:
    return hmac.digest(key, message, mechanism.digest)


def _user(name: str) -> str:
    if not name or "=" in name.replace("=2C", "").replace("=3D", ""):
        raise ScramError("the user's name is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a message contains invalid base64") from None
