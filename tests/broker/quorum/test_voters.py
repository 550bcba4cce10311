"""The voters of the quorum: stories of voters, their disks, and new disks (KIP-853, H22)."""

import asyncio
import re
from pathlib import Path

import pytest

from broker.errors import ErrorCode, StartupError
from broker.protocol.uuids import id_text
from broker.quorum.effects import AppendVoters
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import BeginRequest, VoteRequest
from broker.quorum.roles import Follower, Leader, Prospective, Unattached, Voted
from broker.quorum.voters import VoterHistory, VoterSet
from simulator.cluster import SimulatedCluster
from tests.broker.quorum.live import LiveCluster, Seat
from tests.broker.quorum.story import Story, disk_of
from tests.broker.quorum.test_runner import described
from tests.simulator.stories import in_cluster
from tests.stories import run_by

pytestmark = pytest.mark.conforms("H22")
STORIES = run_by(asyncio.run)
NEW = b"this disk is new"


def named(story: Story) -> list[tuple[int, ...]]:
    """The voters of each record that names them, in the order of the log."""
    return [effect.voters.ids for effect in story.done(AppendVoters) if isinstance(effect, AppendVoters)]


def leading(**options: object) -> tuple[Story, int]:
    """A leader with followers 2 and 3 that are complete and have fetched to the end."""
    story = Story(**options)  # type: ignore[arg-type]
    epoch = story.become_leader()
    follow(story, epoch, 2, 3)
    return story, epoch


def follow(story: Story, epoch: int, *replicas: int) -> None:
    """Replicas fetch from the end of the leader's log."""
    for replica in replicas:
        story.fetch(replica, epoch, story.log.log_end_offset, story.log.last_epoch)


# --- a new cluster


def test_a_new_quorum_commits_after_every_voter_has_the_directory_record() -> None:
    story = Story(keyed=False)
    epoch = story.become_leader()
    story.fetch(2, epoch, 0, -1)
    story.fetch(2, epoch, 1, epoch)
    assert named(story) == []  # where voter 3 keeps its log is not known
    assert story.node.high_watermark == 0
    story.fetch(3, epoch, 0, -1)
    assert [effect.voters for effect in story.done(AppendVoters) if isinstance(effect, AppendVoters)] == [
        VoterSet(((1, disk_of(1)), (2, disk_of(2)), (3, disk_of(3))))
    ]
    story.fetch(2, epoch, 2, epoch)
    assert story.node.high_watermark == 0  # a majority has it; one that is wiped now could still vote as if nothing was
    story.fetch(3, epoch, 2, epoch)
    assert story.node.high_watermark == 2
    assert story.is_a(Leader).high_watermark == 2


def test_from_then_on_a_majority_is_enough() -> None:
    story = Story(keyed=False)
    epoch = story.become_leader()
    for offset in (0, 2):
        for replica in (2, 3):
            story.fetch(replica, epoch, offset, epoch if offset else -1)
    story.append(7)
    follow(story, epoch, 2)
    assert story.node.high_watermark == story.log.log_end_offset == 3


def test_a_lone_voter_names_its_disk_at_once() -> None:
    story = Story(voters=[1], keyed=False)
    story.wait(0)
    assert named(story) == [(1,)]
    assert story.node.high_watermark == story.log.log_end_offset == 2


def test_a_disk_replaced_before_its_registration_starts_empty() -> None:
    story = Story(keyed=False)
    epoch = story.become_leader()
    story.fetch(2, epoch, 1, epoch)
    story.fetch(2, epoch, 0, -1, disk=NEW)
    story.fetch(3, epoch, 1, epoch)
    assert story.history.current.directory_of(2) == NEW
    follow(story, epoch, 3)
    assert story.node.high_watermark == 0
    story.fetch(2, epoch, 2, epoch, disk=NEW)
    assert story.node.high_watermark == 2


# --- a voter whose disk is new


