"""The decisions of the authorizer agree with Apache Kafka's StandardAuthorizer."""

import tracemalloc

import pytest

from broker.errors import StartupError
from broker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from broker.security.authorizer import Authorizer, Caller
from broker.security.principals import of_certificate, parse_super_users

ALICE, BOB = Caller("User:alice", "10.0.0.1"), Caller("User:bob", "10.0.0.1")
TOPIC = ResourceType.TOPIC


def acl(
    name: str,
    operation: AclOperation,
    permission: Permission = Permission.ALLOW,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, open_otherwise: bool = False) -> Authorizer:
    made = Authorizer(frozenset({"User:root"}), allow_if_no_acl=open_otherwise)
    made.learn(acls)
    return made


DENY = Permission.DENY
PREFIXED = PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL


@pytest.mark.conforms("SEC-5")
def test_invented_names_of_a_peer_use_no_memory() -> None:
    decides = authorizer(acl("long", READ, pattern=PREFIXED))
    name = "x" * 30_000
    tracemalloc.start()
    try:
        for number in range(100):
            assert not decides.allows(ALICE, READ, TOPIC, f"{name}{number}")
            assert decides.allows(ALICE, READ, TOPIC, f"long{name}{number}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize(
    ("acls", "operation", "name", "allowed"),
    [
        ([], READ, "t", False),
        ([acl("t", READ)], READ, "t", True),
        ([acl("t", READ)], WRITE, "t", False),
        ([acl("t", READ)], READ, "tt", False),
        ([acl("t", ALL)], WRITE, "t", True),
        ([acl("*", READ)], READ, "anything", True),
        ([acl("t-", READ, pattern=PREFIXED)], READ, "t-1", True),
        ([acl("t-", READ, pattern=PREFIXED)], READ, "t", False),
        ([acl("*", READ, pattern=PREFIXED)], READ, "t", False),  # a prefix, and no wildcard
        ([acl("t", READ, principal="User:*")], READ, "t", True),
        ([acl("t", READ, principal="User:bob")], READ, "t", False),
        ([acl("t", READ, host="10.0.0.1")], READ, "t", True),
        ([acl("t", READ, host="10.0.0.2")], READ, "t", False),
        ([acl("t", READ)], DESCRIBE, "t", True),
        ([acl("t", WRITE)], DESCRIBE, "t", True),
        ([acl("t", AclOperation.CREATE)], DESCRIBE, "t", False),
        ([acl("t", AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, "t", True),
        ([acl("t", READ), acl("t", READ, DENY)], READ, "t", False),
        ([acl("t", READ), acl("*", READ, DENY, principal="User:*")], READ, "t", False),
        ([acl("t-1", READ), acl("t-", READ, DENY, pattern=PREFIXED)], READ, "t-1", False),
        ([acl("t", READ), acl("t", READ, DENY, host="10.0.0.2")], READ, "t", True),
        ([acl("t", ALL), acl("t", READ, DENY)], DESCRIBE, "t", True),  # a refusal implies no other
        ([acl("t", READ), acl("t", ALL, DENY)], DESCRIBE, "t", False),
        ([acl("t", READ, kind=ResourceType.GROUP)], READ, "t", False),
    ],
)
def test_rules(acls: list[Acl], operation: AclOperation, name: str, allowed: bool) -> None:
    assert authorizer(*acls).allows(ALICE, operation, TOPIC, name) is allowed
    assert authorizer(*acls).allows(Caller("User:root", "h"), operation, TOPIC, name)


@pytest.mark.conforms("SEC-5")
def test_resources_without_a_rule_are_open_only_if_configured() -> None:
    rules = acl("t", READ), acl("p-", READ, pattern=PREFIXED)
    for name, allowed in (("t", False), ("p-1", False), ("other", True)):
        assert authorizer(*rules, open_otherwise=True).allows(BOB, READ, TOPIC, name) is allowed
        assert not authorizer(*rules).allows(BOB, READ, TOPIC, name)
    assert authorizer(open_otherwise=True).allows_cluster(BOB, AclOperation.ALTER)


@pytest.mark.conforms("SEC-5")
def test_new_rules_replace_every_earlier_decision() -> None:
    made = authorizer(acl("t", READ), acl(CLUSTER_NAME, DESCRIBE, kind=ResourceType.CLUSTER))
    assert made.allows(ALICE, READ, TOPIC, "t")
    assert made.allows_cluster(ALICE, DESCRIBE)
    made.learn([])
    assert not made.allows(ALICE, READ, TOPIC, "t")
    assert not made.allows_cluster(ALICE, DESCRIBE)


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("t", WRITE)], True),
        ([acl("t", READ)], False),
        ([acl("t", WRITE, principal="User:bob")], False),
        ([acl("t", WRITE), acl("t", WRITE, DENY)], False),
        ([acl("t", WRITE), acl("*", ALL, DENY)], False),
        ([acl("t-1", WRITE), acl("t-", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("t-", WRITE, pattern=PREFIXED), acl("t-1", WRITE, DENY)], True),
        ([acl("t-", WRITE, pattern=PREFIXED), acl("t", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("*", WRITE), acl("t", WRITE, DENY, pattern=PREFIXED)], True),
    ],
)
def test_the_authorizer_reports_whether_any_topic_is_writable(acls: list[Acl], allowed: bool) -> None:
    assert authorizer(*acls).allows_any(ALICE, WRITE, TOPIC) is allowed
    assert authorizer(*acls).allows_any(Caller("User:root", "h"), WRITE, TOPIC)
    assert authorizer(open_otherwise=True).allows_any(ALICE, WRITE, TOPIC)
    assert not authorizer(acl("*", WRITE, DENY), open_otherwise=True).allows_any(ALICE, WRITE, TOPIC)


@pytest.mark.conforms("SEC-5")
def test_filters() -> None:
    rules = [
        acl("t-1", READ),
        acl("t-", WRITE, pattern=PREFIXED),
        acl("*", READ, DENY),
        acl("g", READ, kind=ResourceType.GROUP),
    ]
    any_type, any_operation, any_permission = ResourceType.ANY, AclOperation.ANY, Permission.ANY

    def found(name: str | None, pattern: PatternType, kind: ResourceType = TOPIC) -> list[str]:
        wanted = AclFilter(kind, name, pattern, None, None, any_operation, any_permission)
        return [it.name for it in rules if wanted.matches(it)]

    assert found(None, PatternType.ANY, any_type) == ["t-1", "t-", "*", "g"]
    assert found("t-1", PatternType.LITERAL) == ["t-1"]
    assert found("t-1", PatternType.MATCH) == ["t-1", "t-", "*"]
    assert found("t-", PatternType.ANY) == ["t-"]
    assert found(None, PREFIXED) == ["t-"]
    denials = AclFilter(TOPIC, None, PatternType.ANY, "User:alice", "*", READ, DENY)
    assert [it.name for it in rules if denials.matches(it)] == ["*"]


@pytest.mark.conforms("SEC-2")
def test_the_principal_of_a_certificate_is_its_distinguished_name() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A, B+C"),), (("commonName", "#broker "),))
    assert of_certificate(subject) == r"User:CN=\#broker\ ,O=A\, B\+C,C=DE"


def test_super_users() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;", "p") == {"User:a", "User:CN=b,O=c"}
    assert parse_super_users("", "p") == frozenset()
    for text in ("a", "User:", "User:*", "User:a;b"):
        with pytest.raises(StartupError, match=r"super\.users"):
            parse_super_users(text, "p")
