"""The measures of the quorum, over half a minute."""

import pytest

from broker.quorum.quorum_metrics import SPAN_S, QuorumMeasures, Window


def test_a_window_drops_values_older_than_its_span() -> None:
    window = Window()
    assert (window.average(0.0), window.largest(0.0), window.rate(0.0)) == (0.0, 0.0, 0.0)
    for at, value in ((0.2, 4.0), (0.7, 8.0), (20.0, 3.0)):
        window.note(at, value)
    assert (window.average(20.5), window.largest(20.5), window.rate(20.5)) == (5.0, 8.0, 15.0 / SPAN_S)
    assert (window.average(31.0), window.largest(31.0)) == (3.0, 3.0)
    assert window.average(51.0) == 0.0


def test_a_window_keeps_no_more_than_its_span_has_seconds() -> None:
    window = Window()
    for tick in range(100_000):
        window.note(tick / 100, 1.0)
    assert len(window._buckets) <= SPAN_S + 1
    assert window.rate(999.99) == pytest.approx(100.0, rel=0.05)


@pytest.mark.conforms("K595-52")
def test_the_time_of_an_election_ends_with_a_known_leader() -> None:
    measures = QuorumMeasures()
    measures.role_changed(1.0, standing=False, leader_known=True)
    assert measures.elections.largest(1.0) == 0.0
    measures.role_changed(2.0, standing=True, leader_known=False)
    measures.role_changed(2.5, standing=True, leader_known=False)
    measures.role_changed(3.0, standing=False, leader_known=False)
    measures.role_changed(4.0, standing=False, leader_known=True)
    assert measures.elections.largest(4.0) == 2.0


def test_idle_time_is_the_time_of_waiting_for_events() -> None:
    measures = QuorumMeasures()
    assert measures.idle_ratio(0.0) == 1.0
    for second in range(1, SPAN_S + 1):
        measures.turn(0.25, float(second))
    assert measures.idle_ratio(float(SPAN_S)) == pytest.approx(0.25)
