"""Prepares a node's data disk: finds it, makes a filesystem on an empty disk, and makes its mount point.

The disk is found by its serial (`/sys/block/*/serial`, in whatever order disks appear) or named by its device; without
both, the data is a directory on the root filesystem. Other data is never touched: a filesystem is ours if it has our
label, a directory if it has the note that is left in `note`.
"""

from __future__ import annotations

import glob
import os

from ansible.module_utils.basic import AnsibleModule

LABEL = "brownout"
# Initialized later in the background, so that a data disk of any size is ready in a tenth of a second.
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-L", LABEL, "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-K", "-L", LABEL],
}
_SERIALS = ("serial", "device/serial")
_LOOKED_AT = 1 << 20


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "serial": {"type": "str", "default": ""},
            "device": {"type": "str", "default": ""},
            "filesystem": {"type": "str", "choices": sorted(MKFS), "default": "ext4"},
            "directory": {"type": "path", "required": True},
            "note": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    directory, note = os.path.normpath(module.params["directory"]), module.params["note"]
    if directory in ("/", "/etc", "/home", "/opt", "/root", "/run", "/tmp", "/usr", "/var"):
        module.fail_json(msg=f"brownout_data_dir is {directory}, which is not Brownout's alone; name another directory")
    device = find(module)
    made = False
    if device is not None:
        made = prepare(module, device, directory)
    elif not os.path.ismount(directory):
        refuse_foreign(module, directory, note)
    noted = read(note) == f"{directory}\n"
    if not module.check_mode:
        os.makedirs(directory, exist_ok=True)
        if not noted:
            os.makedirs(os.path.dirname(note), exist_ok=True)
            with open(note, "w", encoding="utf-8") as text:
                text.write(f"{directory}\n")
    module.exit_json(
        changed=made or not noted,
        device=device,
        made=made,
        mounted=device is None or os.path.ismount(directory),
        uuid=None if device is None else probe(module, device).get("UUID", "not-made-yet"),
    )


def find(module: AnsibleModule) -> str | None:
    """The disk's device; None where the data is a plain directory."""
    serial, device = module.params["serial"], module.params["device"]
    if not serial and not device:
        return None
    if not serial:
        if not os.path.exists(device):
            module.fail_json(msg=f"the node has no {device} (brownout_data_device); it has {disks()}")
        return os.path.realpath(device)
    found = [name for name, its in serials().items() if its == serial]
    if len(found) != 1:
        many = "no disk has" if not found else f"{' and '.join(sorted(found))} both have"
        module.fail_json(msg=f"{many} the serial {serial!r} (brownout_data_serial); the node has {disks()}")
    return f"/dev/{found[0]}"


def prepare(module: AnsibleModule, device: str, directory: str) -> bool:
    """Make a filesystem on an empty device. Returns whether it did, or (in check mode) would."""
    wanted = module.params["filesystem"]
    mounted = mount_points(device)
    if mounted and mounted != [directory]:
        module.fail_json(msg=f"{device} is in use: it is mounted at {', '.join(mounted)}")
    if not mounted and os.path.ismount(directory):
        module.fail_json(msg=f"{directory} has another filesystem mounted; unmount it, or change brownout_data_dir")
    held = probe(module, device)
    if held.get("LABEL") == LABEL and held.get("TYPE") == wanted:
        return False
    if held:
        what = " ".join(f"{key}={held[key]}" for key in ("TYPE", "PTTYPE", "LABEL") if key in held) or str(held)
        refuse(module, device, f"holds something other than Brownout's {wanted}: {what}")
    with open(device, "rb") as raw:
        if any(raw.read(_LOOKED_AT)):
            refuse(module, device, "is not empty, although it has no known filesystem")
    if not module.check_mode:
        program, *options = MKFS[wanted]
        module.run_command([module.get_bin_path(program, required=True), *options, device], check_rc=True)
    return True


def refuse(module: AnsibleModule, device: str, why: str) -> None:
    module.fail_json(
        msg=f"{device} {why}. Nothing was changed. If its content is not needed, empty it by hand on this node: "
        f"wipefs --all {device} && dd if=/dev/zero of={device} bs=1M count=1"
    )


def refuse_foreign(module: AnsibleModule, directory: str, note: str) -> None:
    """`wipe` will empty the directory: it must have been empty, or Brownout's, before."""
    if not os.path.isdir(directory) or read(note) == f"{directory}\n":
        return
    held = sorted(set(os.listdir(directory)) - {"lost+found"})
    if held:
        module.fail_json(
            msg=f"{directory} (brownout_data_dir) has files that are not Brownout's: {', '.join(held[:5])}. "
            "Nothing was changed. Empty it by hand on this node, or name another directory"
        )


def probe(module: AnsibleModule, device: str) -> dict[str, str]:
    """The device's content, read from the device itself: TYPE, LABEL, UUID, PTTYPE; empty if it is unknown."""
    code, said, complained = module.run_command(
        [module.get_bin_path("blkid", required=True), "--probe", "--output", "export", device]
    )
    if code not in (0, 2):
        module.fail_json(msg=f"blkid cannot identify the content of {device} ({code})", stdout=said, stderr=complained)
    values = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    return {key: value for key, value in values.items() if key in ("TYPE", "LABEL", "UUID", "PTTYPE")}


def mount_points(device: str) -> list[str]:
    """Where the device is mounted, by its number, because device names change."""
    number = os.stat(device).st_rdev
    here = f"{os.major(number)}:{os.minor(number)}"
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        fields = [line.split() for line in mounts]
    return sorted({field[4] for field in fields if field[2] == here})


def serials() -> dict[str, str]:
    """The serial of each disk that has one."""
    found = {}
    for block in sorted(glob.glob("/sys/block/*")):
        for name in _SERIALS:
            serial = (read(f"{block}/{name}") or "").strip()
            if serial:
                found[os.path.basename(block)] = serial
                break
    return found


def disks() -> str:
    known = serials()
    names = sorted(name for name in os.listdir("/sys/block") if not name.startswith(("loop", "ram", "zram")))
    return ", ".join(f"{name} (serial {known.get(name, 'none')})" for name in names) or "no disks"


def read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as text:
            return text.read()
    except OSError:
        return None


if __name__ == "__main__":
    main()
