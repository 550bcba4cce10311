"""`brownout image`: messages about the nodes' image."""

import json
from pathlib import Path

import pytest

import nodeimage
from orchestrator.command import image as command
from orchestrator.command import line as cli
from orchestrator.errors import EXIT_INTERNAL, EXIT_PASS, EXIT_UNKNOWN, EXIT_USAGE
from tests.nodeimage.support import pretend_built, small_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = small_project(tmp_path)
    monkeypatch.setattr(command, "PROJECT_ROOT", made)
    return made


def test_a_missing_image_is_shown_with_the_remedy(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["image", "show"]) == EXIT_UNKNOWN
    assert "has not been built; build it: ./brownout image build" in capsys.readouterr().out
    assert cli.main(["image", "show", "--json"]) == EXIT_UNKNOWN
    assert json.loads(capsys.readouterr().out) == {
        "state": "missing",
        "wanted_key": nodeimage.wanted_key(project),
        "stale": [],
    }


def test_a_built_image_is_shown_and_removed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pretend_built(project)
    assert cli.main(["image", "show"]) == EXIT_PASS
    assert f"box      .cache/images/{image.key}/node.box" in capsys.readouterr().out
    assert cli.main(["image", "show", "--json"]) == EXIT_PASS
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["image"]["disk"], shown["stale"]) == ("current", str(image.disk), [])
    (project / "nodeimage" / "guest" / "etc" / "issue").write_text("another recipe\n")
    assert cli.main(["image", "show", "--json"]) == EXIT_UNKNOWN
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["stale"]) == ("stale", [str(image.directory)])
    assert cli.main(["image", "remove"]) == EXIT_PASS
    assert cli.main(["image", "remove"]) == EXIT_PASS
    assert capsys.readouterr().out == "removed 1 image\nno image was found\n"


def test_another_architecture_is_refused_before_any_installation(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert cli.main(["image", "build"]) == EXIT_INTERNAL
    assert "built for x86_64 only" in capsys.readouterr().err
    assert not (project / ".cache").exists()


def test_an_unknown_image_feature_is_refused_before_any_installation(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["image", "build", "--with", "jawa"]) == EXIT_USAGE
    assert "--with jawa: did you mean 'java'?" in capsys.readouterr().err
    assert not (project / ".cache").exists()


def test_an_image_with_java_is_shown_as_such(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lean, image = pretend_built(project), pretend_built(project, ("java",))
    assert cli.main(["image", "show"]) == EXIT_PASS
    said = capsys.readouterr().out
    assert f"box      .cache/images/{lean.key}/node.box" in said
    assert f"as well  .cache/images/{image.key}" in said
    assert "stale" not in said
