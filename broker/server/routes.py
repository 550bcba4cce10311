"""Which handler answers which API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.config import BrokerConfig
from broker.controller.active import ActiveController
from broker.controller.image import MetadataImage
from broker.protocol.api import ApiKey, advertised_api_keys
from broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.quorum.membership import Quorum
from broker.replica.manager import ReplicaManager
from broker.server.dispatch import Dispatcher
from broker.server.handlers.configs_handler import ConfigsHandler
from broker.server.handlers.fetch_handler import FetchHandler
from broker.server.handlers.metadata_handler import MetadataHandler
from broker.server.handlers.offsets_handler import OffsetsHandler
from broker.server.handlers.produce_handler import ProduceHandler
from broker.server.watch import DeathWatch


def add_routes(
    dispatcher: Dispatcher,
    *,
    config: BrokerConfig,
    image: Callable[[], MetadataImage],
    settled: asyncio.Event,
    caught_up: asyncio.Event,
    quorum: Quorum,
    controller: ActiveController,
    replicas: ReplicaManager,
    watch: DeathWatch,
) -> None:
    """Fill the table of a broker's dispatcher.

    `settled` is set while the replicas are where the image has them, `caught_up` once this broker has read the metadata
    log up to its own registration.
    """
    offsets = OffsetsHandler(replicas)
    metadata = MetadataHandler(config.cluster_id, image, settled, caught_up, lambda: quorum.leader_id)
    dispatcher.serve(ApiKey.PRODUCE, ProduceHandler(replicas, config.message_max_bytes).serve)
    dispatcher.serve(ApiKey.FETCH, FetchHandler(dispatcher, replicas, image, quorum.handle_fetch).serve)
    dispatcher.answer_now(ApiKey.LIST_OFFSETS, offsets.list_offsets)
    dispatcher.answer_now(ApiKey.OFFSET_FOR_LEADER_EPOCH, offsets.offset_for_leader_epoch)
    dispatcher.answer_later(ApiKey.METADATA, metadata.metadata)
    dispatcher.answer_now(ApiKey.DESCRIBE_CLUSTER, metadata.describe_cluster)
    dispatcher.answer_now(ApiKey.DESCRIBE_CONFIGS, ConfigsHandler(config, image).describe)
    dispatcher.answer_now(ApiKey.API_VERSIONS, _api_versions)

    dispatcher.answer_later(ApiKey.CREATE_TOPICS, controller.handle_create_topics)
    dispatcher.answer_later(ApiKey.DELETE_TOPICS, controller.handle_delete_topics)
    dispatcher.answer_later(ApiKey.BROKER_REGISTRATION, controller.handle_broker_registration)
    dispatcher.answer_later(ApiKey.BROKER_HEARTBEAT, controller.handle_broker_heartbeat, observe=watch.heard)
    dispatcher.answer_later(ApiKey.ALTER_PARTITION, controller.handle_alter_partition)

    dispatcher.answer_later(ApiKey.VOTE, quorum.handle_vote)
    dispatcher.answer_later(ApiKey.BEGIN_QUORUM_EPOCH, quorum.handle_begin)
    dispatcher.answer_later(ApiKey.END_QUORUM_EPOCH, quorum.handle_end)
    dispatcher.answer_later(ApiKey.DESCRIBE_QUORUM, quorum.handle_describe)


def _api_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:  # noqa: ARG001
    return ApiVersionsResponse(api_keys=advertised_api_keys())
