"""A name of a directory that no program can misread, whatever the names above it are."""

import os
import subprocess
import sys
from pathlib import Path

from installation.plain_paths import PlainPath

MISREAD = "a b'c\"d$e;f,g%h:ü\\\nx"
"""What some program or other that paths are given to takes for something else than a part of a name."""


def test_a_plain_path_stays_unchanged(tmp_path: Path) -> None:
    place = PlainPath(tmp_path / "not-there_yet.1")
    assert place.path == str(tmp_path / "not-there_yet.1")
    place.close()
    assert not (tmp_path / "not-there_yet.1").exists()


def test_another_path_has_a_plain_name_until_it_is_closed(tmp_path: Path) -> None:
    odd = tmp_path / MISREAD
    place = PlainPath(odd)
    assert MISREAD not in place.path
    assert place.path.replace("/", "").isalnum()
    writes = f"open({place.path + '/file'!r}, 'w').write('there')"
    subprocess.run([sys.executable, "-c", writes], check=True)
    assert (odd / "file").read_text(encoding="utf-8") == "there"
    place.close()
    place.close()
    assert not os.path.exists(f"{place.path}/file")
