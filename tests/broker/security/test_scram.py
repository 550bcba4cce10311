"""SCRAM, by the examples of its RFCs, and the attacks that each side detects."""

import base64

import pytest

from broker.security.passwords import Password
from broker.security.sasl import Accounts, AuthenticationError, PlainExchange, begin
from broker.security.scram import (
    ScramClient,
    ScramCredential,
    ScramError,
    ScramMechanism,
    ScramServer,
    credential_of,
    parse_client_first,
    salted,
)

# RFC 7677, section 3
USER, PASSWORD = "user", b"pencil"
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: bytes = PASSWORD, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> ScramCredential:
    return credential_of(salted(password, SALT, 4096, mechanism), SALT, 4096, mechanism)


def server(known: ScramCredential | None = None) -> ScramServer:
    return ScramServer(FIRST, known or credential(), SERVER_NONCE, ScramMechanism.SHA_256)


@pytest.mark.conforms("SEC-4")
def test_both_sides_send_the_messages_of_the_rfc() -> None:
    client = ScramClient(USER, PASSWORD, CLIENT_NONCE, ScramMechanism.SHA_256)
    assert client.first == FIRST
    assert server().challenge == CHALLENGE
    assert client.answer(CHALLENGE) == FINAL
    assert server().finish(FINAL) == VERIFIER
    client.check(VERIFIER)


@pytest.mark.conforms("SEC-4")
@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "größe"])
def test_only_a_user_with_the_password_is_authenticated(mechanism: ScramMechanism, user: str) -> None:
    def run(password: bytes) -> None:
        client = ScramClient(user, password, "0123456789", mechanism)
        _, name, _, _ = parse_client_first(client.first)
        assert name == user
        other = ScramServer(client.first, credential(b"right", mechanism), "server", mechanism)
        client.check(other.finish(client.answer(other.challenge)))

    run(b"right")
    with pytest.raises(ScramError, match="password is wrong"):
        run(b"wrong")


@pytest.mark.conforms("SEC-4")
@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"biws", b"eSws"),  # another header than was sent
        FINAL.replace(b"$k0,p", b"$k1,p"),  # another nonce
        FINAL[:-8] + b"AAAAAAA=",
        FINAL.partition(b",p=")[0],
        FINAL.partition(b",p=")[0] + b",p=",
        FINAL.partition(b",p=")[0] + b",p=???",
        b"\xff",
        b"",
    ],
)
def test_a_server_takes_no_proof_but_that_of_this_exchange(final: bytes) -> None:
    with pytest.raises(ScramError):
        server().finish(final)


@pytest.mark.conforms("SEC-4")
@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"rOprNG", b"xOprNG"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # nothing of the server's
        CHALLENGE.replace(b"i=4096", b"i=1"),  # a hash that is soon guessed
        CHALLENGE.replace(b"i=4096", b"i=99999"),  # more work than it is worth
        CHALLENGE.replace(b"i=4096", b"i=" + b"9" * 5000),
        CHALLENGE.replace(b"W22", b"?"),
        b"e=other-error",
        b"\xff",
    ],
)
def test_a_client_answers_no_challenge_that_is_not_one(challenge: bytes) -> None:
    with pytest.raises(ScramError):
        ScramClient(USER, PASSWORD, CLIENT_NONCE, ScramMechanism.SHA_256).answer(challenge)


@pytest.mark.conforms("SEC-4")
def test_a_client_refuses_a_server_without_the_password() -> None:
    client = ScramClient(USER, PASSWORD, CLIENT_NONCE, ScramMechanism.SHA_256)
    with pytest.raises(ScramError):
        client.check(b"v=")
    client.answer(CHALLENGE)
    with pytest.raises(ScramError):
        client.check(VERIFIER[:-2] + b"A=")


@pytest.mark.parametrize(
    "first",
    [b"p=tls-unique,,n=user,r=0123456789", b"n,,", b"n,,n=,r=0123456789", b"n,,n=a=b,r=0123456789", b"n,,n=user,r=1",
     b"n,a=other,n=user,r=0123456789", b"n,other,n=user,r=0123456789", b"\xff", b""],
)  # fmt: skip
def test_invalid_first_messages_are_refused(first: bytes) -> None:
    with pytest.raises(ScramError):
        parse_client_first(first)


def accounts() -> Accounts:
    stored = {("stored", ScramMechanism.SHA_256): credential()}
    return Accounts({"filed": Password("pencil")}, lambda: stored, b"secret of this process")


