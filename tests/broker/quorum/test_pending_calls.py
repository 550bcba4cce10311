"""A call to the quorum gets an outcome when it is certain, and not before."""

import pytest

from broker.errors import CommitUncertainError, NotLeaderError
from broker.quorum.runner import PendingCalls
from tests.broker.log.making import in_loop


@pytest.mark.conforms("K595-53")
@in_loop
async def test_an_append_returns_when_all_of_it_is_below_the_high_watermark() -> None:
    calls = PendingCalls()
    ticket, append = calls.for_commit()
    calls.appending(ticket, 5)
    for high_watermark in (3, 5):
        calls.committed(high_watermark)
        assert not append.done()
    calls.committed(6)
    assert await append == 5


@pytest.mark.conforms("K595-53")
@in_loop
async def test_written_appends_are_uncertain_without_the_leader_and_others_are_refused() -> None:
    calls = PendingCalls()
    (written, in_doubt), (unwritten, refused) = calls.for_commit(), calls.for_commit()
    calls.appending(written, 5)
    calls.leadership_lost()
    calls.refuse(unwritten)
    calls.committed(9)
    assert isinstance(in_doubt.exception(), CommitUncertainError)
    assert isinstance(refused.exception(), NotLeaderError)
