"""SASL at the listeners of simulated brokers, between them and for clients."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.errors import ErrorCode, StartupError
from broker.protocol.api import encode_request
from broker.protocol.messages.cluster_apis import ApiVersionsRequest, MetadataRequest, MetadataResponse
from broker.protocol.messages.credential_apis import (
    AlterUserScramCredentialsRequest,
    SaslHandshakeRequest,
    ScramCredentialUpsertion,
)
from broker.protocol.messages.quorum_apis import VoteRequest
from broker.protocol.request import Request
from broker.security.passwords import Password
from broker.security.scram import ScramMechanism, salted
from broker.server.client import PeerConnector
from broker.server.peer_security import Approach, log_in
from broker.server.security import Security
from simulator.cluster import SimulatedCluster
from tests.broker.clients.secured import write_private
from tests.broker.server.test_sasl_exchange import Client
from tests.stories import played_by

BROKERS, ALICES = "password-of-the-brokers", "password-of-alice"
MECHANISM = "SCRAM-SHA-512"


def properties(directory: Path) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.users.file": str(write_private(directory / "users", f"broker={BROKERS}\n")),
        "sasl.inter.broker.credentials.file": str(write_private(directory / "own", f"broker={BROKERS}\n")),
    }


STORIES = played_by(lambda cluster, story: cluster.run(story(cluster)), "cluster")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    with SimulatedCluster(1, properties=properties(tmp_path)) as made:
        yield made


def as_user(user: str, password: str, mechanism: str = MECHANISM) -> Approach:
    count = iter(range(10**9, 2 * 10**9))
    return Approach(log_in=lambda: log_in(mechanism, user, Password(password), f"nonce-{next(count)}"))


def client(cluster: SimulatedCluster, approach: Approach) -> PeerConnector:
    return PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20, to_brokers=approach)


async def started(cluster: SimulatedCluster) -> None:
    cluster.start()
    await cluster.ready()


@pytest.mark.conforms("SEC-3")
async def test_brokers_authenticate_to_each_other_and_an_authenticated_client_is_accepted(
    cluster: SimulatedCluster, /
) -> None:
    await started(cluster)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        asking = client(cluster, as_user("broker", BROKERS, mechanism))
        response = await asking.request(2, MetadataRequest(), 10.0)
        assert {broker.node_id for broker in response.brokers} == {1, 2, 3}


@pytest.mark.conforms("SEC-3")
@pytest.mark.parametrize(
    ("user", "password", "mechanism", "reason"),
    [
        ("broker", "wrong", MECHANISM, "password is wrong"),
        ("nobody", BROKERS, MECHANISM, "password is wrong"),
        ("broker", BROKERS, "PLAIN", "does not accept PLAIN, only SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)
async def test_a_peer_with_wrong_credentials_or_mechanism_is_refused(
    cluster: SimulatedCluster, /, user: str, password: str, mechanism: str, reason: str
) -> None:
    await started(cluster)
    with pytest.raises(ConnectionError, match=reason):
        await client(cluster, as_user(user, password, mechanism)).request(1, MetadataRequest(), 10.0)
    if mechanism != "PLAIN":
        await cluster.until(lambda: any(cluster.journal.of("connection_rejected")))
        (event,) = cluster.journal.of("connection_rejected")
        assert "authentication failed" in str(event["reason"])


@pytest.mark.conforms("SEC-3")
@pytest.mark.parametrize("port", [9092, 9093])
async def test_before_authentication_only_api_versions_is_answered(cluster: SimulatedCluster, /, port: int) -> None:
    await started(cluster)
    addresses = {broker: (host, port) for broker, (host, _) in cluster.addresses.items()}
    stranger = PeerConnector(-1, addresses, response_max_bytes=1 << 20)
    versions = await stranger.request(1, ApiVersionsRequest(), 10.0)
    assert {17, 36} <= {each.api_key for each in versions.api_keys}
    requests: tuple[Request[Any], ...] = MetadataRequest(), VoteRequest()
    for request in requests:
        with pytest.raises(ConnectionError):
            await stranger.request(1, request, 10.0)


@pytest.mark.conforms("SEC-3")
async def test_an_authenticated_client_cannot_authenticate_again_without_a_session_limit(
    cluster: SimulatedCluster, /
) -> None:
    await started(cluster)
    known = client(cluster, as_user("broker", BROKERS))
    again = await known.request(1, SaslHandshakeRequest(MECHANISM), 10.0)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.conforms("SEC-7")
def test_brokers_renew_their_sessions_before_their_end(tmp_path: Path) -> None:
    """Brokers authenticate again before their session ends: no broker is disconnected, and no request fails."""
    with SimulatedCluster(1, properties=properties(tmp_path) | {"connections.max.reauth.ms": "2000"}) as cluster:

        async def story() -> None:
            await started(cluster)
            controller = cluster.controller()
            await asyncio.sleep(20.0)
            assert cluster.controller() == controller
            asking = client(cluster, as_user("broker", BROKERS))
            for _ in range(10):
                await asking.request(2, MetadataRequest(), 10.0)
                await asyncio.sleep(0.7)
            reasons = [str(event["reason"]) for event in cluster.journal.of("connection_rejected")]
            assert not [reason for reason in reasons if "session's end" in reason]

        cluster.run(story())


@pytest.mark.conforms("SEC-7")
def test_a_reauthenticated_client_stays_connected(tmp_path: Path) -> None:
    with SimulatedCluster(1, properties=properties(tmp_path) | {"connections.max.reauth.ms": "2000"}) as cluster:

        async def story() -> None:
            await started(cluster)
            stays, goes = [Client(*await asyncio.open_connection(*cluster.addresses[1])) for _ in range(2)]
            await goes.log_in("broker", password=BROKERS.encode())
            for _ in range(4):
                last = await stays.log_in("broker", password=BROKERS.encode())
                assert last.session_lifetime_ms == 2000
                await asyncio.sleep(1.5)
                found: MetadataResponse = await stays.ask(MetadataRequest(), 12)
                assert {broker.node_id for broker in found.brokers} == {1, 2, 3}
            goes.writer.write(encode_request(MetadataRequest(), 12, 1, None))
            await goes.ended()

        cluster.run(story())


@pytest.mark.conforms("SEC-4")
def test_a_users_password_is_altered_and_deleted(cluster: SimulatedCluster) -> None:
    async def ask(request: AlterUserScramCredentialsRequest) -> list[int]:
        response = await client(cluster, as_user("broker", BROKERS)).request(1, request, 10.0, 0)
        return [result.error_code for result in response.results]

    def upserted(password: str) -> AlterUserScramCredentialsRequest:
        secret = salted(password.encode(), b"salt", 4096, ScramMechanism.SHA_512)
        return AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion("alice", ScramMechanism.SHA_512, 4096, b"salt", secret)]
        )

    async def lets_in(password: str) -> bool:
        try:
            await client(cluster, as_user("alice", password)).request(3, MetadataRequest(), 10.0)
        except ConnectionError:
            return False
        return True

    def everywhere(known: Callable[[int], bool]) -> Callable[[], bool]:
        return lambda: all(known(len(cluster.node(name).image.scram)) for name in cluster.machines)

    async def story() -> None:
        await started(cluster)
        assert not await lets_in(ALICES)
        assert await ask(upserted(ALICES)) == [ErrorCode.NONE]
        await cluster.until(everywhere(lambda count: count == 1))
        assert await lets_in(ALICES)
        assert not await lets_in("another")
        cluster.kill()
        cluster.start()
        await cluster.ready()
        assert await lets_in(ALICES), "it is in the metadata log"
        assert ALICES not in str(list(cluster.journal.of("request_failed")))

    cluster.run(story())


@pytest.mark.conforms("SEC-3")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "'GSSAPI' is not one of PLAIN"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "'PLAIN' is not among sasl.enabled.mechanisms"),
        (
            {"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "PLAIN"},
            "PLAIN without TLS exposes the password",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, "ssl.keystore.location is missing"),
        ({"ssl.client.auth": "perhaps"}, "'perhaps' is not one of"),
        ({"authorizer.class.name": "mine"}, "'mine' is unknown; the only one is org.apache.kafka"),
        ({"super.users": "root", "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
         "'root' is not of the form User:name"),
        ({"sasl.inter.broker.credentials.file": None}, "sasl.inter.broker.credentials.file is missing"),
    ],
)  # fmt: skip
def test_keys_that_cannot_be_are_refused(tmp_path: Path, given: dict[str, str | None], words: str) -> None:
    keys = {"node.id": "1", "listeners": "n1:1,CONTROLLER://n1:2", "quorum.voters": "1@n1:2", "log.dir": "log"}
    keys |= {"controller.listener.names": "CONTROLLER", **properties(tmp_path)}
    merged = {key: value for key, value in {**keys, **given}.items() if value is not None}
    with pytest.raises(StartupError, match=words):
        Security(BrokerConfig.from_properties(merged), random.Random(1), lambda: None)  # type: ignore[arg-type,return-value]
