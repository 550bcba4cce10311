"""Makes the content of a node's image: a root filesystem, the initial RAM disk, the disk and the Vagrant box.

The root filesystem is made from Debian's packages (`install`). It becomes a node's (`customize`): our files, its user,
its units and the broker's packages are added, and the rest is removed. The initial RAM disk is a shell script, busybox,
and the drivers of virtual disks and networks, uncompressed: an emulated machine needs eight seconds to unpack Debian's
own (30 MB, compressed). This one has 3 MB.
"""

import glob
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path

import nodeimage.modules as modules
import nodeimage.recipe as recipe
from installation.programs import run_program
from nodeimage.errors import ImageError
from nodeimage.programs import run
from nodeimage.python_packages import PythonPackages

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_INDEX_FIELDS = "$(REPO_URI) $(CODENAME) $(ORIGIN) $(COMPONENT)"
# Lines of mmdebstrap's output, and the progress messages for them.
_PHASES = (
    (re.compile(r"^I: running apt-get update"), "reading Debian's package lists"),
    (re.compile(r"^I: downloading packages with apt"), "downloading the base system"),
    (re.compile(r"^I: installing essential packages"), "installing the base system"),
    (re.compile(r"^I: (downloading|installing) remaining packages"), "installing the kernel, systemd, sshd and Python"),
    (re.compile(r"^I: cleaning"), "cleaning the package lists"),
)
_NETWORK_TROUBLE = re.compile(
    r"Could not resolve|Temporary failure|Unable to connect|Could not connect|Connection (refused|timed out|failed)"
    r"|Network is unreachable|Failed to fetch|Could not handshake"
)
_SPACE_TROUBLE = re.compile(r"No space left on device|Disk quota exceeded")


def install(rootfs: Path, log: Path, on_progress: Callable[[str], None], options: Collection[str] = ()) -> None:
    """Install the recipe's packages, and those of its options, into the new directory `rootfs`.

    Raises `ImageError`."""
    packages = [*recipe.PACKAGES, *(package for option in sorted(options) for package in recipe.OPTIONS[option])]
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--architectures={recipe.DEBIAN_ARCHITECTURE}",
        f"--include={','.join(packages)}",
        '--aptopt=Apt::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        "--dpkgopt=force-unsafe-io",
        # Java's installation puts links into this directory, and fails without it; dpkg unpacks nothing into it.
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--dpkgopt=path-exclude={path}" for path in recipe.EXCLUDED_PATHS),
        *([f"--keyring={_KEYRING}"] if _KEYRING.exists() else []),
        recipe.SUITE,
        str(rootfs),
        *package_sources(),
    ]
    reported: set[str] = set()

    def tell(line: str) -> None:
        for pattern, phase in _PHASES:
            if pattern.search(line) and phase not in reported:
                reported.add(phase)
                on_progress(phase)

    # INITRD: the kernel package must not make an initrd; ours has a hundredth of the size.
    try:
        run(command, contained=True, on_line=tell, environment={"INITRD": "No"}, log=log)
    except ImageError as error:
        raise ImageError(f"{error}\n{_advice(str(error))} (whole log: {log})") from None


