"""Rules and passwords as the controller takes them."""

import pytest

from broker.controller import access
from broker.controller.access import alter_scram_credentials
from broker.errors import ErrorCode
from broker.protocol.messages.acl_apis import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from broker.protocol.messages.credential_apis import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from broker.security.acls import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from broker.security.scram import ScramMechanism
from tests.broker.controller.world import World

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
ANY, ALLOW = 1, Permission.ALLOW
SECRET = b"salted-secret"


def creation(
    kind: int = TOPIC,
    name: str = "t",
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = AclOperation.READ,
    permission: int = ALLOW,
) -> AclCreation:
    return AclCreation(kind, name, pattern, principal, host, operation, permission)


def created(world: World, *creations: AclCreation) -> list[int]:
    response = world.decide(world.rules.create_acls(world.image, CreateAclsRequest(list(creations))))
    return [result.error_code for result in response.results]


def deleted(world: World, *filters: DeleteAclsFilter) -> list[list[str]]:
    response = world.decide(world.rules.delete_acls(world.image, DeleteAclsRequest(list(filters))))
    return [[acl.resource_name for acl in result.matching_acls] for result in response.filter_results]


@pytest.mark.conforms("SEC-5")
def test_a_rule_created_several_times_exists_once() -> None:
    world = World()
    assert created(world, creation(), creation(), creation(name="u")) == [0, 0, 0]
    assert created(world, creation()) == [0]
    assert sorted(acl.name for acl in world.image.acls.values()) == ["t", "u"]


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize(
    "wrong",
    [
        creation(kind=ANY),
        creation(kind=99),
        creation(pattern=PatternType.MATCH),
        creation(pattern=PatternType.ANY),
        creation(operation=AclOperation.ANY),
        creation(operation=AclOperation.CLUSTER_ACTION),
        creation(operation=0),
        creation(permission=Permission.ANY),
        creation(principal="alice"),
        creation(principal="User:"),
        creation(principal=""),
        creation(host=""),
        creation(name=""),
        creation(name="x" * 1_001),
        creation(kind=ResourceType.CLUSTER, name="t", operation=AclOperation.ALTER),
        creation(kind=ResourceType.GROUP, operation=AclOperation.WRITE),
    ],
)
def test_a_rule_without_effect_is_refused_alone(wrong: AclCreation) -> None:
    world = World()
    cluster = creation(ResourceType.CLUSTER, CLUSTER_NAME, operation=AclOperation.ALTER)
    assert created(world, wrong, cluster) == [ErrorCode.INVALID_REQUEST, 0]
    assert len(world.image.acls) == 1


@pytest.mark.conforms("SEC-5")
def test_filters_delete_matching_rules_and_return_them() -> None:
    world = World()
    created(world, creation(), creation(name="t-", pattern=PREFIXED), creation(ResourceType.GROUP, "g"))
    topics = DeleteAclsFilter(TOPIC, None, PatternType.ANY, None, None, ANY, ANY)
    prefixed = DeleteAclsFilter(ANY, None, PREFIXED, None, None, ANY, ANY)
    nothing = DeleteAclsFilter(ANY, "none", LITERAL, None, None, ANY, ANY)
    assert deleted(world, prefixed, topics, nothing) == [["t-"], ["t", "t-"], []]
    assert [acl.name for acl in world.image.acls.values()] == ["g"]
    wrong = DeleteAclsFilter(0, None, LITERAL, None, None, ANY, ANY)
    response = world.decide(world.rules.delete_acls(world.image, DeleteAclsRequest([wrong])))
    assert response.filter_results[0].error_code == ErrorCode.INVALID_REQUEST


def upsertion(
    user: str = "alice", mechanism: int = 2, iterations: int = 4096, salt: bytes = b"s", secret: bytes = SECRET
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(user, mechanism, iterations, salt, secret)


def altered(world: World, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[it for it in changes if isinstance(it, ScramCredentialDeletion)],
        upsertions=[it for it in changes if isinstance(it, ScramCredentialUpsertion)],
    )
    response = world.decide(world.rules.alter_scram_credentials(world.image, request))
    for result in response.results:
        assert SECRET.decode() not in (result.error_message or "")
    return {result.user: result.error_code for result in response.results}


@pytest.mark.conforms("SEC-4")
def test_a_password_is_stored_as_a_verifier() -> None:
    world = World()
    assert altered(world, upsertion(), upsertion(mechanism=1), upsertion("bob")) == {"alice": 0, "bob": 0}
    assert sorted(world.image.scram) == [("alice", 1), ("alice", 2), ("bob", 2)]
    kept = world.image.scram["alice", ScramMechanism.SHA_512]
    assert SECRET not in (kept.stored_key, kept.server_key)
    assert altered(world, ScramCredentialDeletion("alice", 1)) == {"alice": 0}
    assert sorted(world.image.scram) == [("alice", 2), ("bob", 2)]
    assert altered(world, ScramCredentialDeletion("alice", 1)) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.conforms("SEC-4")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(secret=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * 1_001), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_an_invalid_credential_is_refused_with_all_changes_of_its_user(
    wrong: ScramCredentialUpsertion, code: ErrorCode
) -> None:
    world = World()
    other = upsertion(wrong.name, mechanism=1 if wrong.mechanism == 2 else 2)
    assert altered(world, other, wrong, upsertion("bob")) == {wrong.name: code, "bob": 0}
    assert sorted(world.image.scram) == [("bob", 2)]


@pytest.mark.conforms("SEC-4")
def test_one_credential_is_altered_once() -> None:
    world = World()
    twice = altered(world, upsertion(), upsertion(), upsertion("bob"), ScramCredentialDeletion("bob", 2))
    assert twice == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": ErrorCode.DUPLICATE_RESOURCE}
    assert world.image.scram == {}


class Name(str):
    """Counts how often names are compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_cost_of_users_is_linear() -> None:
    users = [Name(f"user-{number}") for number in range(500)]
    Name.comparisons = 0
    request = AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(user, ScramMechanism.SHA_256, 4096, b"salt", SECRET) for user in users]
    )
    records, response = alter_scram_credentials(World().image, request)
    assert len(records) == len(response.results) == 500
    assert Name.comparisons < 10 * 500


@pytest.mark.conforms("SEC-5")
def test_rules_are_found_by_name_and_principal_with_bounded_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    created(world, *(creation(name=f"t{number}", principal=f"User:{number % 2}") for number in range(100)))
    monkeypatch.setattr(access, "MOST_LOOKED_AT", 240)

    def wanted(name: str | None, principal: str | None, pattern: int = LITERAL) -> DeleteAclsFilter:
        return DeleteAclsFilter(TOPIC, name, pattern, principal, None, AclOperation.ANY, Permission.ANY)

    filters = [wanted(f"t{number}", "User:0") for number in range(40)]  # one rule each is looked at
    filters += [wanted(None, "User:1"), wanted("t1", None, PatternType.MATCH), wanted(None, None)]
    _, response = access.delete_acls(world.image, DeleteAclsRequest(filters))
    matching = [len(result.matching_acls) for result in response.filter_results]
    assert matching == [1, 0] * 20 + [50, 1, 0]
    assert [result.error_code for result in response.filter_results][-2:] == [0, ErrorCode.POLICY_VIOLATION]
