"""Turns a Debian into a node: adds our files, its user, its units and the broker's packages, and removes the rest."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from pathlib import Path

import nodeimage.modules as modules
import nodeimage.recipe as recipe
from nodeimage.programs import run
from nodeimage.python_packages import PythonPackages

SITE = "opt/brownout/site"
SITE_KEY = "opt/brownout/site.key"
_UNITS = Path("etc/systemd/system")
_HOST_NAME = "node"


def customize(rootfs: Path, guest: Path, site: PythonPackages) -> None:
    """Turn the root filesystem of `debian.install` into a node's. Raises `ImageError`."""
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
