"""How well campaigns see mutants: shares with their uncertainty, the schedules that are tried, and the page."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.campaign.lookup import find
from orchestrator.campaign.plan import PlannedRun
from orchestrator.command.line import main
from orchestrator.command.mutants import (
    BEGIN,
    END,
    GenericResult,
    MutantResult,
    MutantTrial,
    all_schedules,
    exit_code,
    generic_score,
    schedules,
    wilson,
    with_table,
)
from orchestrator.errors import UsageError
from orchestrator.search.run_maker import Maker
from systems.brownout.broker import Brownout
from tests.campaign_text import campaign_text, random_faults


@pytest.mark.parametrize(
    ("hits", "tries", "interval"),
    # From the published closed form, to three places.
    [(0, 10, (0.0, 0.278)), (10, 10, (0.722, 1.0)), (5, 10, (0.237, 0.763)), (81, 263, (0.255, 0.366))],
)
def test_a_share_has_its_wilson_interval(hits: int, tries: int, interval: tuple[float, float]) -> None:
    assert wilson(hits, tries) == pytest.approx(interval, abs=0.0006)


def test_an_interval_of_zero_tries_is_refused() -> None:
    with pytest.raises(ValueError, match="zero tries"):
        wilson(0, 0)


def test_a_mutant_is_tried_where_a_cell_has_it_alone() -> None:
    campaigns = [find("kip101-scenario1"), find("bounce-unseen")]
    found = schedules(Brownout.mutants, ["bounce_unseen"], campaigns)
    assert [(each.campaign.name, each.cell.mutants) for each in found] == [("bounce-unseen", ("bounce_unseen",))]


def test_a_mutant_is_run_together_with_a_harmless_one() -> None:
    (found,) = schedules(Brownout.mutants, ["truncate_to_hw"], [find("kip101-scenario1")])
    assert (found.cell.name, found.cell.mutants) == ("mutated", ("truncate_to_hw", "bounce_unseen"))


def test_a_campaign_without_mutants_is_run_with_each_switched_on() -> None:
    (found,) = schedules(Brownout.mutants, ["bounce_unseen"], [find("demo")])
    assert found.cell.mutants == ("bounce_unseen",)
    assert found.cell.expect.anomaly == "lost-acknowledged-write"


def test_a_cell_that_the_simulation_does_not_support_is_refused() -> None:
    with pytest.raises(UsageError, match="the simulation world runs brownout only, not etcd"):
        schedules(Brownout.mutants, ["bounce_unseen"], [find("etcd-chaos")])


CLIENT = """
[client]
client_command = ["/bin/true"]
"""


def test_mutants_without_a_campaign_are_named_and_the_others_are_run(tmp_path: Path) -> None:
    strange = tmp_path / "strange.toml"
    text = find("commit-acked-before-hw").read_text()
    strange.write_text(text.replace('kind = "group"', 'kind = "append-log"').replace("members = 4", "") + CLIENT)
    found, without = all_schedules(Brownout.mutants, [find("bounce-unseen"), strange])
    assert [each.mutant for each in found] == ["bounce_unseen"]
    assert without.keys() == Brownout.mutants.keys() - {"bounce_unseen"}
    assert "no campaign has a cell" in without["serve_while_recovering"]
    assert "has no clients in the simulation world" in without["commit_acked_before_hw"]


def test_a_run_that_names_another_anomaly_does_not_count() -> None:
    (schedule,) = schedules(Brownout.mutants, ["bounce_unseen"], [find("bounce-unseen")])
    trials = [MutantTrial(1, "fail", ("lost-acknowledged-write",), 8.0, 1.0), MutantTrial(2, "fail", (), 9.0, 2.0)]
    result = MutantResult(schedule, trials).to_json()
    assert (result["killed"], result["runs"], result["missed"]) == (1, 2, [2])
    assert result["by"] == {"lost-acknowledged-write": 1}
    assert (result["simulated_s"], result["cpu_s"]) == (8.5, 1.5)
    page = with_table(f"before\n{BEGIN}old\n{END}after\n", [result], "1-2")
    assert "old" not in page
    assert (
        "| bounce_unseen | bounce-unseen | 1 (9% to 91%) | 2 | 0 | lost-acknowledged-write 1 | 8.5 s | 1.5 s |" in page
    )
    assert page.startswith("before\n")
    assert page.endswith("after\n")


KILLED = MutantTrial(1, "fail", ("lost-acknowledged-write",), 8.0, 1.0)
UNKNOWN = MutantTrial(2, "unknown", (), reason="KeyError: planted")


def test_an_unknown_run_leaves_a_mutant_undecided() -> None:
    (schedule,) = schedules(Brownout.mutants, ["bounce_unseen"], [find("bounce-unseen")])
    torn = MutantTrial(3, "unknown", ("lost-acknowledged-write",))  # what it found before it broke down stands
    result = MutantResult(schedule, [KILLED, UNKNOWN, torn]).to_json()
    assert (result["killed"], result["decided"], result["unknown"], result["runs"]) == (2, 2, 1, 3)
    assert result["interval"] == [pytest.approx(bound, abs=1e-4) for bound in wilson(2, 2)]
    assert (result["missed"], result["undecided"]) == ([], [{"seed": 2, "reason": "KeyError: planted"}])
    assert (result["simulated_s"], result["cpu_s"]) == (8.0, 1.0), "of the runs that have times"
    nothing = MutantResult(schedule, [UNKNOWN]).to_json()
    assert (nothing["interval"], nothing["simulated_s"], nothing["cpu_s"]) == (None, None, None)
    assert "| - | 0 | 1 | nothing | - | - |" in with_table(f"{BEGIN}{END}", [nothing], "2-2")


@pytest.mark.parametrize(
    ("name", "trials", "code"),
    [
        ("bounce_unseen", [KILLED, UNKNOWN], 0),
        ("bounce_unseen", [MutantTrial(1, "pass", ())], 0),  # the table shows the number of survivors
        ("bounce_unseen", [UNKNOWN], 2),
        ("slow_retry", [MutantTrial(1, "pass", ()), UNKNOWN], 0),
        ("slow_retry", [UNKNOWN], 2),
        ("slow_retry", [KILLED], 1),
    ],
)
def test_an_unknown_result_and_an_alarm_are_failures(name: str, trials: list[MutantTrial], code: int) -> None:
    (schedule,) = schedules(Brownout.mutants, [name], [find("demo")])
    assert exit_code([MutantResult(schedule, trials)]) == code


def test_a_mutant_without_trials_is_unknown() -> None:
    assert exit_code([]) == 2


def test_an_error_of_one_run_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Maker.make

    def broken(maker: Maker, planned: PlannedRun) -> object:
        if planned.seed == 1:
            raise KeyError("planted")
        return make(maker, planned)

    monkeypatch.setattr(Maker, "make", broken)
    command = ["mutants", "bounce_unseen", "--seeds", "1-2", "--campaign", "bounce-unseen", "--json", "--jobs", "1"]
    assert main(command) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["killed"], result["decided"], result["runs"]) == (1, 1, 2)
    assert result["undecided"] == [{"seed": 1, "reason": "KeyError: 'planted'"}]


def test_more_runs_than_the_limit_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "bounce_unseen", "--seeds", "1-100000000", "--campaign", "bounce-unseen"]) == 64
    assert "1 schedule with 100,000,000 seeds: more than 100,000 runs" in capsys.readouterr().err


@pytest.mark.rotating(4, among="mutation scores")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_stopped_measurement_leaves_no_process_and_reports_its_findings(
    sent: signal.Signals, code: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "orchestrator", "mutants", "bounce_unseen", "--seeds", "1-1000", "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT), "TMPDIR": str(tmp_path)}
    arguments = [*command, "--campaign", str(find("bounce-unseen").resolve()), "--json"]
    running = subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    runs = tmp_path / "store" / ".labs"
    await_(lambda: len(list(runs.glob("*/*/*/*/run.toml"))) > 1)  # both processes are at it
    makers = children_of(running.pid)
    assert len(makers) >= 2
    running.send_signal(sent)
    out, _ = running.communicate(timeout=120)
    assert running.returncode == code
    await_(lambda: not any(Path(f"/proc/{pid}").exists() for pid in makers))
    if sent == signal.SIGTERM:
        assert json.loads(out) == [] or json.loads(out)[0]["killed"] >= 1
        assert not runs.exists()
    assert not list(tmp_path.glob("brownout-*"))


def await_(reached: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.rotating(4, among="mutation scores")
def test_mutants_are_run_and_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    del tmp_path
    assert main(["mutants", "bounce_unseen", "--seeds", "1-2", "--campaign", "bounce-unseen", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "1 of 1: bounce_unseen, bounce-unseen: killed in 2 of 2 decided\n"
    (result,) = json.loads(printed.out)
    assert (result["mutant"], result["killed"], result["runs"]) == ("bounce_unseen", 2, 2)


def test_every_anomaly_of_a_benign_mutant_is_an_alarm() -> None:
    (schedule,) = schedules(Brownout.mutants, ["slow_retry"], [find("demo")])
    assert (schedule.anomalies, schedule.cell.expect.verdict) == ((), "pass")
    result = MutantResult(
        schedule, [MutantTrial(1, "pass", (), 8.0, 1.0), MutantTrial(2, "fail", ("duplicate",), 9.0, 1.0)]
    ).to_json()
    assert (result["benign"], result["killed"], result["by"]) == (True, 1, {"duplicate": 1})
    assert "| slow_retry (benign) |" in with_table(f"{BEGIN}{END}", [result], "1-2")


@pytest.mark.rotating(4, among="mutation scores")
def test_parallel_processes_give_the_same_result(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["mutants", "vote_not_persisted", "--seeds", "1-2", "--campaign", "vote-not-persisted", "--json"]
    results = []
    for jobs in ("1", "2"):
        assert main([*command, "--jobs", jobs]) == 0
        (result,) = json.loads(capsys.readouterr().out)
        results.append((result["killed"], result["by"], result["simulated_s"]))
    assert results[0] == results[1]
    assert results[0][0] == 2
    assert main([*command, "--jobs", "0"]) == 64
    assert "'0' is not a number of at least 1" in capsys.readouterr().err


SHORT = campaign_text(
    "short",
    topology={"nodes": 3, "world": "simulation"},
    broker={"log.flush.interval.messages": 1, "min.insync.replicas": 2},
    workload={"partitions": 1, "producers": 1, "consumers": 1, "rate": 20, "duration_s": 4},
    nemesis=random_faults("power-loss-all", interval_s=[0.5, 1.0], duration_s=[0.2, 0.4]),
    checks={"min_ok": 1, "min_share": 0},
)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_generic_score_counts_any_anomaly_and_stops_there(
    jobs: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = {"short": SHORT, "other": SHORT.replace('"short"', '"other"')}
    campaigns = [tmp_path / f"{name}.toml" for name in names]
    for path, text in zip(campaigns, names.values(), strict=True):
        path.write_text(text)
    command = ["mutants", "vote_not_persisted", "slow_retry", "--generic", "--json"]
    command += [argument for path in campaigns for argument in ("--campaign", str(path))]
    assert main([*command, "--seeds", "1-2", "--jobs", jobs]) == 0
    killed, benign = sorted(json.loads(capsys.readouterr().out), key=lambda result: str(result["mutant"]), reverse=True)
    assert (killed["campaign"], killed["seed"], killed["runs"]) == ("short", 1, 1)
    assert "vote-before-disk" in killed["anomalies"]
    assert killed["cpu_s"] > 0
    assert (benign["benign"], benign["campaign"], benign["runs"], benign["undecided"]) == (True, "", 4, 0)


def test_the_generic_score_is_of_harmful_mutants() -> None:
    killed, costly = (GenericResult(name, False, 1, 0, cost, "swarm", 1, ("x",)) for name, cost in (("a", 2), ("b", 9)))
    survivor, benign = GenericResult("c", False, 9, 0, 60), GenericResult("d", True, 9, 0, 60)
    score = generic_score([killed, costly, survivor, benign])
    assert score == ("generic score: 2 of 3 mutants killed (67%), median 5.5 CPU s; 1 benign mutant, 0 with an alarm")
    assert generic_score([survivor]).startswith("generic score: 0 of 1 mutant killed;")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--budget", "5", "--seeds", "1"], "--budget is of --generic"),
        (["--generic"], "nothing is run without --seeds"),
        (["--generic", "--seeds", "1", "--write"], "leave out --generic"),
        (["--generic", "--seeds", "1", "--campaign", "bounce-unseen"], "needs a campaign without any"),
        (["--generic", "--seeds", "1", "--campaign", "etcd-chaos"], "runs brownout only"),
    ],
)
def test_a_generic_score_without_seeds_or_campaigns_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mutants", *arguments]) == 64
    assert problem in capsys.readouterr().err
