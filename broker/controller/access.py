"""CreateAcls, DeleteAcls, AlterUserScramCredentials (KIP-140, -290, -554). Pure: from image and request to records."""

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
    acls = set(image.acls.values())
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        response.results.append(result)
        try:
            acl = _new_acl(creation)
            if acl not in acls:
                if len(acls) >= MOST_ACLS:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, f"there are {MOST_ACLS} rules already")
                acls.add(acl)
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
    for requested_filter in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        try:
            acl_filter = filter_of(requested_filter)
            for acl_id, acl in rules.that_may_match(acl_filter):
                if acl_filter.matches(acl):
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

    def that_may_match(self, acl_filter: AclFilter) -> list[tuple[bytes, Acl]]:
        """Raises `ProtocolError` when this request has been compared with too many rules."""
        candidates = self._all
        if acl_filter.name is not None and acl_filter.pattern_type is not PatternType.MATCH:
            candidates = self._by_name.get(acl_filter.name, [])
        if acl_filter.principal is not None:
            candidates = min(candidates, self._by_principal.get(acl_filter.principal, []), key=len)
        self._left -= len(candidates)
        if self._left < 0:
            reason = f"the filters of one request reach more than {MOST_LOOKED_AT} rules; send fewer at once"
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, reason)
        return candidates


def filter_of(request: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """The filter of a request. Raises `ProtocolError` for undefined numbers."""
    try:
        return AclFilter(
            ResourceType(request.resource_type_filter),
            request.resource_name_filter,
            PatternType(request.pattern_type_filter),
            request.principal_filter,
            request.host_filter,
            AclOperation(request.operation),
            Permission(request.permission_type),
        )
    except ValueError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"a filter has an undefined value: {error}") from None


def _new_acl(creation: AclCreation) -> Acl:
    """Raises `ProtocolError` for a rule that could never match a request, and for a filter in place of a rule."""
    try:
        acl = Acl(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            Permission(creation.permission_type),
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
    named = [(change.name, change.mechanism) for change in request.deletions]
    named += [(change.name, change.mechanism) for change in request.upsertions]
    times = Counter(named)
    twice = {user for (user, _), count in times.items() if count > 1}
    changes: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
    everything: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in everything:
        changes.setdefault(change.name, []).append(change)
    for user, user_changes in changes.items():
        result = AlterUserScramCredentialsResult(user, error_message=None)
        response.results.append(result)
        try:
            if user in twice:
                message = "a user's mechanism is altered more than once"
                raise ProtocolError(ErrorCode.DUPLICATE_RESOURCE, message)
            records += [_altered(image, change) for change in user_changes]
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, str(error)
    return records, response


def credentials_refused(
    request: AlterUserScramCredentialsRequest, error: ProtocolError
) -> AlterUserScramCredentialsResponse:
    results = [AlterUserScramCredentialsResult(user, error.code, str(error)) for user in _users(request)]
    return AlterUserScramCredentialsResponse(results=results)


def _users(request: AlterUserScramCredentialsRequest) -> Iterable[str]:
    return dict.fromkeys(
        [*(change.name for change in request.deletions), *(change.name for change in request.upsertions)]
    )


def _altered(
    image: MetadataImage, change: ScramCredentialDeletion | ScramCredentialUpsertion
) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(change, ScramCredentialUpsertion):
        return _upserted(image, change)
    return _removed(image, change.name, change.mechanism)


def _removed(image: MetadataImage, user: str, number: int) -> RemoveUserScramCredentialRecord:
    if (user, _mechanism(number)) not in image.scram:
        raise ProtocolError(ErrorCode.RESOURCE_NOT_FOUND, "this user has no such credential")
    return RemoveUserScramCredentialRecord(user, number)


def _upserted(image: MetadataImage, upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    """The record of a salted password. Raises `ProtocolError`; its message contains no part of the credential."""
    mechanism = _mechanism(upsertion.mechanism)
    for bad, reason in (
        (
            not upsertion.name or len(upsertion.name) > LONGEST_NAME,
            f"a user has a name, of at most {LONGEST_NAME} characters",
        ),
        (upsertion.iterations < MIN_ITERATIONS, f"iterations: {upsertion.iterations} is smaller than {MIN_ITERATIONS}"),
        (upsertion.iterations > MAX_ITERATIONS, f"iterations: {upsertion.iterations} is larger than {MAX_ITERATIONS}"),
        (not upsertion.salt or len(upsertion.salt) > LONGEST_SALT, f"a salt has 1 to {LONGEST_SALT} bytes"),
        (
            not upsertion.salted_password or len(upsertion.salted_password) > LONGEST_SALT,
            "the salted password has a wrong size",
        ),
        (len(image.scram) >= MOST_CREDENTIALS, f"there are {MOST_CREDENTIALS} credentials already"),
    ):
        if bad:
            raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    credential = credential_of(upsertion.salted_password, upsertion.salt, upsertion.iterations, mechanism)
    return UserScramCredentialRecord(
        upsertion.name,
        upsertion.mechanism,
        credential.salt,
        credential.stored_key,
        credential.server_key,
        credential.iterations,
    )


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {number}") from None
