"""The wheel: its content, and its use from any directory, as with a checkout."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from installation import extras
from installation.files import PROJECT_ROOT
from tests.campaign_text import campaign_text
from tests.house.test_rooms import DATA as DIRECTORIES_OF_DATA
from tests.house.test_rooms import rooms

DATA = (*DIRECTORIES_OF_DATA, "analysis/templates", "nodeimage/guest", "nodeimage/initrd", "nodeimage/box")
HOME = "brownout/home"
NOT_IN_HOME = ("docs/finds/", "docs/generators/", "installation/build_hook.py", "installation/entry/")
MINE = campaign_text(
    "mine",
    topology={"world": "process"},
    workload={"partitions": 1, "producers": 1, "consumers": 1, "rate": 50, "duration_s": 4},
    nemesis={"kind": "none"},
    # however slow the machine is
    checks={"min_ok": 1, "min_share": 0.05},
)


@dataclass(frozen=True)
class Installed:
    """The package in a directory of its own; `away` is where a user might be."""

    wheel: Path
    target: Path
    away: Path
    path: tuple[Path, ...] = ()
    """Further directories of PYTHONPATH, before the package."""

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "brownout", *arguments)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """An interpreter that has the package, and no checkout."""
        path = os.pathsep.join(map(str, (*self.path, self.target)))
        environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(self.away / "cache")}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.away,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=600,
            check=False,
        )


def build(source: Path, destination: Path) -> Path:
    """The wheel of a source tree, or of a source archive."""
    pip("wheel", str(source), "--no-deps", "--no-build-isolation", "--wheel-dir", str(destination))
    (wheel,) = destination.glob("*.whl")
    return wheel


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-index"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("package")
    wheel = build(PROJECT_ROOT, place / "wheels")
    pip("install", "--no-deps", "--no-compile", "--target", str(place / "site"), str(wheel))
    (place / "away").mkdir()
    return Installed(wheel, place / "site", place / "away")


WITHOUT_EXTRAS = """
import sys

class Filtered:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        return None if name.partition(".")[0] in NOT_THERE else self.finder.find_spec(name, *more)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Filtered, sys.meta_path)
"""


@pytest.fixture(scope="module")
def base(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The package as if no extra were installed."""
    names = {name for modules in extras.MODULES.values() for name in modules}
    names |= {"py4j", "aiokafka", "kafka", "coverage", "slipcover", "black", "ansiblelint"}
    place = tmp_path_factory.mktemp("base")
    (place / "sitecustomize.py").write_text(f"NOT_THERE = {names!r}\n{WITHOUT_EXTRAS}", encoding="utf-8")
    (place / "away").mkdir()
    return replace(installed, path=(place,), away=place / "away")


def of_the_checkout(*directories: str) -> dict[str, bool]:
    """The files that git knows below these directories, and whether each may be executed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *directories],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return {name: os.access(PROJECT_ROOT / name, os.X_OK) for name in listed if (PROJECT_ROOT / name).is_file()}


def test_the_wheel_takes_two_names_and_has_every_file_of_the_rooms(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        packed = {entry.filename: entry.external_attr >> 16 & 0o111 != 0 for entry in archive.infolist()}
    top = {name.split("/")[0] for name in packed}
    assert {name for name in top if not name.endswith(".dist-info")} == {"brownout", "brownout_api"}
    assert len(top) == 3
    expected = of_the_checkout(*rooms(), *DATA, "Vagrantfile", "requirements.lock")
    expected = {name: mode for name, mode in expected.items() if not name.startswith(NOT_IN_HOME)}
    assert {directory for directory in DATA if not any(name.startswith(directory) for name in expected)} == set()
    assert {name: packed.get(f"{HOME}/{name}") for name in expected} == expected
    assert not [name for name in packed if name.startswith((f"{HOME}/tests", f"{HOME}/store", f"{HOME}/."))]
    assert [name for name in packed if name.startswith(f"{HOME}/docs/") and name.endswith((".py", ".pyc"))] == []


# Written by `brownout init`, or for Ansible, which loads them with modules of its own.
NO_MODULES = ("orchestrator/command/skeleton/", "playbooks/")


@pytest.mark.rotating(2)
@pytest.mark.parametrize("package", ["installed", "base"])
def test_every_module_of_the_installed_package_can_be_imported(package: str, request: pytest.FixtureRequest) -> None:
    installed: Installed = request.getfixturevalue(package)
    names = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in of_the_checkout(*rooms())
        if name.endswith(".py")
        and not name.startswith((*NO_MODULES, *NOT_IN_HOME))
        and not name.endswith("/__main__.py")
    ]
    assert len(names) > 500
    program = f"import importlib, sys; sys.path.insert(0, {str(installed.target / HOME)!r})\n"
    program += f"for name in {names!r}: importlib.import_module(name)"
    done = installed.python("-c", program)
    assert done.returncode == 0, done.stderr


MY_CLIENT = """
from brownout_api import RegisterClient, Refused

