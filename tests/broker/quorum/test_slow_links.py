"""A voter on a slow link, in virtual time: answers come one behind the other, each after a good part of the fetch
timeout."""

import heapq
from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from broker.errors import ErrorCode
from broker.quorum.messages import FetchRequest, FetchResponse, Request, Response, VoteRequest, VoteResponse
from tests.broker.quorum.memory import pack
from tests.broker.quorum.story import Story

pytestmark = pytest.mark.conforms("K595-12", "H20")
LEADER = 2
EPOCH = 3
RECORDS = 6
"""In each answer to a fetch."""
STEP_S = 0.005
ROUND_TRIP_S = 0.02
TIMEOUT_S = 1.0


class SlowLink:
    """Between a follower and its leader, who lives all the time. `takes`: the seconds of each answer in turn, which is
    late behind the one before; nothing else is slow, but perhaps the leader's answers to votes (`votes_take`)."""

    def __init__(self, takes: Iterator[float], *, voters: int = 3, votes_take: float = ROUND_TRIP_S) -> None:
        self.story = Story(voters=range(1, voters + 1), log=[1, 1, 1])
        self.story.follow(LEADER, epoch=EPOCH)
        self._takes = takes
        self._votes_take = votes_take
        self._free_at = self.story.now
        self._number = count()
        self._coming: list[tuple[float, int, int, Request, Response]] = []

    def fetched_in(self, seconds: float) -> int:
        """Continue for this time. Returns the number of records that were fetched meanwhile."""
        story = self.story
        before, end = story.log.log_end_offset, story.now + seconds
        while story.now < end:
            for to, request in story.requests:
                at, response = self._answer(to, request)
                heapq.heappush(self._coming, (at, next(self._number), to, request, response))
            story.requests.clear()
            story.wait(STEP_S)
            while self._coming and self._coming[0][0] <= story.now:
                _, _, to, request, response = heapq.heappop(self._coming)
                story._do(story.node.answered(story.now, to, request, response))
        return story.log.log_end_offset - before

    def _answer(self, to: int, request: Request) -> tuple[float, Response]:
        soon = self.story.now + ROUND_TRIP_S
        if isinstance(request, VoteRequest):
            at = self.story.now + self._votes_take if to == LEADER else soon
            return at, VoteResponse(ErrorCode.NONE, LEADER, EPOCH, False)
        assert isinstance(request, FetchRequest)
        if to != LEADER:
            return soon, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADER, EPOCH)
        self._free_at = max(self._free_at, self.story.now) + next(self._takes)
        base = request.fetch_from.offset
        records = pack([(EPOCH, base + number) for number in range(RECORDS)])
        return self._free_at, FetchResponse(ErrorCode.NONE, LEADER, EPOCH, base, None, records)


@pytest.mark.parametrize("late", [[], [1.5], [1.5] * 3, [8.0]], ids=["none", "one", "three", "one of many timeouts"])
def test_a_late_answer_does_not_keep_a_voter_on_a_slow_link_from_catching_up(late: list[float]) -> None:
    link = SlowLink(chain(late, repeat(TIMEOUT_S / 2)))
    link.fetched_in(20.0)
    assert link.fetched_in(10.0) > 10 * RECORDS
    assert link.story.role.epoch == EPOCH


@pytest.mark.parametrize("each", [1.1, 1.6, 5.0])
def test_answers_that_take_longer_than_the_fetch_timeout_are_waited_for(each: float) -> None:
    """A batch is never split: one that is large for its link takes as long as it takes."""
    link = SlowLink(repeat(each))
    link.fetched_in(2 * each)
    assert link.fetched_in(10 * each) >= 9 * RECORDS
    assert link.story.role.epoch == EPOCH


@pytest.mark.parametrize(("voters", "votes_take"), [(3, 0.4), (4, 0.05), (5, 0.05)])
def test_a_voter_catches_up_when_the_leader_answers_after_the_other_voters(voters: int, votes_take: float) -> None:
    """The other voters alone have decided the pre-vote by then, or it has timed out."""
    link = SlowLink(chain([1.5], repeat(TIMEOUT_S / 2)), voters=voters, votes_take=votes_take)
    link.fetched_in(20.0)
    assert link.fetched_in(10.0) > 10 * RECORDS
    assert link.story.role.epoch == EPOCH
