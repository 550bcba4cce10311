"""The control records of the metadata log, which the quorum writes in addition to the controller's records."""

from typing import Annotated

import msgspec

from broker.protocol.schema import NO_ID, Int16, Int32, Message, String, UInt16, Uuid, v

LEADER_CHANGE_TYPE = 2
"""The type of LeaderChangeMessage as released by Apache Kafka; KIP-595 says 3, now another record's (H32, K595-21)."""
VOTERS_TYPE = 6
"""The control record type of VotersRecord (KIP-853)."""


class Voter(Message):
    voter_id: Int32 = 0
    voter_directory_id: Annotated[Uuid, v("1+")] = NO_ID


class LeaderChangeMessage(Message):
    """The control record that starts a leader's epoch; `granting_voters` is KIP-595's VotedIds."""

    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[Voter] = []
    granting_voters: list[Voter] = []


class VoterEndpoint(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class KRaftVersionFeature(Message):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class KeyedVoter(Message):
    """A voter of a VotersRecord."""

    voter_id: Int32 = 0
    voter_directory_id: Uuid = NO_ID
    endpoints: list[VoterEndpoint] = []
    kraft_version_feature: KRaftVersionFeature = msgspec.field(default_factory=KRaftVersionFeature)


class VotersRecord(Message):
    """The voters of the quorum and their disks (KIP-853)."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    version: Int16 = 0
    voters: list[KeyedVoter] = []


class ControlRecordKey(Message):
    """The key of a control record; `type` identifies its value."""

    VERSIONS = v("0")

    version: Int16 = 0
    type: Int16 = 0
