"""Access control lists: one rule (ACL), and the rules that a filter matches. Numbers are Kafka's (KIP-140, KIP-290)."""

from dataclasses import dataclass
from enum import IntEnum


class ResourceType(IntEnum):
    """The type of the resources of a rule."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule's resource name matches. ANY and MATCH occur only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operation that a rule allows or denies."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


EVERYTHING = "*"
"""As a literal name: every resource of its type. As a host: every host."""
CLUSTER_NAME = "kafka-cluster"
"""The only resource of the type CLUSTER."""

_CLUSTER = {
    AclOperation.CREATE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
}
_TOPIC = {
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
}
OPERATIONS_ON: dict[ResourceType, set[AclOperation]] = {
    ResourceType.TOPIC: _TOPIC,
    ResourceType.GROUP: {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE},
    ResourceType.CLUSTER: _CLUSTER,
    ResourceType.TRANSACTIONAL_ID: {AclOperation.DESCRIBE, AclOperation.WRITE},
    ResourceType.DELEGATION_TOKEN: {AclOperation.DESCRIBE},
    ResourceType.USER: {AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS},
}
"""The operations on resources of each type, in addition to ALL."""

_IMPLIED_BY = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule: allows or denies a principal, from a host, an operation on the resources that match a pattern."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def names(self, resource: str) -> bool:
        """Whether the rule's pattern matches a resource of its type."""
        if self.pattern_type is PatternType.PREFIXED:
            return resource.startswith(self.name)
        return self.name in (resource, EVERYTHING)

    def decides(self, operation: AclOperation) -> bool:
        """Whether the rule applies to an operation. Permission to read, write, delete or alter implies permission to
        describe; a denial of one of these does not deny describing."""
        if self.operation in (operation, AclOperation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects rules. None and ANY match every value."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        """MATCH: every rule that applies to the resource of this name; else rules with exactly this pattern."""
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or acl.names(self.name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.name)
