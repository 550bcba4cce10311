"""Unmodified clients at brokers with TLS, SASL and rules; no file or output has a password."""

import asyncio
import base64
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaTimeoutError

from tests.broker.clients.harness import PATIENCE, until
from tests.broker.clients.secured import (
    ADMIN,
    ADMINS_PASSWORD,
    BROKERS_PASSWORD,
    Secured,
    secured,
)
from tests.stories import run_by

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICES_PASSWORD = "Nobody-reads-this-4d2e"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
TOPIC, CLOSED = "open-1", "closed"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Three brokers with the user alice, who may read and write topics with the prefix `open-`, as the group
    `readers`."""
    rules = {
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:broker;User:admin",
    }
    with secured(tmp_path_factory.mktemp("secured"), 3, rules) as running:
        admin = AdminClient(running.librdkafka(ADMIN, ADMINS_PASSWORD))
        for topic in admin.create_topics([NewTopic(TOPIC, 1, 3), NewTopic(CLOSED, 1, 3)]).values():
            topic.result(PATIENCE)
        mechanisms = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
        for mechanism in mechanisms:
            how = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("alice", how, ALICES_PASSWORD.encode())
            admin.alter_user_scram_credentials([change])["alice"].result(PATIENCE)
        for future in admin.create_acls(allowed()).values():
            future.result(PATIENCE)
        until(lambda: len(described(admin)) == 3, "rules are known to the broker that is asked")
        yield running


def allowed() -> list[AclBinding]:
    def rule(kind: ResourceType, name: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
        return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)

    prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    return [
        rule(ResourceType.TOPIC, "open-", prefixed, AclOperation.READ),
        rule(ResourceType.TOPIC, "open-", prefixed, AclOperation.WRITE),
        rule(ResourceType.GROUP, "readers", literal, AclOperation.READ),
    ]


def everything(operation: AclOperation = AclOperation.ANY) -> AclBindingFilter:
    anything: Any = AclBindingFilter
    made: AclBindingFilter = anything(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, operation, AclPermissionType.ANY
    )
    return made


def described(admin: AdminClient) -> list[AclBinding]:
    found: list[AclBinding] = admin.describe_acls(everything()).result(PATIENCE)
    return found


def infos_of(admin: AdminClient, user: str) -> list[ScramCredentialInfo]:
    """The description of a user's passwords."""
    asked: Any = admin.describe_user_scram_credentials([user])
    found: list[ScramCredentialInfo] = asked[user].result(PATIENCE).scram_credential_infos
    return found


def context(nodes: Secured) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(nodes.authority.certificates))


def written(config: dict[str, Any], topic: str) -> str | None:
    """The error of a record from confluent-kafka's producer, or None."""
    errors: list[Any] = []
    producer = Producer(config)
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
    except KafkaException as refused:  # it had heard already that the topic is not its own
        return str(refused.args[0].name())
    assert producer.flush(PATIENCE) == 0
    error: str | None = errors[0]
    return error


