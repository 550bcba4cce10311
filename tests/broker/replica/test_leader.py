"""The state of a leader: followers, the in-sync set, and the high watermark."""

import pytest

from broker.replica.leader import IsrProposal, PartitionLeader

LAG = 10.0


def leader(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    end: int = 10,
    start: int | None = None,
    high_watermark: int = 0,
    min_insync: int = 1,
    log_start: int = 0,
) -> PartitionLeader:
    return PartitionLeader(
        node_id=1,
        replicas=replicas,
        isr=isr,
        leader_epoch=5,
        partition_epoch=20,
        epoch_start_offset=end if start is None else start,
        log_start_offset=log_start,
        committable_end=end,
        high_watermark=high_watermark,
        min_insync_replicas=min_insync,
        lag_time_max=LAG,
        now=0.0,
    )


def fetch(
    at: PartitionLeader,
    replica: int,
    offset: int,
    *,
    end: int = 10,
    now: float = 0.0,
    epoch: int = 70,
    log_start: int = 0,
) -> bool:
    return at.follower_fetched(
        replica, broker_epoch=epoch, fetch_offset=offset, log_start_offset=log_start, leader_end=end, now=now
    )


def test_the_high_watermark_is_the_smallest_log_end_of_the_isr() -> None:
    it = leader()
    assert not fetch(it, 2, 7)
    assert fetch(it, 3, 9)
    assert it.high_watermark == 7
    assert fetch(it, 2, 10)
    assert it.high_watermark == 9


def test_a_replica_outside_the_isr_does_not_delay_commits() -> None:
    it = leader(isr=(1, 2))
    assert fetch(it, 2, 8)
    assert it.high_watermark == 8


def test_a_lone_leader_commits_its_whole_log() -> None:
    it = leader(isr=(1,))
    assert it.high_watermark == 10
    assert it.log_grew(12)
    assert it.high_watermark == 12


def test_the_leaders_own_records_count_only_once_they_are_committable() -> None:
    it = leader(isr=(1, 2), end=5)
    fetch(it, 2, 9, end=9)
    assert it.high_watermark == 5
    assert it.log_grew(8)
    assert it.high_watermark == 8


def test_the_high_watermark_never_falls() -> None:
    it = leader(isr=(1, 2))
    fetch(it, 2, 9)
    assert not fetch(it, 2, 4, epoch=71)
    assert it.high_watermark == 9


@pytest.mark.conforms("H5", "H13")
def test_a_member_that_has_not_fetched_in_this_epoch_holds_the_high_watermark() -> None:
    it = leader(high_watermark=4)
    fetch(it, 2, 10)
    assert it.high_watermark == 4


@pytest.mark.conforms("H16")
def test_no_record_is_committed_below_min_insync_replicas() -> None:
    it = leader(isr=(1,), min_insync=2, high_watermark=3)
    assert not it.enough_in_sync
    assert not it.log_grew(11)
    assert it.high_watermark == 3


@pytest.mark.conforms("H16")
def test_commits_resume_once_the_isr_is_large_enough_again() -> None:
    it = leader(isr=(1,), min_insync=2, high_watermark=3)
    fetch(it, 2, 10)
    assert it.propose_expansion(2, 60) is not None
    assert it.high_watermark == 3  # the controller has not agreed yet
    it.isr_committed((1, 2), 21, now=1.0)
    assert it.high_watermark == 10


def test_a_topic_with_fewer_replicas_than_min_insync_can_be_written() -> None:
    assert leader(isr=(1,), replicas=(1,), min_insync=2).enough_in_sync


@pytest.mark.conforms("H5")
def test_a_replica_that_is_added_in_the_epoch_is_unknown_until_it_fetches() -> None:
    it = leader(isr=(1, 2), replicas=(1, 2))
    fetch(it, 2, 10)
    it.set_replicas((2, 1, 3))
    assert it.follower(2).log_end_offset == 10, "what is known of the others stays"
    assert not it.may_join(3)
    fetch(it, 3, 10)
    assert it.may_join(3)
    assert it.high_watermark == 10


def test_more_replicas_may_require_more_in_sync() -> None:
    it = leader(isr=(1,), replicas=(1,), min_insync=2)
    assert it.log_grew(11)
    it.set_replicas((1, 2))
    it.set_min_insync_replicas(2)
    assert not it.enough_in_sync
    assert not it.log_grew(12), "as the controller counts"


def test_a_follower_joins_with_every_record_below_the_high_watermark() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 2, 8)
    fetch(it, 3, 7)
    assert it.propose_expansion(3, 60) is None
    fetch(it, 3, 8)
    assert it.propose_expansion(3, 60) is not None


@pytest.mark.conforms("H5")
def test_a_follower_joins_with_every_record_before_the_epoch_of_a_new_leader() -> None:
    it = leader(isr=(1, 2), start=6, high_watermark=2)
    fetch(it, 3, 5)
    assert it.propose_expansion(3, 60) is None
    fetch(it, 3, 6)
    assert it.propose_expansion(3, 60) is not None


