"""Texts of others, made fit to be shown."""

import os
import subprocess
import sys
from xml.etree import ElementTree

from installation.commands import joined
from installation.sanitize import shortened, visible, visible_line


def test_terminal_control_characters_are_shown_escaped() -> None:
    assert (
        visible("\x1b[31mred\x07\r\n\tnext \x9b \u202e \udcff")
        == r"\x1b[31mred\x07\x0d" + "\n\tnext " + r"\x9b \u202e \udcff"
    )
    assert visible("grün ✔ 中文 \U0001f600") == "grün ✔ 中文 \U0001f600"


def test_a_line_stays_one() -> None:
    assert visible_line("a\nb\tc\u2028d") == r"a\nb\tc\u2028d"


def test_every_character_is_valid_in_xml() -> None:
    everything = "".join(map(chr, range(0x11000)))
    element = ElementTree.Element("x", a=visible(everything))
    assert ElementTree.fromstring(ElementTree.tostring(element, encoding="utf-8")).tag == "x"


def test_a_shortened_text_keeps_its_start_and_its_end() -> None:
    assert shortened("short", 10) == "short"
    assert shortened("a" * 50 + "b" * 50, 10) == "aaaaa ... (90 characters left out) ... bbbbb"


def test_a_command_to_copy_stays_on_one_line_and_means_the_same() -> None:
    arguments = ["plain", "with space", "it's", "two\nlines", "\x1b[2Jred", "grün", "\udcff", "", "a\\b", "$HOME `x`"]
    text = joined(arguments)
    assert "\n" not in text
    assert visible(text) == text
    program = "import os, sys; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])))"
    script = f"{joined([sys.executable, '-c', program])} {text}"
    shell = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert shell.stdout.split(b"|") == list(map(os.fsencode, arguments))
