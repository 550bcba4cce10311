"""Invalid steps of a script, and the fault that a world must support for each valid one."""

import pytest

from systems.errors import InputError
from tests.orchestrator.campaigns import campaign


def parse(step: str) -> str | None:
    """What the world must be able to do for this step (keys separated by `;`)."""
    text = '[nemesis]\nkind = "steps"\n[[nemesis.step]]\n' + step.replace(";", "\n")
    (parsed,) = campaign(text).nemesis.steps
    return parsed.needs


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ('do = "stall"; node = "n1"', "stall"),
        ('do = "set-clock"; node = "n1"; jump_s = 86400', "clock-jump"),
        ('do = "power-loss"; node = "n1"; loses = "log/log-0/*.log"', "power-loss"),
        ('do = "delay"; node = "n1"; delay_ms = 10', "packet-delay"),
        ('do = "lose"; node = "n1"; percent = 50', "packet-loss"),
        ('do = "reset-clock"; node = "n1"', None),
        ('do = "heal"; node = "n1"', None),
    ],
)
def test_a_step_names_the_fault_it_needs(step: str, kind: str | None) -> None:
    assert parse(step) == kind


@pytest.mark.parametrize(
    ("step", "remedy"),
    [
        ('do = "set-clock"; node = "n1"', "jump_s"),
        ('do = "set-clock"; node = "n1"; jump_s = 0.5', "forward or .negative. back"),
        ('do = "set-clock"; node = "n1"; jump_s = 86401', "forward or .negative. back"),
        ('do = "delay"; node = "n1"', "delay_ms"),
        ('do = "delay"; node = "n1"; delay_ms = 2001', "acts like a partition"),
        ('do = "delay"; node = "n1"; delay_ms = 5; jitter_ms = 5', "must be smaller"),
        ('do = "lose"; node = "n1"; percent = 51', "use cut"),
        ('do = "lose"; node = "n1"; percent = 0.5', "percent"),
        ('do = "heal"; node = "n1"; between = ["n1", "n2"]', "not both"),
        ('do = "cut"; between = [[], []]', "is not a pair of nodes, .* or of groups"),
        ('do = "reject"; between = [["n1"], []]', "is not a pair of nodes, .* or of groups"),
        ('do = "heal"; between = [[], ["n1"]]', "is not a pair of nodes, .* or of groups"),
        ('do = "delete-records"; partition = 0', "offset"),
        ('do = "delete-records"; offset = 0', "offset"),
        ('do = "delete-records"; offset = 3; partition = 9', "partition"),
        ('do = "wait"; isr = []', "isr is empty; name at least one"),
        ('do = "stall"; node = "n1"; jump_s = 3', "jump_s"),
        ('do = "power-loss"; node = "n1"; loses = "../log"', "not a pattern for files below the data directory"),
        ('do = "power-loss"; node = "n1"; loses = "/data/*"', "not a pattern for files below the data directory"),
        ('do = "power-loss"; node = "n1"; loses = "log/$(id)"', "not a pattern for files below the data directory"),
        ('do = "power-loss"; node = "n1"; loses = "log/*"; tear = true', "a cut that tears may keep anything"),
        ('do = "kill"; node = "n1"; loses = "log/*"', "loses"),
        ('do = "elect"; node = "n1"', "of brownout a leader can be chosen for a partition; add partition = 0"),
        ('do = "elect"; node = "n1"; partition = 9', "partition"),
        ('do = "wait"; log = "("; node = "n1"', "is not a regular expression"),
        ('do = "wait"; log = "x"', "node is missing"),
        ('do = "wait"; seconds = -1', "seconds"),
        ('do = "wait"; seconds = 1e300', "seconds"),
        ('do = "wait"; seconds = 1; deadline_s = 1e8', "deadline_s"),
        ('do = "wait"; offset = "start"; at_least = 1', "offset"),
        ('do = "wait"; offset = "last-tiered"', "at_least"),
        ('do = "configure"', "settings is missing"),
        ('do = "kill"; node = "n1"; signal = "STOP"', "signal: 'STOP'"),
        ('do = "run"; node = "n1"', "command is missing"),
        ('do = "run"; node = "n1"; command = []', "command"),
        ('do = "run"; node = "n1"; command = "promote"', "command"),
        ('do = "run"; node = "n9"; command = ["promote"]', "n9"),
        ('do = "run"; node = "n1"; command = ["promote"]; exit_codes = [256]', "exit_codes"),
        ('do = "configure"; settings = { "a" = [1] }', "neither a text, a number, true nor false"),
        ('do = "join"; node = "n3"; starts_at = "last-tiered"', "starts_at"),
        ('do = "join"; node = "n9"', "n9"),
        ('do = "wait"; seconds = 1; in_sync = 0', "exactly one of"),
    ],
)
def test_a_step_that_cannot_be_meant_is_refused(step: str, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        parse(step)