def test_only_the_addressed_disk_grants_a_vote() -> None:
    story = Story()
    answer = story.vote_request(2, 7, disk=NEW)
    assert (answer.error, answer.granted, answer.epoch) == (ErrorCode.INVALID_VOTER_KEY, False, 0)
    assert story.disk.election == ElectionState(voters=(1, 2, 3))
    assert story.begin(2, 7, disk=NEW).error is ErrorCode.INVALID_VOTER_KEY
    story.is_a(Unattached, 0)
    assert story.vote_request(2, 7, disk=disk_of(1)).granted
    assert story.begin(2, 7, disk=disk_of(1)).error is ErrorCode.NONE


def test_candidates_and_leaders_name_the_disk_that_they_mean() -> None:
    story = Story()
    story.become_candidate()
    assert {(to, request.voter_directory) for to, request in story.sent(VoteRequest) if not request.pre_vote} == {
        (2, disk_of(2)),
        (3, disk_of(3)),
    }
    story.vote(2)
    assert {(to, request.voter_directory) for to, request in story.sent(BeginRequest)} == {
        (2, disk_of(2)),
        (3, disk_of(3)),
    }


def test_fetches_of_a_new_disk_do_not_commit_and_do_not_keep_a_leader() -> None:
    story, epoch = leading()
    story.append(7)
    before = story.node.high_watermark
    story.fetch(2, epoch, story.log.log_end_offset, epoch, disk=NEW)
    assert story.node.high_watermark == before
    for _ in range(4):
        story.wait(0.5)
        story.fetch(2, epoch, story.log.log_end_offset, epoch, disk=NEW)
    assert not isinstance(story.role, Leader)


def test_a_new_disk_takes_the_place_of_the_old_one_in_two_steps() -> None:
    story, epoch = leading()

    def fetches_for(seconds: float) -> None:
        for _ in range(round(seconds / 0.2)):
            story.wait(0.2)
            follow(story, epoch, 3)
            story.fetch(2, epoch, story.log.log_end_offset, epoch, disk=NEW)

    fetches_for(1.4)
    assert named(story) == []  # voter 2 may be slow
    fetches_for(0.4)
    assert named(story)[:1] == [(1, 3)]
    fetches_for(0.6)
    assert named(story) == [(1, 3), (1, 2, 3)]
    assert story.history.current.directory_of(2) == NEW
    fetches_for(2.0)
    assert named(story) == [(1, 3), (1, 2, 3)]
    # The new disk counts from here on, the old one does not.
    story.append(7)
    story.fetch(2, epoch, story.log.log_end_offset, epoch, disk=NEW)
    assert story.node.high_watermark == story.log.log_end_offset
    story.append(8)
    before = story.node.high_watermark
    story.fetch(2, epoch, story.log.log_end_offset, epoch)
    assert story.node.high_watermark == before


def test_one_change_is_committed_before_the_next() -> None:
    story, epoch = leading()
    for _ in range(9):  # voter 3 is away, so that nothing can be committed without the old disk of voter 2
        story.wait(0.15)
        story.fetch(2, epoch, story.log.log_end_offset, epoch)
    for _ in range(12):
        story.wait(0.15)
        follow(story, epoch, 3)
        story.fetch(2, epoch, story.log.log_end_offset, epoch, disk=NEW)
        if named(story):
            break
    assert named(story) == [(1, 3)]
    end = story.log.log_end_offset
    for _ in range(8):  # the change is in the log, and voter 3, which is needed for a majority, never gets it
        story.wait(0.15)
        story.fetch(3, epoch, end - 1, epoch)
        story.fetch(2, epoch, end, epoch, disk=NEW)
    assert named(story) == [(1, 3)]
    assert story.log.log_end_offset == end
    assert story.node.high_watermark < end


def test_a_lagging_new_disk_does_not_become_a_voter() -> None:
    story, epoch = leading()
    for _ in range(20):
        story.wait(0.2)
        follow(story, epoch, 3)
        story.fetch(2, epoch, 0, -1, disk=NEW)
    assert named(story) == []


def test_a_leader_without_a_commit_in_its_epoch_changes_no_voters() -> None:
    story = Story()
    epoch = story.become_leader()
    for _ in range(10):
        story.wait(0.2)
        story.fetch(3, epoch, 0, -1)  # it lives, and gets on with nothing
        story.fetch(2, epoch, story.log.log_end_offset, epoch, disk=NEW)
    assert story.is_a(Leader, epoch).high_watermark is None
    assert named(story) == []