def log_in(user: str, password: bytes, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> str | None:
    exchange = begin(mechanism.title, accounts())
    client = ScramClient(user, password, "0123456789", mechanism)
    challenge, principal = exchange.step(client.first)
    assert principal is None
    final, who = exchange.step(client.answer(challenge))
    client.check(final)
    return who


@pytest.mark.conforms("SEC-4")
def test_users_are_in_the_file_or_in_the_metadata() -> None:
    assert log_in("filed", PASSWORD) == "filed"
    assert log_in("filed", PASSWORD, ScramMechanism.SHA_512) == "filed"
    assert log_in("stored", PASSWORD) == "stored"
    for user, password, mechanism in (
        ("filed", b"wrong", ScramMechanism.SHA_256),
        ("stored", b"wrong", ScramMechanism.SHA_256),
        ("stored", PASSWORD, ScramMechanism.SHA_512),
        ("unknown", PASSWORD, ScramMechanism.SHA_256),
    ):
        with pytest.raises(AuthenticationError, match="password is wrong"):  # not: there is no such user
            log_in(user, password, mechanism)


def of_kafkas_tools(user: str) -> ScramCredential:
    """As `kafka-configs` makes them, but for the iterations."""
    salt = {"alice": b"1wx2p5ffb8nhk0g7c1j9r1x6zu", "bob": b"q03vv2ad81h7xh6w1cp5m5k2ge"}[user]
    return credential_of(salted(PASSWORD, salt, 8192, ScramMechanism.SHA_256), salt, 8192, ScramMechanism.SHA_256)


@pytest.mark.conforms("SEC-4")
def test_answers_do_not_reveal_existing_users() -> None:
    """Two brokers, or one before and after its restart, give the same answers about a stored user, and the same answers
    about others."""
    stored = {(user, ScramMechanism.SHA_256): of_kafkas_tools(user) for user in ("alice", "bob")}
    shared = Password("of all brokers")
    one, other = (Accounts({"filed": Password("pencil")}, lambda: stored, key, shared) for key in (b"1", b"2"))

    def challenge(accounts: Accounts, user: str) -> tuple[bytes, int]:
        its = accounts.credential(user, ScramMechanism.SHA_256)
        return its.salt, its.iterations

    for user in ("alice", "filed", "unknown"):
        salt, iterations = challenge(one, user)
        assert challenge(other, user) == (salt, iterations)
        assert (len(salt), iterations) == (26, 8192)
        assert salt.isalnum()
        assert salt.lower() == salt
    assert challenge(one, "unknown") != challenge(one, "another")
    stranger = Accounts({}, lambda: stored, b"1", Password("of others"))
    assert challenge(stranger, "unknown") != challenge(one, "unknown"), "another password gives another salt"


@pytest.mark.conforms("SEC-4")
def test_a_password_of_the_file_overrides_a_stored_one() -> None:
    stored: dict[tuple[str, ScramMechanism], ScramCredential] = {}
    its = Accounts({"filed": Password("pencil")}, lambda: stored, b"1", Password("of all brokers"))
    for _ in range(2):
        credential_ = its.credential("filed", ScramMechanism.SHA_256)
        secret = salted(PASSWORD, credential_.salt, credential_.iterations, ScramMechanism.SHA_256)
        assert credential_ == credential_of(secret, credential_.salt, credential_.iterations, ScramMechanism.SHA_256)
        stored["alice", ScramMechanism.SHA_256] = of_kafkas_tools("alice")


@pytest.mark.conforms("SEC-4")
def test_nonces_are_unique() -> None:
    brokers = [Accounts({}, dict, key, Password("of all brokers")) for key in (b"1", b"2")]
    assert len({each.nonce() for each in brokers for _ in range(100)}) == 200


@pytest.mark.conforms("SEC-3")
def test_plain_has_the_users_of_the_file_alone() -> None:
    assert PlainExchange(accounts()).step(b"\0filed\0pencil") == (b"", "filed")
    assert PlainExchange(accounts()).step(b"filed\0filed\0pencil") == (b"", "filed")
    for token in (
        b"\0filed\0wrong",
        b"\0nobody\0pencil",
        b"\0nobody\0",
        b"other\0filed\0pencil",
        b"filed",
        b"\xff\0\0",
    ):
        with pytest.raises(AuthenticationError):
            PlainExchange(accounts()).step(token)
