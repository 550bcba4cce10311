"""The permissions of one caller, as the checks of the single APIs use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from broker.controller.image import MetadataImage
from broker.security.acls import AclOperation, ResourceType
from broker.security.authorizer import Authorizer, Caller
from broker.server.dispatch import Permit

T = TypeVar("T")


class Rights(NamedTuple):
    """The permissions of one caller. `image`: the topics that this broker knows."""

    authorizer: Authorizer
    caller: Caller
    image: MetadataImage

    def cluster(self, operation: AclOperation) -> bool:
        return self.authorizer.allows_cluster(self.caller, operation)

    def topic(self, operation: AclOperation, name: str) -> bool:
        return self.authorizer.allows(self.caller, operation, ResourceType.TOPIC, name)

    def group(self, operation: AclOperation, name: str) -> bool:
        return self.authorizer.allows(self.caller, operation, ResourceType.GROUP, name)

    def any_topic(self, operation: AclOperation) -> bool:
        return self.authorizer.allows_any(self.caller, operation, ResourceType.TOPIC)


Check = Callable[[Any, int, Rights], Permit]
"""Takes a request, its version and the caller's rights; may raise `dispatch.RefusedRequest`."""


def split(elements: Iterable[T], allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The allowed elements, and the others."""
    parts: tuple[list[T], list[T]] = [], []
    for element in elements:
        parts[not allowed(element)].append(element)
    return parts


def appending(name: str, denied: list[Any]) -> Callable[[Any], Any] | None:
    """A function that adds answers to the list in the field `name` of a response."""
    if not denied:
        return None

    def amend(response: Any) -> Any:
        getattr(response, name).extend(denied)
        return response

    return amend