def package_sources() -> list[str]:
    """The sources.list lines from which this machine gets the suite's packages; empty: mmdebstrap's default.

    A Debian of the same suite has the nearest mirror configured, or the only one that it can reach."""
    suites = (recipe.SUITE, f"{recipe.SUITE}-updates", f"{recipe.SUITE}-security")
    try:
        listed = run_program(
            ["apt-get", "indextargets", "--format", _INDEX_FIELDS, "Created-By: Packages"], check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    sources: dict[str, None] = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[1] in suites and fields[2:] == ["Debian", "main"]:
            sources[f"deb {fields[0]} {fields[1]} main"] = None
    return list(sources) if any(f" {recipe.SUITE} " in source for source in sources) else []


def _advice(output: str) -> str:
    if _SPACE_TROUBLE.search(output):
        return "the disk is full: free 2 GB, then run the same command again"
    if _NETWORK_TROUBLE.search(output):
        return "Debian's mirror cannot be reached: check the network (and apt's proxy), then run the same command again"
    if "Operation not permitted" in output or "Permission denied" in output:
        return "this machine does not let root mount filesystems (a container without CAP_SYS_ADMIN?)"
    return "run the same command again; if it fails the same way, try `apt-get update` first"


SITE = "opt/brownout/site"
SITE_KEY = "opt/brownout/site.key"
_UNITS = Path("etc/systemd/system")
_HOST_NAME = "node"


def customize(rootfs: Path, guest: Path, site: PythonPackages) -> None:
    """Turn the root filesystem of `contents.install` into a node's. Raises `ImageError`."""
    modules.prune(rootfs, recipe.MODULES)
    _remove(rootfs)
    copy_guest(guest, rootfs)
    _name(rootfs)
    _let_in(rootfs)
    _choose_units(rootfs)
    _add_site(rootfs, site)
    # Under emulation, reading a compiled module is ten times as fast as compiling it.
    run(["chroot", rootfs, "python3", "-m", "compileall", "-q", "-j", "0", "/usr/lib/python3.11", f"/{SITE}"])


def copy_guest(guest: Path, rootfs: Path) -> None:
    """Copy the tree of our files. Permissions follow from the kind of file, not from the checkout's umask."""
    for path in sorted(guest.rglob("*")):
        target = rootfs / path.relative_to(guest)
        if path.is_dir():
            target.mkdir(mode=0o755, exist_ok=True)
            continue
        target.unlink(missing_ok=True)
        shutil.copyfile(path, target)
        target.chmod(_mode(path, guest))


def _mode(path: Path, guest: Path) -> int:
    if path.relative_to(guest).parts[:2] == ("etc", "sudoers.d"):
        return 0o440
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _remove(rootfs: Path) -> None:
    for pattern in recipe.REMOVED_PATHS:
        for name in glob.glob(str(rootfs / pattern)):
            path = Path(name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _name(rootfs: Path) -> None:
    etc = rootfs / "etc"
    (etc / "hostname").write_text(f"{_HOST_NAME}\n", encoding="utf-8")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {_HOST_NAME}\n", encoding="utf-8")
    (etc / "fstab").write_text("", encoding="utf-8")
    (etc / "resolv.conf").unlink(missing_ok=True)
    (etc / "resolv.conf").write_text("", encoding="utf-8")
    # A machine with an id does not take each boot for its first boot.
    (etc / "machine-id").write_text(hashlib.sha256(recipe.BOX_NAME.encode()).hexdigest()[:32] + "\n", encoding="utf-8")


def _let_in(rootfs: Path) -> None:
    # `*` allows no password; `!`, useradd's default, would lock the account and reject keys, too.
    run(["chroot", rootfs, "useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", recipe.USER])
    for home in (f"home/{recipe.USER}", "root"):
        directory = rootfs / home / ".ssh"
        directory.mkdir(exist_ok=True)
        directory.chmod(0o700)
        (directory / "authorized_keys").write_text(f"{recipe.USER_KEY}\n", encoding="utf-8")
        (directory / "authorized_keys").chmod(0o600)
    run(["chroot", rootfs, "chown", "-R", f"{recipe.USER}:{recipe.USER}", f"/home/{recipe.USER}"])


def _choose_units(rootfs: Path) -> None:
    units = rootfs / _UNITS
    for wants in units.glob("*.wants"):
        for name in (*recipe.DISABLED_UNITS, *recipe.MASKED_UNITS):
            (wants / name).unlink(missing_ok=True)
    for name in recipe.MASKED_UNITS:
        _link(units / name, "/dev/null")
    for name in recipe.MASKED_GENERATORS:
        _link(rootfs / "etc" / "systemd" / "system-generators" / name, "/dev/null")
    for unit, target in recipe.ENABLED_UNITS.items():
        _link(units / f"{target}.wants" / Path(unit).name, unit)
    _link(units / "default.target", "/lib/systemd/system/multi-user.target")
    # It forbids logins until a unit that is masked here allows them.
    _link(rootfs / "etc" / "tmpfiles.d" / "systemd-nologin.conf", "/dev/null")


def _link(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _add_site(rootfs: Path, site: PythonPackages) -> None:
    directory = rootfs / SITE
    directory.mkdir(parents=True)
    run(["tar", "--extract", "--gzip", "--no-same-owner", "--file", site.archive, "--directory", directory])
    (rootfs / SITE_KEY).write_text(f"{site.key}\n", encoding="utf-8")


# ---- The initial RAM disk.

_DIRECTORIES = ("bin", "dev", "modules", "proc", "root", "sys")
_CONSOLE = (5, 1)


def make_initrd(rootfs: Path, init: Path, drivers: tuple[str, ...], destination: Path) -> None:
    """Write the initrd for the kernel of `rootfs`. Raises `ImageError`."""
    directory = rootfs / "lib" / "modules" / modules.kernel_version(rootfs)
    order = modules.load_order(
        modules.read_dependencies((directory / "modules.dep").read_text(encoding="utf-8")), drivers
    )
    archive = Cpio()
    for name in _DIRECTORIES:
        archive.directory(name)
    archive.device("dev/console", *_CONSOLE)
    archive.file("init", init.read_bytes(), executable=True)
    archive.file("bin/busybox", (rootfs / "bin" / "busybox").read_bytes(), executable=True)
    for path in order:
        archive.file(f"modules/{Path(path).name}", (directory / path).read_bytes())
    archive.file("modules/order", (" ".join(Path(path).name for path in order) + "\n").encode())
    destination.write_bytes(archive.finished())


class Cpio:
    """An archive in the kernel's format ("newc"). Equal entries give equal bytes."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._entries = 0

    def directory(self, name: str) -> None:
        self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, content: bytes, *, executable: bool = False) -> None:
        self._entry(name, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def device(self, name: str, major: int, minor: int) -> None:
        self._entry(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def finished(self) -> bytes:
        self._entry("TRAILER!!!", 0)
        return self._out.getvalue()

    def _entry(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self._entries += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, dev (2), rdev (2), length of the name, checksum
        fields = (self._entries, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
        self._padded(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        self._padded(content)

    def _padded(self, data: bytes) -> None:
        self._out.write(data + b"\0" * (-len(data) % 4))


# ---- The disk and the box.


def make_disk(rootfs: Path, disk: Path) -> None:
    """Make one ext4 filesystem without partitions, filled from a directory, without mounting. Raises `ImageError`."""
    raw = disk.with_suffix(".raw")
    try:
        with open(raw, "wb") as file:
            file.truncate(recipe.DISK_BYTES)
        # mkfs does now what a new filesystem postpones until its first mount: machines boot more often.
        layout = "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
        run(["mke2fs", "-q", "-t", "ext4", "-L", recipe.DISK_LABEL, "-m", "0", "-E", layout, "-d", rootfs, raw])
        run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk])
    finally:
        raw.unlink(missing_ok=True)


def make_box(disk: Path, vagrantfile: Path, box: Path) -> None:
    """The disk as a box for Vagrant's libvirt provider: uncompressed, so that Vagrant only copies it."""
    metadata = box.with_suffix(".json")
    gigabytes = -(-recipe.DISK_BYTES // (1 << 30))
    metadata.write_text(
        json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": gigabytes}), encoding="utf-8"
    )
    try:
        with tarfile.open(box, "w") as archive:
            for path, name in ((metadata, "metadata.json"), (vagrantfile, "Vagrantfile"), (disk, "box.img")):
                archive.add(path, name)
    finally:
        metadata.unlink(missing_ok=True)