@pytest.mark.conforms("H13")
def test_a_joining_replica_holds_the_high_watermark_from_the_moment_it_is_proposed() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 2, 8)
    fetch(it, 3, 8)
    it.propose_expansion(3, 60)
    assert it.maximal_isr == {1, 2, 3}
    fetch(it, 2, 10)
    assert it.high_watermark == 8


@pytest.mark.conforms("H13")
def test_a_leaving_replica_holds_the_high_watermark_until_the_controller_agrees() -> None:
    it = leader(isr=(1, 2))
    fetch(it, 2, 4)
    assert it.propose_shrink(10, LAG + 1, 60) == IsrProposal((1,), (60,), 5, 20)
    assert it.maximal_isr == {1, 2}
    it.log_grew(12)
    assert it.high_watermark == 4
    assert it.isr_committed((1,), 21, now=LAG + 1)
    assert it.high_watermark == 12


def test_one_proposal_is_in_flight_at_a_time() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 3, 10)
    assert it.propose_expansion(3, 60) is not None
    assert it.propose_shrink(10, LAG + 1, 60) is None


def test_a_refused_proposal_is_discarded() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 2, 8)
    fetch(it, 3, 8)
    proposal = it.propose_expansion(3, 60)
    assert proposal is not None
    fetch(it, 2, 10)
    it.proposal_refused(proposal)
    assert it.high_watermark == 10


@pytest.mark.conforms("H13")
def test_an_older_partition_epoch_is_ignored() -> None:
    it = leader(isr=(1, 2))
    assert not it.isr_committed((1,), 20, now=0.0)
    assert it.isr == (1, 2)


def test_newer_metadata_settles_a_pending_proposal() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 3, 10)
    it.propose_expansion(3, 60)
    assert it.isr_committed((1,), 21, now=0.0)
    assert it.pending is None
    assert it.maximal_isr == {1}


@pytest.mark.conforms("H15")
def test_a_proposal_names_the_broker_epochs_of_counted_fetches() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 3, 10, epoch=73)
    assert it.propose_expansion(3, 60) == IsrProposal((1, 2, 3), (60, -1, 73), 5, 20)


@pytest.mark.conforms("H15")
def test_a_late_fetch_of_an_older_incarnation_does_not_count() -> None:
    it = leader(isr=(1, 2), start=0)
    fetch(it, 2, 3, epoch=71)
    assert not fetch(it, 2, 9, epoch=70)
    assert it.follower(2).log_end_offset == 3
    assert it.high_watermark == 3


def test_a_member_that_stops_fetching_lags_after_the_lag_time() -> None:
    it = leader(isr=(1, 2, 3))
    fetch(it, 2, 10, now=1.0)
    fetch(it, 3, 4, now=1.0)
    assert it.lagging(10, now=LAG) == ()
    assert it.lagging(10, now=LAG + 0.1) == (3,)
    assert it.lagging(12, now=LAG + 1.1) == (2, 3)


def test_a_member_with_the_whole_log_does_not_lag_however_long_it_is_silent() -> None:
    it = leader(isr=(1, 2))
    fetch(it, 2, 10)
    assert it.lagging(10, now=100 * LAG) == ()


def test_a_member_that_keeps_reaching_the_end_of_its_last_fetch_keeps_up() -> None:
    it = leader(isr=(1, 2))
    end = 10
    for tick in range(30):
        fetch(it, 2, end - 10, end=end, now=float(tick))
        end += 10
    assert it.lagging(end, now=30.0) == ()


def test_a_member_that_never_fetched_in_this_epoch_has_one_lag_time() -> None:
    it = leader(isr=(1, 2))
    assert it.lagging(10, now=LAG) == ()
    assert it.lagging(10, now=LAG + 0.1) == (2,)


def test_the_high_watermark_is_known_once_it_reaches_the_epochs_start() -> None:
    it = leader(isr=(1, 2), start=6, end=8, high_watermark=2)
    assert not it.high_watermark_is_known
    fetch(it, 2, 6)
    assert it.high_watermark_is_known


@pytest.mark.conforms("K107-1")
def test_the_low_watermark_is_the_lowest_start_of_the_replicas_that_count() -> None:
    it = leader(isr=(1, 2), log_start=5)
    assert it.low_watermark(()) == -1, "replica 2 has not fetched in this epoch"
    fetch(it, 2, 10, log_start=3)
    assert it.low_watermark(()) == 3
    assert it.low_watermark((1, 2, 3)) == -1, "replica 3 is live"
    fetch(it, 2, 10, log_start=8)
    assert it.low_watermark(()) == 8
    fetch(it, 3, 10, log_start=5)
    assert it.propose_expansion(3, 70) is not None
    assert it.low_watermark(()) == 5, "a proposed member may lead next"


@pytest.mark.conforms("K107-2")
def test_a_follower_joins_when_its_log_starts_where_the_leaders_does() -> None:
    it = leader(isr=(1,), log_start=5)
    fetch(it, 2, 10, log_start=4)
    assert not it.may_join(2)
    fetch(it, 2, 10, log_start=5)
    assert it.may_join(2)
    it.log_start_offset = 6
    assert not it.may_join(2)
