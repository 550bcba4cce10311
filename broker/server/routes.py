"""Which handler answers which API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.config import BrokerConfig
from broker.controller.active import ActiveController
from broker.controller.image import MetadataImage
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.protocol.api import ApiKey, advertised_api_keys
from broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.quorum.runner import QuorumRunner
from broker.replica.manager import ReplicaManager
from broker.server.dispatch import Dispatcher, Later, Q
from broker.server.forwarding import ControllerForwarding
from broker.server.handlers.configs_handler import ConfigsHandler
from broker.server.handlers.fetch_handler import FetchHandler
from broker.server.handlers.groups_handler import GroupsHandler
from broker.server.handlers.log_handler import LogHandler
from broker.server.handlers.metadata_handler import MetadataHandler
from broker.server.handlers.offsets_handler import OffsetsHandler
from broker.server.handlers.produce_handler import ProduceHandler
from broker.server.handlers.producer_ids_handler import ProducerIdsHandler
from broker.server.handlers.quorum_handler import QuorumHandler
from broker.server.handlers.replica_logs_handler import ReplicaLogsHandler
from broker.server.watch import DeathWatch


def add_routes(
    dispatcher: Dispatcher,
    *,
    config: BrokerConfig,
    image: Callable[[], MetadataImage],
    settled: asyncio.Event,
    caught_up: asyncio.Event,
    quorum: QuorumRunner,
    controller: ActiveController,
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    watch: DeathWatch,
    forwarding: ControllerForwarding,
    producer_ids: ProducerIdsHandler,
) -> None:
    """Fill the table of a broker's dispatcher.

    `settled` is set while the replicas are where the image has them, `caught_up` once this broker has read the metadata
    log up to its own registration.
    """
    offsets = OffsetsHandler(replicas)
    create = forwarding.to_controller(ApiKey.CREATE_TOPICS, controller.handle_create_topics)
    metadata = MetadataHandler(
        image,
        settled,
        caught_up,
        lambda: quorum.leader_id,
        dispatcher.turns,
        create if config.auto_create_topics_enable else None,
    )
    dispatcher.serve(ApiKey.PRODUCE, ProduceHandler(replicas, config.message_max_bytes, dispatcher.turns).serve)
    quorum_handler = QuorumHandler(quorum)
    dispatcher.serve(ApiKey.FETCH, FetchHandler(dispatcher, replicas, image, quorum_handler.handle_fetch).serve)
    dispatcher.answer_in_turns(ApiKey.LIST_OFFSETS, offsets.list_offsets)
    dispatcher.answer_in_turns(ApiKey.OFFSET_FOR_LEADER_EPOCH, offsets.offset_for_leader_epoch)
    dispatcher.answer_later(ApiKey.METADATA, metadata.metadata)
    dispatcher.answer_now(ApiKey.DESCRIBE_CLUSTER, metadata.describe_cluster)
    logs = LogHandler(replicas, config.log_dir)
    dispatcher.answer_later(ApiKey.DELETE_RECORDS, logs.delete_records)
    dispatcher.answer_now(ApiKey.DESCRIBE_LOG_DIRS, logs.describe_log_dirs)
    dispatcher.answer_in_turns(ApiKey.DESCRIBE_CONFIGS, ConfigsHandler(config, image).describe)
    dispatcher.answer_later(ApiKey.INIT_PRODUCER_ID, producer_ids.init_producer_id)
    dispatcher.answer_now(ApiKey.API_VERSIONS, _api_versions)

    _add_group_routes(dispatcher, GroupsHandler(dispatcher, groups))

    def controllers(key: ApiKey, handler: Later[Q]) -> None:
        dispatcher.answer_later(key, forwarding.to_controller(key, handler))

    dispatcher.answer_later(ApiKey.CREATE_TOPICS, create)
    controllers(ApiKey.DELETE_TOPICS, controller.handle_delete_topics)
    controllers(ApiKey.ELECT_LEADERS, controller.handle_elect_leaders)
    controllers(ApiKey.CREATE_PARTITIONS, controller.handle_create_partitions)
    controllers(ApiKey.ALTER_CONFIGS, controller.handle_alter_configs)
    controllers(ApiKey.INCREMENTAL_ALTER_CONFIGS, controller.handle_alter_configs)
    controllers(ApiKey.ALTER_PARTITION_REASSIGNMENTS, controller.handle_alter_reassignments)
    controllers(ApiKey.LIST_PARTITION_REASSIGNMENTS, controller.handle_list_reassignments)
    controllers(ApiKey.DESCRIBE_QUORUM, quorum_handler.handle_describe)
    dispatcher.answer_later(ApiKey.ENVELOPE, forwarding.handle_envelope)

    dispatcher.answer_later(ApiKey.GET_REPLICA_LOG_INFO, ReplicaLogsHandler(replicas).get)
    dispatcher.answer_later(ApiKey.BROKER_REGISTRATION, controller.handle_broker_registration)
    dispatcher.answer_later(ApiKey.BROKER_HEARTBEAT, controller.handle_broker_heartbeat, observe=watch.heard)
    dispatcher.answer_later(ApiKey.ALTER_PARTITION, controller.handle_alter_partition)
    dispatcher.answer_later(ApiKey.ALLOCATE_PRODUCER_IDS, controller.handle_allocate_producer_ids)

    dispatcher.answer_later(ApiKey.FETCH_SNAPSHOT, quorum_handler.handle_snapshot_fetch)
    dispatcher.answer_later(ApiKey.VOTE, quorum_handler.handle_vote)
    dispatcher.answer_later(ApiKey.BEGIN_QUORUM_EPOCH, quorum_handler.handle_begin)
    dispatcher.answer_later(ApiKey.END_QUORUM_EPOCH, quorum_handler.handle_end)


def _add_group_routes(dispatcher: Dispatcher, groups: GroupsHandler) -> None:
    dispatcher.answer_now(ApiKey.FIND_COORDINATOR, groups.find_coordinator)
    dispatcher.serve(ApiKey.JOIN_GROUP, groups.join)
    dispatcher.answer_later(ApiKey.SYNC_GROUP, groups.sync)
    dispatcher.answer_later(ApiKey.HEARTBEAT, groups.heartbeat)
    dispatcher.answer_later(ApiKey.LEAVE_GROUP, groups.leave)
    dispatcher.answer_later(ApiKey.OFFSET_COMMIT, groups.commit)
    dispatcher.answer_now(ApiKey.OFFSET_FETCH, groups.fetch)
    dispatcher.answer_later(ApiKey.OFFSET_DELETE, groups.delete_offsets)
    dispatcher.answer_now(ApiKey.DESCRIBE_GROUPS, groups.describe)
    dispatcher.answer_now(ApiKey.LIST_GROUPS, groups.listed)
    dispatcher.answer_later(ApiKey.DELETE_GROUPS, groups.delete)


def _api_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:  # noqa: ARG001
    return ApiVersionsResponse(api_keys=advertised_api_keys())
