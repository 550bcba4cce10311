"""What the roles want to know of a node, in one round trip: far less than Ansible's own facts, and far quicker."""

from __future__ import annotations

import os
import shutil

from ansible.module_utils.basic import AnsibleModule

_UNIT_DIRECTORIES = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
_ADMINISTRATION = "/usr/local/sbin:/usr/sbin:/sbin"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "default": {}},
            "services": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    systemd = os.path.isdir("/run/systemd/system")
    path = f"{os.environ.get('PATH', '')}:{_ADMINISTRATION}"
    facts = {
        "systemd": systemd,
        "packages_absent": sorted(
            {package for program, package in module.params["packages"].items() if not shutil.which(program, path=path)}
        ),
        "services_on": services_on(module, module.params["services"]) if systemd else [],
    }
    module.exit_json(changed=False, ansible_facts={"brownout_node": facts})


def services_on(module: AnsibleModule, services: list[str]) -> list[str]:
    """Those of the services that run, or would after a boot."""
    installed = [f"{name}.service" for name in services if any(map(os.path.exists, unit_files(name)))]
    if not installed:
        return []
    _, said, _ = module.run_command(
        ["systemctl", "show", "--property=Id,ActiveState,UnitFileState", *installed], check_rc=True
    )
    units = [dict(line.split("=", 1) for line in block.splitlines()) for block in said.strip().split("\n\n")]
    return [
        unit["Id"]
        for unit in units
        if unit["UnitFileState"] == "enabled" or unit["ActiveState"] not in ("inactive", "failed")
    ]


def unit_files(name: str) -> list[str]:
    return [f"{directory}/{name}.service" for directory in _UNIT_DIRECTORIES]


if __name__ == "__main__":
    main()
