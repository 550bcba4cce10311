"""Mistakes in a user's system: they are reported with file and line, before anything is started."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nemeses import HostError
from orchestrator.command.line import main
from orchestrator.errors import WorldError
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.process.lab import ProcessWorld
from systems import Deployed, InputError, load_system
from systems.description import RoleDescription, read
from systems.system import settings_used
from tests.systems.places import place
from tests.workloads.running import own, settings, start
from workloads.process import ClientError

Change = Callable[[Path], None]


def replaced(name: str, old: str, new: str) -> Change:
    def change(directory: Path) -> None:
        path = directory / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def both(first: Change, second: Change) -> Change:
    def change(directory: Path) -> None:
        first(directory)
        second(directory)

    return change


WRONG = """import json
from brownout_api import System

class Nothing(System):
    def __init__(self): ...

class Settings(System):
    def effective(self, role, given, time_scale):
        settings = super().effective(role, given, time_scale)
        return {"level": settings["level"]}

class Variables(System):
    def variables(self, node, cluster_id):
        return json.loads("")
"""


def steps(step: str) -> Change:
    """One step instead of faults that a seed draws."""

    def change(directory: Path) -> None:
        path = directory / "chaos.toml"
        before, _ = path.read_text().split("[nemesis]")
        path.write_text(f'{before}[nemesis]\nkind = "steps"\n[[nemesis.step]]\n{step}\n')

    return change


def role(name: str, nodes: str) -> str:
    return f'[roles.{name}]\nnodes = "{nodes}"\nports = {{ client = 1 }}\ncommand = ["a"]\n'


MISTAKES: dict[str, tuple[Change, str]] = {
    "an import that fails": (
        replaced("client.py", "import json", "import no_such_module"),
        "client.py:7: ModuleNotFoundError",
    ),
    "a syntax error": (replaced("client.py", "def close(self)", "def close(self"), "client.py:34: SyntaxError"),
    "no such class": (replaced("system.toml", "client.py:MyClient", "client.py:Client2"), "has no class Client2"),
    "a method that is missing": (
        replaced("client.py", "def write(", "def rite("),
        "MyClient does not define write",
    ),
    "a missing key": (replaced("system.toml", "ports = {", "# ports = {"), "[roles.server] ports is missing"),
    "a misspelt key": (replaced("system.toml", "start_deadline_s", "start_dedline_s"), "did you mean"),
    "an unknown role": (
        replaced("chaos.toml", "[topology]", '[system.roles]\nn1 = "sever"\n[topology]'),
        "no role 'sever'; did you mean 'server'?",
    ),
    "a role called like a table of campaigns": (
        replaced("system.toml", "[roles.server]", "[roles.swarm]"),
        "[roles] 'swarm' is not a name of a role; use small letters, digits and '_', but not the name of a campaign's",
    ),
    "two roles for all nodes": (
        replaced("system.toml", "[roles.server]", f"{role('proxy', 'all')}[roles.server]"),
        "roles: no node has the role server, because proxy takes all remaining nodes; assign roles",
    ),
    "fewer nodes than roles": (
        replaced("system.toml", "[roles.server]", f"{role('a', 'first')}{role('b', 'last')}[roles.server]"),
        "roles: no node has the role server; give [topology] more nodes",
    ),
    "no such directory": (replaced("chaos.toml", 'path = "."', 'path = "nowhere"'), "nowhere has no system.toml"),
    "a template of the command": (
        replaced("system.toml", "{{ node.name }}", "{{ nod.name }}"),
        "[roles.server] command: '{{ nod.name }}' cannot be rendered: 'nod' is undefined",
    ),
    "a port that the role does not have": (
        replaced("system.toml", "{{ node.ports.client }}", "{{ node.ports.peer }}"),
        "command: '{{ node.address }}:{{ node.ports.peer }}' cannot be rendered",
    ),
    "an expression that fails": (
        replaced("system.toml", "{{ node.name }}", "{{ node.id + 'x' }}"),
        "cannot be rendered: unsupported operand",
    ),
    "a line of a configuration file": (
        replaced("system.toml", "# [roles.server.files]", '[roles.server.files]\n"a.conf" = "mine.conf"\n#'),
        "mine.conf:2: the template cannot be rendered: a node has no attribute 'nope'",
    ),
    "a setting without a value": (
        replaced("system.toml", '"{{ node.name }}"', "\"{{ settings['level'] }}\""),
        "command: \"{{ settings['level'] }}\" cannot be rendered",
    ),
    "a client that is not a program": (
        replaced("system.toml", 'class = "client.py:MyClient"', 'command = ["./client.pl"]'),
        "system.toml:8: [client] command: the file ",
    ),
    "a client class that is not there": (
        replaced("system.toml", "client.py:MyClient", "no_client.py:MyClient"),
        "system.toml:8: [client] class: ",
    ),
    "a template that is not there": (
        replaced("system.toml", "# [roles.server.files]", '[roles.server.files]\n"a.conf" = "no.conf"\n#'),
        "[roles.server] files: 'a.conf': there is no template ",
    ),
    "a client that may not be executed": (
        replaced("system.toml", 'class = "client.py:MyClient"', 'command = ["./client.py"]'),
        "client.py is not executable; chmod +x ",
    ),
    "a client that is not in the PATH": (
        replaced("chaos.toml", "[nemesis]", '[client]\nclient_command = ["no-such-program"]\n[nemesis]'),
        "client_command: the program no-such-program is not in PATH; one beside this file is named ./no-such-program",
    ),
    "a fault on an unobservable leader": (
        replaced("chaos.toml", '"pause", ', '"partition-leader", '),
        "chaos.toml:21: [nemesis] faults: 'partition-leader' is aimed at a leader, which is unobservable in my-system",
    ),
    "a workload that the system's own client is not for": (
        replaced("system.toml", 'workloads = ["register"]', 'workloads = ["registers"]'),
        "chaos.toml:13: [workload] kind: my-system cannot be tested with 'register'; it takes: registers",
    ),
    "a setting that is misspelt": (
        both(
            replaced("system.toml", '"{{ node.name }}"', '"{{ settings.level }}"'),
            replaced("chaos.toml", "[nemesis]", "[server]\nlevel = 1\nlevle = 2\n[nemesis]"),
        ),
        "chaos.toml:21: [server] levle: no template of [roles.server] in ",
    ),
    "a setting where nothing takes one": (
        replaced("chaos.toml", "[nemesis]", "[server]\nlevel = 1\n[nemesis]"),
        "uses it, so that it would have no effect; templates use a setting as {{ settings.KEY }}",
    ),
    "a setting of one node more than there are": (
        both(
            replaced("system.toml", "start_deadline_s = 30", 'setting_argument = "{{ key }}"\nstart_deadline_s = 30'),
            replaced("chaos.toml", "[nemesis]", "[server.n7]\nlevel = 1\n[nemesis]"),
        ),
        "[server] unknown node n7; the nodes are n1 to n3",
    ),
    "a table of settings that is misspelt": (
        replaced("chaos.toml", "[nemesis]", "[sever]\nlevel = 1\n[nemesis]"),
        "chaos.toml:19: unknown key 'sever'; did you mean 'server'?",
    ),
    "a step on an unobservable controller": (
        steps('do = "kill"\nnode = "controller"'),
        "step 1 (kill controller): my-system has no controller that can be observed; name a node",
    ),
    "a cut from an unobservable controller": (
        steps('do = "cut"\nbetween = [["n1"], ["n2", "controller"]]'),
        "has no controller that can be observed",
    ),
    "a wait for a log line of an unobservable controller": (
        steps('do = "wait"\nlog = "ready"\nnode = "controller"'),
        "has no controller that can be observed",
    ),
    "an invalid class of the system": (
        replaced("system.toml", "workloads", 'class = "client.py:MyClient"\nworkloads'),
        "system.toml:5: class: MyClient is not a brownout_api.System",
    ),
    "a client that is a script": (
        replaced("client.py", "import json", "raise SystemExit(0)"),
        "client.py:7: SystemExit: 0",
    ),
    "a class of the system in a script": (
        replaced("system.toml", "workloads", 'class = "steps_of_run.py:Mine"\nworkloads'),
        "steps_of_run.py:3: SystemExit: 0",
    ),
    "a class of the system that takes nothing": (
        replaced("system.toml", "workloads", 'class = "wrong.py:Nothing"\nworkloads'),
        "wrong.py:5: TypeError: ",
    ),
    "a setting that the class stumbles over": (
        replaced("system.toml", "workloads", 'class = "wrong.py:Settings"\nworkloads'),
        "wrong.py:10: KeyError: 'level'",
    ),
    "variables that the class stumbles over": (
        replaced("system.toml", "workloads", 'class = "wrong.py:Variables"\nworkloads'),
        "wrong.py:14: JSONDecodeError: Expecting value",
    ),
    "a class of the system that raises": (
        replaced("system.toml", "workloads", 'class = "mine.py:Mine"\nworkloads'),
        "mine.py:2: RuntimeError: not today",
    ),
}


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("{{ settings.level }} {{ settings['a.b'] }}", {"level", "a.b"}),
        ("{% if settings.tls == 'on' %}{{ settings.cert }}{% endif %}", {"tls", "cert"}),
        ("{% for key, value in settings.items() %}{{ key }}{% endfor %}", None),
        ("{{ settings | tojson }}", None),
        ("{{ settings[node.name] }}", None),
        ("{% if 'level' in settings %}1{% endif %}", None),
        ("{% include 'more.conf' %}", None),
        ("{{ node.name }}", set()),
        ("{{ settings.level", None),
    ],
)
def test_the_settings_used_by_templates_are_found(tmp_path: Path, text: str, used: set[str] | None) -> None:
    role = RoleDescription(name="server", ports={"client": 1}, command=("a", text))
    assert settings_used(tmp_path, role) == used
    (tmp_path / "a.conf").write_text(text)
    in_a_file = replace(role, command=("a",), files={"a.conf": "a.conf"})
    assert settings_used(tmp_path, in_a_file) == used


def test_the_used_settings_are_unknown_without_a_template_or_with_one_argument_for_all(tmp_path: Path) -> None:
    role = RoleDescription(name="server", ports={"client": 1}, command=("a",))
    roles = [replace(role, files={"a.conf": "no.conf"}), replace(role, setting_argument="--{{ key }}={{ value }}")]
    assert [settings_used(tmp_path, each) for each in roles] == [None, None]


@pytest.mark.parametrize(
    ("collect", "said"),
    [
        (
            'files = ["*.log", "/var/x/*.log"]',
            "files: '/var/x/*.log' names nothing below the directory; start",
        ),
        ('files = [""]', "files: '' names nothing below the directory"),
        ('files = ["."]', "files: '.' names nothing below the directory"),
        ('files = ["../*.txt"]', "files: '../*.txt' names nothing below the directory"),
        ('files = ["log**/*.log"]', "files: 'log**/*.log': '**' is a part of its own, as in 'a/**/*.log'"),
        ('directory = "/etc"', "directory: '/etc' is not below a node's data directory"),
        ('directory = "log/../.."', "directory: 'log/../..' is not below a node's data directory"),
    ],
)
def test_a_path_that_cannot_be_collected_is_reported_with_its_line(tmp_path: Path, collect: str, said: str) -> None:
    text = 'name = "x"\nworkloads = ["register"]\n[roles.a]\nports = { client = 1 }\ncommand = ["a"]\n[collect]\n'
    (tmp_path / "system.toml").write_text(text + collect)
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert f"system.toml:7: [collect] {said}" in str(caught.value)
    (tmp_path / "system.toml").write_text(text + 'directory = "a/b"\nfiles = ["*", "**/*.log", "c/**/d*/e.f", ".x"]')
    assert read(tmp_path).collect.files == ("*", "**/*.log", "c/**/d*/e.f", ".x")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../x", "is not below a node's configuration directory; start with a name"),
        ("a/../../x", "is not below a node's configuration directory"),
        ("/etc/passwd", "is not below a node's configuration directory"),
        (".", "is not below a node's configuration directory"),
        ("data", "cannot be written there, because Brownout has a file of that name"),
        ("earlier/x", "cannot be written there"),
        ("service.log", "cannot be written there"),
    ],
)
def test_a_path_outside_of_the_configuration_is_reported_with_its_line(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        fill(tmp_path, f'[roles.server.files]\n"a.conf" = "a.j2"\n"{path}" = "a.j2"\n')
    assert f"system.toml:8: [roles.server.files] {path}: {said}" in str(caught.value)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_reported_before_any_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mistake: str
) -> None:
    change, said = MISTAKES[mistake]
    assert main(["init", str(tmp_path / "mine")]) == 0
    (tmp_path / "mine" / "mine.py").write_text("\nraise RuntimeError('not today')\n")
    (tmp_path / "mine" / "steps_of_run.py").write_text("import sys\n\nsys.exit(0)\n")
    (tmp_path / "mine" / "wrong.py").write_text(WRONG)
    (tmp_path / "mine" / "mine.conf").write_text("ok\n{{ node.nope }}\n")
    change(tmp_path / "mine")
    if "fewer nodes" in mistake:
        replaced("chaos.toml", "nodes = 3", "nodes = 2")(tmp_path / "mine")
    capsys.readouterr()
    assert main(["run", str(tmp_path / "mine" / "chaos.toml"), "--dry-run"]) == 64
    error = capsys.readouterr().err
    assert said in error
    assert str(tmp_path) in error, "it names the file"


def test_a_system_in_the_checkout_is_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("systems.description.PROJECT_ROOT", tmp_path)
    mine = tmp_path / "my-tests"
    assert main(["init", str(mine)]) == 0
    assert read(mine).own_directory == (str(mine),)
    assert Deployed(load_system("my-system", directory=mine), ("server",), "cluster").software.own_directory == mine
    replaced("system.toml", "{{ node.name }}", "{{ node.nope }}")(mine)
    capsys.readouterr()
    assert main(["run", str(mine / "chaos.toml"), "--dry-run"]) == 64
    assert "[roles.server] command: '{{ node.nope }}' cannot be rendered" in capsys.readouterr().err


def test_a_setting_missing_in_one_cell_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "mine")]) == 0
    replaced("system.toml", "{{ node.name }}", "{{ settings.level }}")(tmp_path / "mine")
    with (tmp_path / "mine" / "chaos.toml").open("a") as campaign:
        campaign.write('[[cell]]\nname = "with"\nserver = { level = "1" }\n[[cell]]\nname = "without"\n')
    dry = ["run", str(tmp_path / "mine" / "chaos.toml"), "--dry-run"]
    assert main([*dry, "--cell", "with"]) == 0
    capsys.readouterr()
    assert main(dry) == 64
    assert "command: '{{ settings.level }}' cannot be rendered" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("ok\n{{ node.nope }}\n", "server.conf:2: the template cannot be rendered: a node has no attribute 'nope'"),
        ("ok\n\n{% if %}\n", "server.conf:3: the template cannot be rendered"),
        ("{{ settings.nope }}", "server.conf:1: "),
    ],
)
def test_a_template_names_its_line(tmp_path: Path, template: str, said: str) -> None:
    (tmp_path / "server.conf").write_text(template)
    with pytest.raises(InputError) as error:
        fill(tmp_path, '[roles.server.files]\n"server.conf" = "server.conf"\n')
    assert said in str(error.value)


def test_a_command_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        fill(tmp_path, '[roles.server.environment]\nHOME = "{{ home }}"\n')
    assert "system.toml:7: [roles.server] environment.HOME: '{{ home }}' cannot be rendered" in str(error.value)


def fill(directory: Path, more: str) -> None:
    text = 'name = "x"\nworkloads = ["register"]\n[roles.server]\ncommand = ["true"]\nports = { client = 1 }\n'
    (directory / "system.toml").write_text(text + more)
    Deployed(load_system("x", directory=directory), ("server",), "cluster").service(place(1), [place(1)])


BAD_LUCK: dict[str, tuple[str, str]] = {
    "it ends at its start": (
        "#!/bin/sh\necho no licence key\nexit 3\n",
        "ended at its start; its last words: no licence",
    ),
    "it never listens": (
        "#!/bin/sh\necho thinking\nexec sleep 600\n",
        "did not open within 0.5 s; see ports and start_deadline_s in its system.toml; its last words: think",
    ),
    "it is not a program": ("", "my-server cannot be started: [Errno 13]"),
    "its script finds no program": ("#!/bin/sh\nexec no-such-program\n", "my-server cannot be started, or is a script"),
    "its port is in use": (
        "#!/bin/sh\nexec python3 -c \"import socket; a = socket.create_server(('127.0.0.1', 0)); "
        'socket.create_server(a.getsockname())"\n',
        "Address already in use",
    ),
}


@pytest.mark.parametrize("luck", BAD_LUCK)
def test_a_failed_start_names_the_node_and_its_last_lines(tmp_path: Path, luck: str) -> None:
    program, said = BAD_LUCK[luck]
    (tmp_path / "my-server").write_text(program)
    if program:
        (tmp_path / "my-server").chmod(0o755)
    (tmp_path / "system.toml").write_text(
        'name = "x"\nworkloads = ["register"]\n[roles.server]\ncommand = ["{{ system_dir }}/my-server"]\n'
        f"ports = {{ client = 1 }}\nstart_deadline_s = {0.5 if 'never' in luck else 30}\n"
    )
    deployed = Deployed(load_system("x", directory=tmp_path), ("server",), "cluster")
    world = ProcessWorld(WorldSpec("r", tmp_path / "run", 1, deployed))
    world.up()
    try:
        with pytest.raises(HostError if "program" in luck else WorldError) as error:
            world.start_service(world.nodes[0])
        assert said in str(error.value)
        assert str(error.value).startswith("n1: ")
    finally:
        pid = world.hosts["n1"].service_pid()
        world.down()
    assert pid is None or not Path(f"/proc/{pid}").exists(), "nothing is left running"


def test_a_failed_final_read_names_the_method_that_broke_its_contract(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from brownout_api import RegisterClient\n\n\nclass Mine(RegisterClient):\n    def read(self, key):\n"
        "        return '17'\n\n    def write(self, key, value): ...\n\n"
        "    def compare_and_set(self, key, expected, new): ...\n"
    )
    its = settings(
        tmp_path,
        "register",
        "reader",
        1,
        own=own(tmp_path, "", client_class=f"{tmp_path}/mine.py:Mine"),
        parameters={"keys": 1},
    )
    reader = start("register", "reader", its, tmp_path)
    try:
        with pytest.raises(ClientError, match=r"mine\.py:5: Mine\.read returned '17', not the key's value or None"):
            reader.read_all(0, 3.0)
    finally:
        reader.close()
