"""The base of the classes of requests."""

from typing import Generic, TypeVar

from broker.protocol.schema import Message

Response = TypeVar("Response", bound=Message)


class Request(Message, Generic[Response]):
    """A message that a `Response` answers."""
