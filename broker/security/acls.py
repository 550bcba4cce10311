"""Access control lists: one rule of one, and which rules a filter means. The numbers are Kafka's (KIP-140, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ResourceType(IntEnum):
    """What a rule is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names it. ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What is done to it."""

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
"""The one resource of its type."""

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
"""What can be done to resources of each type; ALL besides."""

_IMPLIED_BY = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule: a principal, from a host, may or may not do something to what the pattern names."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def names(self, resource: str) -> bool:
        """Whether a resource of its type is meant."""
        if self.pattern_type is PatternType.PREFIXED:
            return resource.startswith(self.name)
        return self.name in (resource, EVERYTHING)

    def decides(self, operation: AclOperation) -> bool:
        """Whether it is about an operation. Who may read, write, delete or alter may also describe; who may not do one
        of these may perhaps still describe."""
        if self.operation in (operation, AclOperation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant; None and ANY: whatever they say there."""

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
        """MATCH: every rule that is about the resource of this name; else those that are written so."""
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or acl.names(self.name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.name)