def test_an_unknown_id_never_becomes_a_voter() -> None:
    story, epoch = leading()
    for _ in range(10):
        story.wait(0.2)
        follow(story, epoch, 2, 3, 4)
    assert named(story) == []


# --- what a node's own log says


def told_of(story: Story, voters: VoterSet) -> None:
    """The leader's log names other voters, and this node has fetched that."""
    story.history.appended(story.log.log_end_offset, voters)
    story.fetched([story.role.epoch])


def test_a_node_with_a_disk_without_a_vote_never_starts_an_election() -> None:
    story = Story(disk=NEW, keyed=False)
    story.follow(2, epoch=3)
    told_of(story, VoterSet(((1, disk_of(1)), (2, disk_of(2)), (3, disk_of(3)))))
    story.wait(20)
    assert story.sent(VoteRequest) == []
    assert story.is_a(Follower, 3).fetch_deadline is None


def test_a_new_voter_starts_an_election_without_a_leader() -> None:
    story = Story(disk=NEW)
    assert story.vote_request(2, 3).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert story.begin(2, 3, disk=NEW).error is ErrorCode.NONE
    story.wait(5)
    story.is_a(Follower, 3)
    told_of(story, VoterSet(((1, NEW), (2, disk_of(2)), (3, disk_of(3)))))
    story.wait(0.9)
    story.is_a(Follower, 3)
    story.wait(0.5)
    story.is_a(Prospective, 3)


def test_an_uninformed_voter_grants_one_vote_and_never_starts_an_election() -> None:
    story = Story(disk=NEW)
    assert story.vote_request(2, 3, disk=NEW).granted
    assert story.disk.election.voted_id == 2
    story.wait(20)
    story.is_a(Voted, 3)
    assert not story.vote_request(3, 3, disk=NEW).granted
    story.lose_power()
    story.wait(20)
    story.is_a(Voted, 3)
    assert not story.vote_request(3, 3, disk=NEW).granted


def test_a_change_that_is_truncated_is_undone() -> None:
    history = VoterHistory((1, 2))
    assert history.current == VoterSet.of_ids((1, 2))
    assert not history.current.keyed
    first, second = VoterSet(((1, NEW), (2, NEW))), VoterSet(((1, NEW),))
    history.appended(5, first)
    history.appended(9, second)
    assert (history.current, history.offset, history.first_offset) == (second, 9, 5)
    assert history.as_of(9) == first
    assert history.as_of(5) is None
    history.truncated(9)
    assert history.current == first
    history.begins_at(30, second)
    assert (history.current, history.offset) == (second, 29)


@pytest.mark.kills("voter_key_ignored")
@pytest.mark.parametrize("mutants", [(), ("voter_key_ignored",)])
def test_only_the_mutant_gives_a_vote_of_another_disk(mutants: tuple[str, ...]) -> None:
    story = Story(mutants=mutants)
    assert story.vote_request(2, 7, disk=NEW).granted is bool(mutants)


def test_an_observer_without_peers_has_no_deadline() -> None:
    story = Story(voters=(1,), disk=NEW, log=[1])
    story.is_a(Unattached)
    assert story.node.deadline() is None


# --- in the running


async def replaced(cluster: LiveCluster) -> tuple[int, int]:
    """A cluster with a record on all nodes. A follower then gets an empty disk. Returns (leader, that follower)."""
    await cluster.start()
    leader = await cluster.leader()
    await cluster.quorum(leader).append([b"a"])
    await cluster.until_each(lambda seat: seat.values == [b"a"])
    wiped = next(node for node in cluster.seats if node != leader)
    await cluster.replace_disk(wiped)
    return leader, wiped


