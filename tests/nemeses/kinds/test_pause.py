"""Pauses: what is concluded from the states of a process's threads."""

from __future__ import annotations

import pytest

from tests.nemeses.fakes import FakeHost, heal, inject, lines

STOPPED = {"start": "7", "before": "S", "signalled": "yes", "after": "T"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "confirmed"),
        ({"after": "S"}, "mismatch"),
        ({"after": "ST"}, "mismatch"),
        ({"signalled": ""}, "mismatch"),
        ({"start": "", "after": ""}, "inconclusive"),
    ],
)
def test_a_pause_is_every_thread_stopped(change: dict[str, str], status: str) -> None:
    assert inject("pause", FakeHost("n1", lambda _: lines(**{**STOPPED, **change}))).status == status


@pytest.mark.parametrize(
    ("after", "status"), [("S", "confirmed"), ("RS", "confirmed"), ("T", "mismatch"), ("", "mismatch")]
)
def test_a_pause_is_over_when_no_thread_is_stopped(after: str, status: str) -> None:
    assert heal("pause", FakeHost("n1", lambda _: lines(**{**STOPPED, "after": after}))).status == status