def error_of_the_first(consumer: Consumer) -> str | None:
    """The error of the first message that a consumer hears; None: it is a record."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None:
            error = message.error()
            return None if error is None else str(error.name())
    raise AssertionError("nothing was heard")


@pytest.mark.conforms("SEC-3", "SEC-4")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(nodes: Secured, mechanism: str) -> None:
    config = nodes.librdkafka(ADMIN, ADMINS_PASSWORD, mechanism)
    assert written(config, TOPIC) is None
    consumer = Consumer({**config, "group.id": f"admins-{mechanism}", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    assert error_of_the_first(consumer) is None
    consumer.close()


@pytest.mark.conforms("SEC-3", "SEC-4")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(nodes: Secured, mechanism: str) -> None:
    config = {
        "bootstrap_servers": nodes.bootstrap.split(","),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(nodes.authority.certificates),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": ADMINS_PASSWORD,
    }
    producer = KafkaProducer(**config)
    assert producer.send(TOPIC, b"y").get(PATIENCE).offset >= 0
    producer.close()
    # Assigned, not subscribed: kafka-python 3.0.12 forgets to ask for a topic that is subscribed to while its first
    # request for metadata is under way, and then reads nothing until `metadata_max_age_ms`, five minutes, have passed.
    consumer = KafkaConsumer(**config, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE * 1000)
    consumer.assign([TopicPartition(TOPIC, 0)])
    assert next(consumer).value
    consumer.close()


@pytest.mark.conforms("SEC-3", "SEC-4")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@run_by(asyncio.run)
async def test_aiokafka(nodes: Secured, mechanism: str) -> None:
    config = {
        "bootstrap_servers": nodes.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": context(nodes),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": ADMINS_PASSWORD,
    }
    async with aiokafka.AIOKafkaProducer(**config) as producer:
        assert (await producer.send_and_wait(TOPIC, b"z")).offset >= 0
    async with aiokafka.AIOKafkaConsumer(TOPIC, **config, auto_offset_reset="earliest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), PATIENCE)).value


@pytest.mark.conforms("SEC-3", "SEC-6")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_and_never_in_an_answer(nodes: Secured, mechanism: str) -> None:
    wrong = "Not-the-password-11aa"
    errors: list[KafkaError] = []
    config = {**nodes.librdkafka(ADMIN, wrong, mechanism), "error_cb": errors.append}
    producer = Producer(config)

    def refused() -> bool:
        producer.poll(0.1)
        return KafkaError._AUTHENTICATION in {error.code() for error in errors}

    until(refused, "the client gets the error")
    assert "Authentication failed: invalid credentials" in str(errors)
    assert wrong not in str(errors)


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_can_do_exactly_the_allowed_operations(nodes: Secured, mechanism: str) -> None:
    config = nodes.librdkafka("alice", ALICES_PASSWORD, mechanism)
    assert written(config, TOPIC) is None
    assert written(config, CLOSED) == "TOPIC_AUTHORIZATION_FAILED"
    assert written({**config, "enable.idempotence": "true"}, TOPIC) is None
    alice = AdminClient(config)
    assert set(alice.list_topics(timeout=PATIENCE).topics) == {TOPIC}
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        alice.create_topics([NewTopic("hers", 1, 3)])["hers"].result(PATIENCE)
    for future in alice.create_acls(allowed()).values():
        with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            future.result(PATIENCE)
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        infos_of(alice, "admin")
    for group, error in (("readers", None), ("others", "GROUP_AUTHORIZATION_FAILED")):
        consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        assert error_of_the_first(consumer) == error
        consumer.close()


@pytest.mark.conforms("SEC-5")
def test_deletion_of_rules_applies_to_open_connections(nodes: Secured) -> None:
    admin = AdminClient(nodes.librdkafka(ADMIN, ADMINS_PASSWORD))
    errors: list[Any] = []
    producer = Producer(nodes.librdkafka("alice", ALICES_PASSWORD))

    def refused() -> bool:
        try:
            producer.produce(TOPIC, b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
        except KafkaException as error:  # its metadata say so already
            return "TOPIC_AUTHORIZATION_FAILED" in str(error)
        assert producer.flush(PATIENCE) == 0
        return bool(errors[-1] == "TOPIC_AUTHORIZATION_FAILED")

    for _ in range(3):
        assert not refused()
    (deleted,) = admin.delete_acls([everything(AclOperation.WRITE)]).values()
    assert [it.operation for it in deleted.result(PATIENCE)] == [AclOperation.WRITE]
    until(refused, "the leader has learned it")
    for future in admin.create_acls(allowed()).values():
        future.result(PATIENCE)
    until(lambda: not refused(), "the leader has learned that, too")
    assert len(described(admin)) == 3, "those that there were are not there twice"


@pytest.mark.conforms("SEC-4")
def test_users_are_described_and_deleted(nodes: Secured) -> None:
    admin = AdminClient(nodes.librdkafka(ADMIN, ADMINS_PASSWORD))
    new = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"bobs")
    admin.alter_user_scram_credentials([new])["bob"].result(PATIENCE)

    def infos() -> list[tuple[object, int]]:
        try:
            its = infos_of(admin, "bob")
        except KafkaException as error:
            if "RESOURCE_NOT_FOUND" not in str(error):
                raise
            return []
        return [(it.mechanism, it.iterations) for it in its]

    until(lambda: infos() == [(ScramMechanism.SCRAM_SHA_256, 8192)], "bob is known")
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["bob"].result(PATIENCE)
    until(lambda: infos() == [], "bob is gone")
    with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
        admin.alter_user_scram_credentials([deletion])["bob"].result(PATIENCE)


@pytest.mark.conforms("SEC-6")
def test_no_file_of_a_broker_holds_a_password_but_those_it_was_given_in(nodes: Secured) -> None:
    """After all operations of the tests above, including wrong passwords and refusals."""
    secrets = [it.encode() for it in (BROKERS_PASSWORD, ADMINS_PASSWORD, ALICES_PASSWORD)]
    shapes = secrets + [base64.b64encode(it) for it in secrets] + [it.hex().encode() for it in secrets]
    looked_at = 0
    for broker in nodes.cluster.brokers.values():
        for path in (path for path in broker.config.parent.rglob("*") if path.is_file()):
            content = path.read_bytes()
            assert not any(shape in content for shape in shapes), path
            looked_at += 1
    assert looked_at > 10


@pytest.mark.conforms("SEC-2")
def test_a_certificate_identifies_a_client(tmp_path: Path) -> None:
    """TLS alone, on both sides."""
    rules = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "ssl.client.auth": "required",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:CN=broker,O=Test;User:CN=operator,O=Test",
    }
    with secured(tmp_path, 3, rules) as nodes:
        base: dict[str, Any] = {
            "bootstrap.servers": nodes.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(nodes.authority.certificates),
        }

        def shown(name: str) -> dict[str, Any]:
            path = str(nodes.authority.issue(name))
            return {**base, "ssl.certificate.location": path, "ssl.key.location": path}

        admin = AdminClient(shown("operator"))
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE)
        assert written(shown("operator"), TOPIC) is None
        assert written({**shown("guest"), "message.timeout.ms": "60000"}, TOPIC) == "TOPIC_AUTHORIZATION_FAILED"
        with pytest.raises(KafkaException):
            AdminClient(base).list_topics(timeout=2)

        async def aiokafka_too() -> list[str]:
            tls = context(nodes)
            tls.load_cert_chain(nodes.authority.issue("operator"))
            admin = AIOKafkaAdminClient(bootstrap_servers=nodes.bootstrap, security_protocol="SSL", ssl_context=tls)
            await admin.start()
            try:
                topics: list[str] = await admin.list_topics()
            finally:
                await admin.close()
            return topics

        assert TOPIC in asyncio.run(aiokafka_too())


@pytest.mark.conforms("SEC-3")
def test_a_plaintext_client_gets_no_answer(nodes: Secured) -> None:
    with pytest.raises(KafkaTimeoutError):
        KafkaAdminClient(bootstrap_servers=nodes.bootstrap.split(",")[:1], bootstrap_timeout_ms=2_000)
