"""The inputs with which a broker refuses to start, and its messages."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.clients.harness import ROOT, BrokerProcess, cluster, free_ports

USAGE = 64


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def configured(directory: Path, node_id: int = 1, **settings: object) -> BrokerProcess:
    port, controllers = free_ports(2)
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerProcess(directory, node_id, (port, controllers), f"{node_id}@127.0.0.1:{controllers}", keys)


def test_help_teaches() -> None:
    result = run("--help")
    assert result.returncode == 0
    for word in ("--config", "--mutant", "--check", "node.id", "listeners", "quorum.voters", "log.dir", "64"):
        assert word in result.stdout


@pytest.mark.conforms("K595-1")
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("broker.leese.ms=1", "unknown key 'broker.leese.ms'"),
        ("num.partitions=many", "num.partitions: 'many' is not a whole number"),
        ("quorum.voters=1@nowhere", "quorum.voters is given twice"),
        ("nonsense", "is not of the form key=value"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    broker = configured(tmp_path)
    with broker.config.open("a") as file:
        file.write(line + "\n")
    result = run("--config", str(broker.config))
    assert result.returncode == USAGE
    assert complaint in result.stderr
    assert str(broker.config) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_and_an_unknown_mutant(tmp_path: Path) -> None:
    result = run("--config", str(tmp_path / "absent"))
    assert result.returncode == USAGE
    assert "absent: cannot be read" in result.stderr
    result = run("--config", str(configured(tmp_path).config), "--mutant", "no_such")
    assert result.returncode == USAGE
    assert "unknown mutant no_such" in result.stderr
    assert "truncate_to_hw" in result.stderr


def test_check_accepts_a_valid_configuration_and_writes_no_file(tmp_path: Path) -> None:
    broker = configured(tmp_path)
    result = run("--config", str(broker.config), "--check")
    assert result.returncode == 0, result.stderr
    assert "broker 1" in result.stdout
    assert not broker.log_dir.exists()


@pytest.mark.conforms("K595-8")
@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (lambda directory, log_dir: configured(directory, 2, log_dir=log_dir), "node.id"),
        (lambda directory, log_dir: configured(directory, 1, log_dir=log_dir, cluster_id="another"), "cluster.id"),
    ],
    ids=["another broker", "another cluster"],
)
def test_the_directory_of_another_is_refused(
    tmp_path: Path, other: Callable[[Path, Path], BrokerProcess], complaint: str
) -> None:
    with cluster(tmp_path / "first") as nodes:
        log_dir = nodes.brokers[1].log_dir
        assert nodes.brokers[1].terminate() == 0
    result = run("--config", str(other(tmp_path / "other", log_dir).config))
    assert result.returncode == USAGE
    assert complaint in result.stderr
    assert "meta.properties" in result.stderr


def test_two_brokers_on_one_directory(tmp_path: Path) -> None:
    with cluster(tmp_path / "first") as nodes:
        log_dir = nodes.brokers[1].log_dir
        result = run("--config", str(configured(tmp_path / "second", 1, log_dir=log_dir).config))
        assert result.returncode == USAGE
        assert str(log_dir) in result.stderr
        assert "another" in result.stderr
        assert nodes.brokers[1].alive


def test_a_port_in_use(tmp_path: Path) -> None:
    with cluster(tmp_path / "first") as nodes:
        taken = nodes.brokers[1].port
        (free,) = free_ports(1)
        second = BrokerProcess(tmp_path / "second", 2, (taken, free), f"2@127.0.0.1:{free}", {})
        result = run("--config", str(second.config))
        assert result.returncode == USAGE
        assert f"cannot listen at 127.0.0.1:{taken}" in result.stderr


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    result = run("--config", str(configured(tmp_path, log_dir=tmp_path / "file" / "log").config))
    assert result.returncode == USAGE
    assert "log.dir" in result.stderr
    assert "Traceback" not in result.stderr
