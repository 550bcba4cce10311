"""CreateAcls, DeleteAcls, AlterUserScramCredentials (KIP-140, -290, -554). Pure: from image and request to records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from broker.controller.image import MetadataImage
from broker.controller.image_records import acl_record
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.acl_apis import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from broker.protocol.messages.credential_apis import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from broker.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from broker.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from broker.security.principals import USER
from broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, credential_of

LONGEST_NAME = 1_000  # characters of a name, a principal or a host
LONGEST_SALT = 1_000  # bytes
MOST_ACLS = 100_000
MOST_CREDENTIALS = 100_000
MOST_LOOKED_AT = 2 * MOST_ACLS
"""How many rules the filters of one request are compared with at most. This takes some tenths of a second."""


# --- access control lists


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, new_id: Callable[[], bytes]
) -> tuple[list[AccessControlEntryRecord], CreateAclsResponse]:
    """The records of the rules that do not exist yet, and an answer for each rule. An existing rule counts as
    created."""
    records: list[AccessControlEntryRecord] = []
    response = CreateAclsResponse()
    known = set(image.acls.values())
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        response.results.append(result)
        try:
            acl = _new_acl(creation)
            if acl not in known:
                if len(known) >= MOST_ACLS:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, f"there are {MOST_ACLS} rules already")
                known.add(acl)
                records.append(acl_record(new_id(), acl))
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
    return records, response


def delete_acls(
    image: MetadataImage, request: DeleteAclsRequest
) -> tuple[list[RemoveAccessControlEntryRecord], DeleteAclsResponse]:
    """The records that remove the rules that match a filter, and for each filter the removed rules.

    A filter with an exact name or principal, as `kafka-acls` sends it, is compared only with the rules that have it;
    any other filter with all rules.
    """
    removed: dict[bytes, None] = {}
    response = DeleteAclsResponse()
    rules = _Rules(image)
    for wanted in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        try:
            found = filter_of(wanted)
            for acl_id, acl in rules.that_may_match(found):
                if found.matches(acl):
                    removed[acl_id] = None
                    result.matching_acls.append(_matching(acl))
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
    return [RemoveAccessControlEntryRecord(acl_id) for acl_id in removed], response


class _Rules:
    """Index of the rules by name and principal. Limits the number of rules that one request is compared with."""

    def __init__(self, image: MetadataImage) -> None:
        self._all = list(image.acls.items())
        self._by_name: dict[str, list[tuple[bytes, Acl]]] = {}
        self._by_principal: dict[str, list[tuple[bytes, Acl]]] = {}
        self._left = MOST_LOOKED_AT
        for acl_id, acl in self._all:
            self._by_name.setdefault(acl.name, []).append((acl_id, acl))
            self._by_principal.setdefault(acl.principal, []).append((acl_id, acl))

    def that_may_match(self, wanted: AclFilter) -> list[tuple[bytes, Acl]]:
        """Raises `ProtocolError` when this request has been compared with too many rules."""
        found = self._all
        if wanted.name is not None and wanted.pattern_type is not PatternType.MATCH:
            found = self._by_name.get(wanted.name, [])
        if wanted.principal is not None:
            found = min(found, self._by_principal.get(wanted.principal, []), key=len)
        self._left -= len(found)
        if self._left < 0:
            reason = f"the filters of one request reach more than {MOST_LOOKED_AT} rules; send fewer at once"
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, reason)
        return found


def filter_of(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """The filter of a request. Raises `ProtocolError` for undefined numbers."""
    try:
        return AclFilter(
            ResourceType(asked.resource_type_filter),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"a filter has an undefined value: {error}") from None


def _new_acl(asked: AclCreation) -> Acl:
    """Raises `ProtocolError` for a rule that could never match a request, and for a filter in place of a rule."""
    try:
        acl = Acl(
            ResourceType(asked.resource_type),
            asked.resource_name,
            PatternType(asked.resource_pattern_type),
            asked.principal,
            asked.host,
            AclOperation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"a rule has an undefined value: {error}") from None
    possible = OPERATIONS_ON.get(acl.resource_type)
    _require(possible is not None, "a rule is about one type of resources")
    _require(
        acl.operation is AclOperation.ALL or acl.operation in (possible or ()), "the operation is not for this type"
    )
    _require(acl.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED), "a pattern is literal or prefixed")
    _require(acl.permission is not Permission.ANY, "a rule allows or denies")
    _require(acl.resource_type is not ResourceType.CLUSTER or acl.name == CLUSTER_NAME, f"it is called {CLUSTER_NAME}")
    _require(acl.principal.startswith(USER) and acl.principal != USER, "a principal is of the form User:name")
    _require(bool(acl.name) and bool(acl.host), "a rule has a name and a host; * stands for all")
    longest = max(map(len, (acl.name, acl.principal, acl.host)))
    _require(longest <= LONGEST_NAME, f"more than {LONGEST_NAME} characters")
    return acl


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, otherwise)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        ErrorCode.NONE,
        None,
        acl.resource_type,
        acl.name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


# --- credentials


def alter_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> tuple[list[UserScramCredentialRecord | RemoveUserScramCredentialRecord], AlterUserScramCredentialsResponse]:
    """The records, and an answer for each user. All changes of a user are made, or none of them."""
    records: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord] = []
    response = AlterUserScramCredentialsResponse()
    named = [(it.name, it.mechanism) for it in request.deletions]
    named += [(it.name, it.mechanism) for it in request.upsertions]
    times = Counter(named)
    twice = {user for (user, _), count in times.items() if count > 1}
    changes: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
    everything: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for it in everything:
        changes.setdefault(it.name, []).append(it)
    for user, asked in changes.items():
        result = AlterUserScramCredentialsResult(user, error_message=None)
        response.results.append(result)
        try:
            if user in twice:
                message = "a user's mechanism is altered more than once"
                raise ProtocolError(ErrorCode.DUPLICATE_RESOURCE, message)
            records += [_altered(image, it) for it in asked]
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
    return records, response


def credentials_refused(
    request: AlterUserScramCredentialsRequest, error: ProtocolError
) -> AlterUserScramCredentialsResponse:
    results = [AlterUserScramCredentialsResult(user, error.code, str(error)) for user in _users(request)]
    return AlterUserScramCredentialsResponse(results=results)


def _users(request: AlterUserScramCredentialsRequest) -> Iterable[str]:
    return dict.fromkeys([*(it.name for it in request.deletions), *(it.name for it in request.upsertions)])


def _altered(
    image: MetadataImage, asked: ScramCredentialDeletion | ScramCredentialUpsertion
) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(asked, ScramCredentialUpsertion):
        return _upserted(image, asked)
    return _removed(image, asked.name, asked.mechanism)


def _removed(image: MetadataImage, user: str, number: int) -> RemoveUserScramCredentialRecord:
    if (user, _mechanism(number)) not in image.scram:
        raise ProtocolError(ErrorCode.RESOURCE_NOT_FOUND, "this user has no such credential")
    return RemoveUserScramCredentialRecord(user, number)


def _upserted(image: MetadataImage, asked: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    """The record of a salted password. Raises `ProtocolError`; its message contains no part of the credential."""
    mechanism = _mechanism(asked.mechanism)
    for bad, reason in (
        (not asked.name or len(asked.name) > LONGEST_NAME, f"a user has a name, of at most {LONGEST_NAME} characters"),
        (asked.iterations < MIN_ITERATIONS, f"iterations: {asked.iterations} is smaller than {MIN_ITERATIONS}"),
        (asked.iterations > MAX_ITERATIONS, f"iterations: {asked.iterations} is larger than {MAX_ITERATIONS}"),
        (not asked.salt or len(asked.salt) > LONGEST_SALT, f"a salt has 1 to {LONGEST_SALT} bytes"),
        (
            not asked.salted_password or len(asked.salted_password) > LONGEST_SALT,
            "the salted password has a wrong size",
        ),
        (len(image.scram) >= MOST_CREDENTIALS, f"there are {MOST_CREDENTIALS} credentials already"),
    ):
        if bad:
            raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    its = credential_of(asked.salted_password, asked.salt, asked.iterations, mechanism)
    return UserScramCredentialRecord(
        asked.name, asked.mechanism, its.salt, its.stored_key, its.server_key, its.iterations
    )


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {number}") from None