class MyClient(RegisterClient):
    def read(self, key: str) -> int | None:
        if not self.endpoints:
            raise Refused("there is no node")
        return None

    def write(self, key: str, value: int) -> None: ...

    def compare_and_set(self, key: str, expected: int | None, new: int) -> bool:
        return expected is None

"""


def test_a_users_client_is_imported_and_typed_by_the_installed_api(installed: Installed, tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(MY_CLIENT + "print(MyClient(['a:1'], 1.0, {}).read('k'))\n", encoding="utf-8")
    done = installed.python(str(client))
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
    typed = installed.python("-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(client))
    assert typed.returncode == 0, typed.stdout + typed.stderr
    client.write_text(MY_CLIENT + "MyClient(1)\n", encoding="utf-8")
    wrong = installed.python("-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(client))
    assert wrong.returncode == 1, wrong.stdout


def test_the_api_is_documented_by_pydoc(installed: Installed) -> None:
    done = installed.python("-m", "pydoc", "brownout_api")
    assert done.returncode == 0, done.stderr
    assert "class RegisterClient" in done.stdout


def test_the_types_of_the_api_are_those_of_the_room(installed: Installed) -> None:
    compared = installed.python("-m", "mypy.stubtest", "brownout_api", "--ignore-missing-stub")
    assert compared.returncode == 0, compared.stdout + compared.stderr


@pytest.mark.parametrize(
    ("package", "complaint"),
    [
        ("base", "a pandas DataFrame needs the extra [spark], which is not installed; install it: "),
        ("installed", "has no campaign"),
    ],
)
def test_results_of_a_store_are_read_by_the_installed_api(
    package: str, complaint: str, request: pytest.FixtureRequest
) -> None:
    done = request.getfixturevalue(package).python("-c", "import brownout_api; brownout_api.results('.')")
    assert done.returncode == 1
    assert complaint in done.stderr.splitlines()[-1]


def test_guest_programs_stay_executable_when_they_are_installed(installed: Installed) -> None:
    expected = of_the_checkout("nodeimage/guest", "nodeimage/initrd")
    assert any(expected.values())
    home = installed.target / HOME
    assert {name: os.access(home / name, os.X_OK) for name in expected} == expected


@pytest.mark.rotating(7, among="installed package")
def test_a_source_archive_builds_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        check=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()
    assert os.access(tree / "brownout", os.X_OK)
    assert (tree / "tests" / "installation" / "test_wheel.py").exists()
    wheel = build(tree, tmp_path / "wheels")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(installed.wheel) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
        record = f"{HOME}/installed.json"
        assert ours.read(record) == theirs.read(record)


def test_the_wheel_reports_its_version_and_the_abilities_of_the_machine(installed: Installed) -> None:
    said = installed("--version")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("brownout 0.")
    record = json.loads((installed.target / HOME / "installed.json").read_text())
    assert said.stdout == f"brownout {record['version']} (commit {record['commit'] or 'unknown'})\n"
    doctor = installed("doctor", "--json")
    content = json.loads(doctor.stdout)
    assert doctor.returncode == (0 if content["can_run"] else 2)
    assert isinstance(content["missing_packages"], list)
    (store,) = (each for each in content["findings"] if each["name"] == "store")
    assert store["detail"].endswith(str(installed.away))


def test_tests_are_in_a_checkout_only(installed: Installed) -> None:
    refused = installed("test")
    assert refused.returncode == 64
    assert "the tests are in the checkout" in refused.stderr


def test_the_script_of_the_wheel_installs_packages(installed: Installed) -> None:
    refused = installed("install-packages", "Not a name")
    assert refused.returncode == 64
    assert "'Not a name' is not the name of a Debian package" in refused.stderr


def test_shipped_campaigns_are_known_by_name(installed: Installed) -> None:
    planned = installed("run", "--dry-run", "--json", "demo")
    assert planned.returncode == 0, planned.stderr
    (run,) = json.loads(planned.stdout)["runs"]
    assert run["replay"] == f"{sys.executable} -m brownout run demo --cell main --seed 1"


@pytest.mark.rotating(7, among="installed package")
def test_a_campaign_of_the_users_runs_and_its_store_is_beside_it(installed: Installed) -> None:
    (installed.away / "campaigns").mkdir()
    (installed.away / "campaigns" / "mine.toml").write_text(MINE)
    before = sorted(path for path in installed.target.rglob("*") if "__pycache__" not in path.parts)
    done = installed("run", "mine", "--engine", "in-process", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "pass"
    run = (installed.away / "store" / "latest").resolve()
    assert run.name == result["runs"][0]["run"]
    assert (run / "report.html").exists()
    judged = installed("gate", f"store/{result['campaign']}")
    assert judged.returncode == 0, judged.stderr
    assert sorted(path for path in installed.target.rglob("*") if "__pycache__" not in path.parts) == before
    shutil.rmtree(installed.away / "store")


@pytest.mark.rotating(7, among="installed package")
@pytest.mark.parametrize("world", ["simulation", pytest.param("namespaces", marks=pytest.mark.root)])
def test_a_shipped_campaign_runs_in_the_world(installed: Installed, world: str) -> None:
    done = installed("run", "demo", "--world", world, "--engine", "in-process", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "pass"


@pytest.mark.parametrize("command", ["explore", "replay", "shrink"])
def test_commands_for_simulated_runs_refuse_in_a_sentence(installed: Installed, command: str) -> None:
    done = installed(command, "no-such")
    assert done.returncode == 64, done.stderr
    assert "no-such" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.rotating(7, among="installed package")
def test_without_extras_a_run_is_analyzed_in_process_with_a_note(base: Installed) -> None:
    (base.away / "mine.toml").write_text(MINE, encoding="utf-8")
    done = base("run", "mine.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "engine: in-process (Spark is not installed: " in done.stderr
    assert "brownout[spark]" in done.stderr
    report = (base.away / "store" / "latest" / "report.html").read_text(encoding="utf-8")
    assert "Engine of the analysis: in-process." in report
    simulated = base("run", "mine.toml", "--world", "simulation", "--quiet")
    assert simulated.returncode == 0, simulated.stdout + simulated.stderr


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("run demo --engine spark", "spark"),
        ("explore demo --engine spark", "spark"),
        ("explore demo --master spark://nowhere:7077", "spark"),
        ("run demo --world vagrant", "vms"),
        ("run demo --world vagrant --dry-run", "vms"),
        ("run demo --inventory hosts", "vms"),
        ("nodes up --world vagrant", "vms"),
        ("image build", "vms"),
    ],
)
def test_a_feature_of_a_missing_extra_is_refused_with_the_install_command(
    base: Installed, command: str, extra: str
) -> None:
    (base.away / "hosts").write_text("one ansible_host=192.0.2.1\n", encoding="utf-8")
    done = base(*command.split())
    assert done.returncode == 64, done.stdout + done.stderr
    assert f"needs the extra [{extra}], which is not installed; install it: " in done.stderr
    assert f"install 'brownout[{extra}]'" in done.stderr or f"'brownout[{extra}] @ " in done.stderr


def test_the_doctor_reports_extras(base: Installed) -> None:
    said = base("doctor", "--json")
    content = json.loads(said.stdout)
    found = {(each["part"], each["name"]): each for each in content["findings"]}
    assert not found["engine spark", "extra [spark]"]["met"]
    assert "brownout[spark]" in found["engine spark", "extra [spark]"]["remedy"]
    assert not found["inventory", "extra [vms]"]["met"]
    assert (content["can_run"], content["vagrant"], content["inventory"]) == (True, False, False)
