"""How a broker creates a topic of its own: it asks the controller, as a client does."""

from collections.abc import Mapping
from typing import Final

from broker.errors import ErrorCode
from broker.peers import Peers
from broker.protocol.messages.topic_apis import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TIMEOUT_S: Final = 5.0


async def create(
    peers: Peers, controller: int, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
) -> str | None:
    """Create a topic; why the controller refused, as it does while there are fewer brokers than `replicas`. None if the
    topic exists now, or if that is unknown."""
    configs = [CreatableTopicConfig(*setting) for setting in settings.items()]
    topic = CreatableTopic(name, partitions, replicas, configs=configs)
    request = CreateTopicsRequest([topic], timeout_ms=int(TIMEOUT_S * 1000))
    try:
        (result,) = (await peers.request(controller, request, TIMEOUT_S + 1)).topics
    except (ConnectionError, TimeoutError):
        return None
    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return None
    return f"{ErrorCode(result.error_code).name}: {result.error_message}"
