"""The answers to requests that are refused as a whole, in the form of each API."""

from broker.controller.access import credentials_refused
from broker.controller.leader_elections import elections_refused
from broker.controller.topics import deletion_refused, topic_refused, topics_to_delete
from broker.errors import ProtocolError
from broker.protocol.messages.acl_apis import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.protocol.messages.config_apis import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.credential_apis import AlterUserScramCredentialsRequest
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker.protocol.messages.quorum_apis import DescribeQuorumRequest, DescribeQuorumResponse
from broker.protocol.messages.topic_apis import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker.protocol.schema import Message


def refused(request: Message, error: ProtocolError) -> Message:
    """The answer that reports `error` for everything that a client's request to the controller asks for."""
    match request:
        case CreateTopicsRequest():
            return CreateTopicsResponse(topics=[topic_refused(topic.name, error) for topic in request.topics])
        case DeleteTopicsRequest():
            return DeleteTopicsResponse(
                responses=[deletion_refused(state, error) for state in topics_to_delete(request)]
            )
        case DescribeQuorumRequest():
            return DescribeQuorumResponse(error_code=error.code, error_message=str(error))
        case ElectLeadersRequest():
            return elections_refused(request, error)
        case CreatePartitionsRequest():
            results = [CreatePartitionsTopicResult(topic.name, error.code, str(error)) for topic in request.topics]
            return CreatePartitionsResponse(results=results)
        case IncrementalAlterConfigsRequest():
            return IncrementalAlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(error.code, str(error), resource.resource_type, resource.resource_name)
                    for resource in request.resources
                ]
            )
        case AlterConfigsRequest():
            return AlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(error.code, str(error), resource.resource_type, resource.resource_name)
                    for resource in request.resources
                ]
            )
        case AlterPartitionReassignmentsRequest():
            return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
        case ListPartitionReassignmentsRequest():
            return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
        case CreateAclsRequest():
            return CreateAclsResponse(results=[AclCreationResult(error.code, str(error)) for _ in request.creations])
        case DeleteAclsRequest():
            filter_results = [DeleteAclsFilterResult(error.code, str(error)) for _ in request.filters]
            return DeleteAclsResponse(filter_results=filter_results)
        case AlterUserScramCredentialsRequest():
            return credentials_refused(request, error)
    raise TypeError(f"{type(request).__name__} is not a request to the controller")
