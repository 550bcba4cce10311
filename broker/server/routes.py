"""Assigns a handler to each API key, for the listeners of clients and for the listener of controllers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.controller.active import ActiveController
from broker.controller.image import MetadataImage
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.errors import ErrorCode
from broker.protocol.api import ApiKey, advertised_api_keys
from broker.protocol.messages.cluster_apis import ApiVersionsRequest, ApiVersionsResponse
from broker.protocol.messages.credential_apis import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.protocol.messages.group_apis import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from broker.quorum.runner import QuorumRunner
from broker.replica.manager import ReplicaManager
from broker.server.dispatch import Dispatcher, Later, Q
from broker.server.failure_detector import DeathWatch
from broker.server.forwarding import ControllerForwarding
from broker.server.handlers.administration_handler import (
    AccessHandler,
    ConfigsHandler,
    describe_client_quotas,
    refuse_without_authorizer,
)
from broker.server.handlers.fetch_handler import FetchHandler, serve_quorum_fetch
from broker.server.handlers.groups_handler import GroupsHandler
from broker.server.handlers.metadata_handler import MetadataHandler
from broker.server.handlers.offsets_handler import LogHandler, OffsetsHandler, ReplicaLogsHandler
from broker.server.handlers.produce_handler import ProduceHandler
from broker.server.handlers.producer_ids_handler import ProducerIdsHandler
from broker.server.handlers.quorum_handler import QuorumHandler


@dataclass(frozen=True)
class Parts:
    """The parts of a node that handlers use. `settled` is set while the replicas match the image; `caught_up` once this
    broker has read the metadata log up to its own registration."""

    config: BrokerConfig
    image: Callable[[], MetadataImage]
    settled: asyncio.Event
    caught_up: asyncio.Event
    quorum: QuorumRunner
    controller: ActiveController
    replicas: ReplicaManager
    groups: GroupCoordinator
    watch: DeathWatch
    forwarding: ControllerForwarding
    producer_ids: ProducerIdsHandler


def add_controller_routes(dispatcher: Dispatcher, parts: Parts) -> None:
    """The APIs by which nodes run the cluster. Clients must not use them: no other listener serves them."""
    quorum, controller = QuorumHandler(parts.quorum), parts.controller
    _add_first_routes(dispatcher)
    serve_quorum_fetch(dispatcher, quorum.handle)
    dispatcher.answer_later(ApiKey.FETCH_SNAPSHOT, quorum.handle)
    dispatcher.answer_later(ApiKey.VOTE, quorum.handle)
    dispatcher.answer_later(ApiKey.BEGIN_QUORUM_EPOCH, quorum.handle)
    dispatcher.answer_later(ApiKey.END_QUORUM_EPOCH, quorum.handle)
    dispatcher.answer_caller(ApiKey.ENVELOPE, parts.forwarding.handle_envelope)
    dispatcher.answer_later(ApiKey.BROKER_REGISTRATION, controller.handle_broker_registration)
    dispatcher.answer_later(ApiKey.BROKER_HEARTBEAT, controller.handle_broker_heartbeat, observe=parts.watch.heard)
    dispatcher.answer_later(ApiKey.ALTER_PARTITION, controller.handle_alter_partition)
    dispatcher.answer_later(ApiKey.ALLOCATE_PRODUCER_IDS, controller.handle_allocate_producer_ids)


def add_broker_routes(dispatcher: Dispatcher, listener: str, parts: Parts) -> None:
    """The APIs of clients and of other brokers' replicas, at the listener of this name."""
    config, image, replicas = parts.config, parts.image, parts.replicas
    create = parts.forwarding.to_controller(ApiKey.CREATE_TOPICS, parts.controller.handle_create_topics)
    metadata = MetadataHandler(
        image,
        listener,
        parts.settled,
        parts.caught_up,
        lambda: parts.quorum.leader_id,
        dispatcher.turns,
        config.node_id,
        create if config.auto_create_topics_enable else None,
    )
    offsets, logs = OffsetsHandler(replicas, dispatcher.turns), LogHandler(replicas, config.log_dir)
    between_brokers = listener == config.inter_broker_listener.name
    produce = ProduceHandler(replicas, config.message_max_bytes, dispatcher, between_brokers=between_brokers)
    dispatcher.serve(ApiKey.PRODUCE, produce.serve)
    dispatcher.serve(ApiKey.FETCH, FetchHandler(dispatcher, replicas, image).serve)
    dispatcher.answer_in_turns(ApiKey.LIST_OFFSETS, offsets.list_offsets)
    dispatcher.answer_in_turns(ApiKey.OFFSET_FOR_LEADER_EPOCH, offsets.offset_for_leader_epoch)
    dispatcher.answer_caller(ApiKey.METADATA, metadata.metadata)
    dispatcher.answer_now(ApiKey.DESCRIBE_CLUSTER, metadata.describe_cluster)
    dispatcher.answer_later(ApiKey.DELETE_RECORDS, logs.delete_records)
    dispatcher.answer_now(ApiKey.DESCRIBE_LOG_DIRS, logs.describe_log_dirs)
    configs = ConfigsHandler(config, image)
    dispatcher.answer_in_turns(ApiKey.DESCRIBE_CONFIGS, configs.describe)
    dispatcher.answer_now(ApiKey.LIST_CONFIG_RESOURCES, configs.list_resources)
    dispatcher.answer_later(ApiKey.INIT_PRODUCER_ID, parts.producer_ids.init_producer_id)
    _add_first_routes(dispatcher)
    dispatcher.answer_later(ApiKey.GET_REPLICA_LOG_INFO, ReplicaLogsHandler(replicas).get)
    dispatcher.answer_caller(ApiKey.CREATE_TOPICS, create)
    access = AccessHandler(image, enforced=bool(config.authorizer_class_name))
    dispatcher.answer_now(ApiKey.DESCRIBE_ACLS, access.describe_acls)
    dispatcher.answer_now(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, access.describe_scram_credentials)
    dispatcher.answer_now(ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas)
    _add_forwarded_routes(dispatcher, parts)
    _add_group_routes(dispatcher, GroupsHandler(dispatcher, parts.groups, listener))


