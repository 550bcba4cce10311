"""`brownout gate` counts a verdict that is missing, damaged or stale as unknown."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.orchestrator.gate.deciding import decided, edit, lose_replica, runs_of, truncate_verdict
from tests.orchestrator.stored_campaign import StoredCampaign, ask


def _no_verdict(run: Path) -> None:
    (run / "verdict.json").unlink()


def _empty(run: Path) -> None:
    (run / "verdict.json").write_bytes(b"")


def _no_utf8(run: Path) -> None:
    (run / "verdict.json").write_bytes(b"\xff\xfe\x00" * 40)


def _deep(run: Path) -> None:
    (run / "verdict.json").write_text("[" * 100_000)


def _directory(run: Path) -> None:
    (run / "verdict.json").unlink()
    (run / "verdict.json").mkdir()


def _field_gone(run: Path) -> None:
    content = json.loads((run / "verdict.json").read_text())
    del content["checks"]
    (run / "verdict.json").write_text(json.dumps(content))


def _edited(run: Path) -> None:
    edit(run / "verdict.json", '"seed": 1', '"seed": 2')


def _old_form(run: Path) -> None:
    content = json.loads((run / "verdict.json").read_text())
    for name in ("finished", "evidence", "analysis", "checksum"):
        del content[name]
    (run / "verdict.json").write_text(json.dumps(content))


def _of_another_run(run: Path) -> None:
    other = next(path for path in sorted(run.parent.glob("*/verdict.json")) if path.parent != run)
    shutil.copy(other, run / "verdict.json")


def _half_judged(run: Path) -> None:
    from analysis.placeholder_verdict import begin

    begin(run)


def _record_changed(run: Path) -> None:
    path = next((run / "history" / "operations").iterdir())
    path.write_bytes(path.read_bytes() + b"\0")


def _expects_something_else(run: Path) -> None:
    edit(run / "run.toml", 'verdict = "pass"', 'verdict = "unknown"')


def _asks_for_less(run: Path) -> None:
    edit(run / "run.toml", "min_ok = 40", "min_ok = 0")


def _run_toml_gone(run: Path) -> None:
    (run / "run.toml").unlink()


def _run_toml_damaged(run: Path) -> None:
    (run / "run.toml").write_bytes(b"seed = \xff\xff")


def _run_toml_of_other_types(run: Path) -> None:
    (run / "run.toml").write_text('seed = "x"\nchecks = 3\nexpect = []\n')


def _certificate_gone(run: Path) -> None:
    shutil.rmtree(run / "certificate")


def _without(*fields: str) -> Callable[[Path], None]:
    """The verdict loses fields, and has the checksum of the remaining ones."""

    def change(run: Path) -> None:
        from analysis.verdict import _checksum

        content = json.loads((run / "verdict.json").read_text())
        for name in ("checksum", *fields):
            del content[name]
        (run / "verdict.json").write_text(json.dumps(content | {"checksum": _checksum(content)}))

    return change


def _certificate_gone_and_not_named(run: Path) -> None:
    from analysis.verdict import Verdict

    shutil.rmtree(run / "certificate")
    Verdict(**{**vars(Verdict.read(run / "verdict.json")), "certificate": ""}).write(run / "verdict.json")


def _other_campaign(run: Path) -> None:
    (run / "campaign.toml").write_text('name = "other"\n')


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_no_verdict, "no verdict yet"),
        (truncate_verdict, "is not a verdict"),
        (_empty, "is not a verdict"),
        (_no_utf8, "is not a verdict"),
        (_deep, "is not a verdict"),
        (_directory, "the verdict cannot be read"),
        (_field_gone, "missing required field `checks`"),
        (_edited, "was changed after it was written"),
        (_old_form, "has no checksum; an older version wrote it"),
        (_of_another_run, "the verdict is of another run"),
        (_half_judged, "the analysis has not finished"),
        (_record_changed, "the run's files have changed since"),
        (lose_replica, "the run's files have changed since"),
        (_expects_something_else, "its expectation is 'unknown', not 'pass'"),
        (_asks_for_less, "the run's files have changed since"),
        (_run_toml_gone, "there is no run.toml"),
        (_run_toml_damaged, "run.toml cannot be understood"),
        (_run_toml_of_other_types, "run.toml"),
        (_certificate_gone, "the certificate of its pass is missing"),
        (_certificate_gone_and_not_named, "the certificate of its pass is missing, and the verdict names none"),
        (_without("certificate"), "does not have the fields of a verdict: certificate"),
        (_without("doubts"), "does not have the fields of a verdict: doubts"),
        (_without("mutants", "versions"), "does not have the fields of a verdict: mutants, versions"),
        (_other_campaign, "is not the campaign that was planned"),
    ],
)
def test_an_implausible_verdict_is_unknown(
    campaign: StoredCampaign, damage: Callable[[Path], None], words: str
) -> None:
    run = runs_of(campaign)[0]
    damage(run)
    answer = decided(campaign.path)
    assert answer.code == 2
    row = next(entry for entry in answer.json["runs"] if entry["run"] == run.name)
    assert (row["verdict"], row["met"]) == ("unknown", False)
    assert words in " ".join(row["reasons"])
    assert ask("gate", run).code == 2 or not (run / "run.toml").exists()


def test_a_verdict_of_another_version_of_the_analysis_is_unknown(campaign: StoredCampaign) -> None:
    from analysis.verdict import Verdict

    path = runs_of(campaign)[0] / "verdict.json"
    replace(Verdict.read(path), analysis="another").write(path)
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "another version of the analysis" in answer.json["reason"]
