"""Decides which operations a caller may do: the ACLs of the metadata log, applied as by Kafka's StandardAuthorizer."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from broker.security.acls import CLUSTER_NAME, EVERYTHING, Acl, AclOperation, PatternType, Permission, ResourceType
from broker.security.principals import ANYBODY

MOST_REMEMBERED = 100_000  # cached decisions
LONGEST_REMEMBERED = 249  # characters of a cached name: no topic has more, and invented long names use no memory


class Caller(NamedTuple):
    """The sender of a request: its principal and address."""

    principal: str
    host: str


class Authorizer:
    """Decides by the ACLs given last to `learn`. A denial has precedence over a permission. Without any matching rule
    the operation is denied, unless the resource has no rules at all and `allow_if_no_acl` is set."""

    def __init__(self, super_users: frozenset[str], *, allow_if_no_acl: bool) -> None:
        self._super_users = super_users
        self._allow_if_no_acl = allow_if_no_acl
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[ResourceType, list[Acl]] = {}
        self._remembered: dict[tuple[Caller, AclOperation, ResourceType, str], bool] = {}

    def learn(self, acls: Iterable[Acl]) -> None:
        """Replace all ACLs."""
        literal, prefixed = defaultdict(list), defaultdict(list)
        for acl in acls:
            if acl.pattern_type is PatternType.PREFIXED:
                prefixed[acl.resource_type].append(acl)
            else:
                literal[acl.resource_type, acl.name].append(acl)
        self._literal, self._prefixed = dict(literal), dict(prefixed)
        self._remembered.clear()

    def allows(self, caller: Caller, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller may do the operation on the resource of this name."""
        question = caller, operation, resource_type, name
        if len(name) > LONGEST_REMEMBERED:
            return self._decide(*question)
        decision = self._remembered.get(question)
        if decision is None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            decision = self._remembered[question] = self._decide(*question)
        return decision

    def allows_cluster(self, caller: Caller, operation: AclOperation) -> bool:
        return self.allows(caller, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_any(self, caller: Caller, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of this type on which the caller may do the operation (KIP-679)."""
        if caller.principal in self._super_users:
            return True
        rules = [
            rule for (kind, _), named_rules in self._literal.items() if kind is resource_type for rule in named_rules
        ]
        rules += self._prefixed.get(resource_type, [])
        relevant = [rule for rule in rules if _is_about(rule, caller) and rule.decides(operation)]
        refusals = [rule for rule in relevant if rule.permission is Permission.DENY]
        if self._allow_if_no_acl:  # there are always names without a rule
            return not any(rule.name == EVERYTHING for rule in refusals)
        return any(
            rule.permission is Permission.ALLOW and not any(_covers(refusal, rule) for refusal in refusals)
            for rule in relevant
        )

    def _decide(self, caller: Caller, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        if caller.principal in self._super_users:
            return True
        rules = self._literal.get((resource_type, name), []) + self._literal.get((resource_type, EVERYTHING), [])
        rules += [rule for rule in self._prefixed.get(resource_type, []) if rule.names(name)]
        if not rules:
            return self._allow_if_no_acl
        relevant = {rule.permission for rule in rules if _is_about(rule, caller) and rule.decides(operation)}
        return relevant == {Permission.ALLOW}


def _is_about(acl: Acl, caller: Caller) -> bool:
    return acl.principal in (caller.principal, ANYBODY) and acl.host in (caller.host, EVERYTHING)


def _covers(refusal: Acl, permission: Acl) -> bool:
    """Whether a denial covers everything that a permission allows."""
    if refusal.pattern_type is PatternType.PREFIXED:
        is_all = permission.pattern_type is PatternType.LITERAL and permission.name == EVERYTHING
        return not is_all and permission.name.startswith(refusal.name)
    if refusal.name == EVERYTHING:
        return True
    return permission.pattern_type is PatternType.LITERAL and refusal.name == permission.name