def _add_forwarded_routes(dispatcher: Dispatcher, parts: Parts) -> None:
    """The APIs that any broker accepts and the controller answers."""
    controller = parts.controller

    def add(key: ApiKey, handler: Later[Q]) -> None:
        dispatcher.answer_caller(key, parts.forwarding.to_controller(key, handler))

    add(ApiKey.DELETE_TOPICS, controller.handle_delete_topics)
    add(ApiKey.ELECT_LEADERS, controller.handle_elect_leaders)
    add(ApiKey.CREATE_PARTITIONS, controller.handle_create_partitions)
    add(ApiKey.ALTER_CONFIGS, controller.handle_alter_configs)
    add(ApiKey.INCREMENTAL_ALTER_CONFIGS, controller.handle_alter_configs)
    add(ApiKey.ALTER_PARTITION_REASSIGNMENTS, controller.handle_alter_reassignments)
    add(ApiKey.LIST_PARTITION_REASSIGNMENTS, controller.handle_list_reassignments)
    add(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, controller.handle_alter_scram_credentials)
    if parts.config.authorizer_class_name:
        add(ApiKey.CREATE_ACLS, controller.handle_create_acls)
        add(ApiKey.DELETE_ACLS, controller.handle_delete_acls)
    else:
        dispatcher.answer_now(ApiKey.CREATE_ACLS, refuse_without_authorizer)
        dispatcher.answer_now(ApiKey.DELETE_ACLS, refuse_without_authorizer)
    add(ApiKey.DESCRIBE_QUORUM, QuorumHandler(parts.quorum).handle_describe)


def _add_group_routes(dispatcher: Dispatcher, groups: GroupsHandler) -> None:
    dispatcher.answer_in_turns(ApiKey.FIND_COORDINATOR, groups.find_coordinator)
    dispatcher.serve(ApiKey.JOIN_GROUP, groups.join)
    dispatcher.answer_later(ApiKey.SYNC_GROUP, groups.sync)
    dispatcher.answer_later(ApiKey.HEARTBEAT, groups.heartbeat)
    dispatcher.answer_later(ApiKey.LEAVE_GROUP, groups.leave)
    dispatcher.answer_later(ApiKey.OFFSET_COMMIT, groups.commit)
    dispatcher.answer_in_turns(ApiKey.OFFSET_FETCH, groups.fetch)
    dispatcher.answer_later(ApiKey.OFFSET_DELETE, groups.delete_offsets)
    dispatcher.answer_in_turns(ApiKey.DESCRIBE_GROUPS, groups.describe)
    dispatcher.answer_now(ApiKey.LIST_GROUPS, groups.listed)
    dispatcher.answer_now(ApiKey.CONSUMER_GROUP_HEARTBEAT, _no_consumer_protocol)
    dispatcher.answer_later(ApiKey.DELETE_GROUPS, groups.delete)


def _add_first_routes(dispatcher: Dispatcher) -> None:
    """The APIs that start a connection at every listener. Authentication here is refused: it is not required, or has
    already taken place."""
    dispatcher.answer_now(ApiKey.API_VERSIONS, _api_versions)
    dispatcher.answer_now(ApiKey.SASL_HANDSHAKE, _no_handshake)
    dispatcher.answer_now(ApiKey.SASL_AUTHENTICATE, _no_authentication)


def _no_consumer_protocol(
    request: ConsumerGroupHeartbeatRequest,  # noqa: ARG001
    version: int,  # noqa: ARG001
) -> ConsumerGroupHeartbeatResponse:
    """As Apache Kafka without the feature group.version. librdkafka asks for ever if the API is not served."""
    reason = "this broker has no consumer groups of KIP-848; set group.protocol=classic"
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=reason)


def _no_handshake(request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:  # noqa: ARG001
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


def _no_authentication(request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:  # noqa: ARG001
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "this connection needs no (further) authentication")


def _api_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:  # noqa: ARG001
    return ApiVersionsResponse(api_keys=advertised_api_keys())