async def test_a_voter_with_a_replaced_disk_votes_again_automatically(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 3)
    leader, wiped = await replaced(cluster)
    await cluster.start(wiped)
    await cluster.until(lambda: cluster.quorum(leader)._history.current.directory_of(wiped)[1] == 2)
    await cluster.until_each(lambda seat: seat.quorum and seat.quorum.voter_ids == (1, 2, 3))
    voters = {each.replica_id: each.replica_directory_id for each in (await described(cluster, leader)).current_voters}
    assert voters == {node: seat.directory_id for node, seat in cluster.seats.items()}
    other = next(node for node in cluster.seats if node not in (leader, wiped))
    await cluster.stop(other)  # now it is needed
    await cluster.quorum(leader).append([b"b"])
    await cluster.stop()
    # What the log says of the voters is read again after a restart.
    await cluster.start(leader, wiped)
    await cluster.quorum(await cluster.leader()).append([b"c"])
    await cluster.until(lambda: cluster.seats[wiped].values == [b"a", b"b", b"c"])
    await cluster.stop()


@in_cluster(1, 5, properties={"quorum.fetch.timeout.ms": "10000"})
async def test_a_deposed_leader_drops_its_uncommitted_voters(cluster: SimulatedCluster, /) -> None:
    """It was isolated with a voter with a replaced disk, removed that voter's vote, and could not commit it."""
    cluster.start()
    await cluster.ready()
    former = str(cluster.controller())
    wiped, *others = (name for name in cluster.machines if name != former)
    voters = cluster.node(former).quorum.voter_ids
    cluster.kill(wiped)
    await asyncio.sleep(12)  # its vote is taken away once nothing was heard of it for 15 s
    cluster.machines[wiped].disk.replace([])
    cluster.partition([former, wiped], others)
    cluster.start(wiped)
    await cluster.until(lambda: cluster.node(former).quorum.voter_ids != voters)
    assert cluster.machines[wiped].node_id not in cluster.node(former).quorum.voter_ids
    cluster.kill(wiped)
    await cluster.until(lambda: cluster.controller() in others, 60)
    cluster.heal()
    leading = cluster.node(str(cluster.controller())).quorum
    await cluster.until(lambda: cluster.node(former).quorum.log_end == leading.log_end)
    assert cluster.node(former).quorum.voter_ids == voters


async def test_an_empty_disk_elects_no_incomplete_leader(tmp_path: Path) -> None:
    """One voter lags behind, one has an empty disk, and the complete third voter is stopped: no leader."""
    cluster = LiveCluster(tmp_path, 3)
    await cluster.start()
    leader = await cluster.leader()
    lagging, wiped = (node for node in cluster.seats if node != leader)
    await cluster.stop(lagging)
    await cluster.quorum(leader).append([b"committed"])
    await cluster.replace_disk(wiped)
    await cluster.stop(leader)
    await cluster.start(lagging, wiped)

    def stood(seat: Seat) -> int:
        return sum(event["event"] == "quorum_role" and event["role"] == "prospective" for event in seat.events)

    await cluster.until(lambda: stood(cluster.seats[lagging]) > 3 and stood(cluster.seats[wiped]) > 3)
    assert all(seat.leadership == [] for seat in (cluster.seats[lagging], cluster.seats[wiped]))
    await cluster.start(leader)
    await cluster.leader()
    await cluster.until_each(lambda seat: seat.values == [b"committed"])
    await cluster.stop()


async def test_a_new_cluster_waits_for_all_its_voters(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 3)
    await cluster.start(1, 2)
    await cluster.until(lambda: any(cluster.quorum(node).is_leader for node in (1, 2)))
    assert [cluster.seats[node].leadership for node in (1, 2)] == [[], []]
    await cluster.until(lambda: (3,) in [cluster.quorum(node).waits_for for node in (1, 2)])
    await cluster.start(3)
    await cluster.quorum(await cluster.leader()).append([b"a"])
    await cluster.until_each(lambda seat: seat.values == [b"a"])
    assert all(cluster.quorum(node).waits_for == () for node in cluster.seats)
    await cluster.stop()


async def test_a_single_voter_on_another_disk_refuses_to_start_and_names_the_expected_disk(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 1)
    await cluster.start()
    await cluster.leader()
    await cluster.quorum(1).append([b"a"])
    await cluster.stop()
    seat = cluster.seats[1]
    known, seat.directory_id = seat.directory_id, NEW
    with pytest.raises(StartupError, match=f"directory.id={re.escape(id_text(known))} into it"):
        await cluster.start()
    seat.directory_id = known
    await cluster.start()
    await cluster.until(lambda: seat.values == [b"a"])
    await cluster.stop()
