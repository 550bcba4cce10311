"""Counts idioms in the prose of the project: comments, docstrings, strings and Markdown.

    python -m tests.house.plain_words [--list]

The patterns are words and phrases with which prose hides its subject or delays its verb. The count is a measure: a
sentence may use one where it is the plain word. Well-read code bases of this field have 0 to 12 hits in 10,000 words.
"""

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
EXEMPT: Final = ("tests/", "CHANGELOG.md")
IDIOMS: Final = {
    "a person for a process": r"\b(nobody|somebody|anybody)\b|\b(whom|whoever)\b"
    r"|\bwho (asks|leads|reads|comes|knows|waits|has|is|was|had|looks|gets|else|wants|speaks|reaches|writes)\b",
    "tell for report": r"\b(told|tells|tell)\b",
    "anew for again": r"\banew\b",
    "is none, is no ...": r"\b(is|are|was|were) (none|no)\b",
    "lie for be": r"\b(lies|lie|lay)\b",
    "of which, of whom": r"\bof (which|whom|what|whose)\b",
    "come to for result in": r"\b(come|comes|came) to\b",
    "by itself for automatically": r"\bby (itself|themselves)\b",
    "so many, so long": r"\bso (many|much|often|long|little)\b",
    "begin for start": r"\bbeg[iau]n(s|ning)?\b",
    "have it do": r"\b(let|lets|has|have) (it|them|a|an|the|no|each|every|\w+s) (be|go|do|come|lead|take|give)\b",
}
IDIOM: Final = re.compile("|".join(IDIOMS.values()), re.IGNORECASE)
RIDDLE: Final = re.compile(
    r"\b(who|whose|what|nothing|diary|picture|deed)s?\b|^test (of|where|it|its|they|those|others) "
)
"""In a name of a test: a word in the place of the component, or a start without it."""
TERMS: Final = ("begin_quorum_epoch",)
"""Names of the protocol that contain an idiom."""
_WORD: Final = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True)
class Prose:
    """The prose of one file: its lines with their numbers."""

    path: Path
    lines: list[tuple[int, str]]

    @functools.cached_property
    def words(self) -> int:
        return sum(len(_WORD.findall(line)) for _, line in self.lines)

    @functools.cached_property
    def hits(self) -> list[tuple[int, str]]:
        """Each line with an idiom, once per idiom."""
        return [(number, line) for number, line in self.lines for _ in IDIOM.finditer(line)]


def per_10_000(prose: list[Prose]) -> float:
    """Idioms in 10,000 words."""
    words = sum(each.words for each in prose)
    return sum(len(each.hits) for each in prose) * 10_000 / words if words else 0.0


def riddles() -> list[str]:
    """`path: name` of each test module, class and function, and each parameter's id, that has an idiom or a riddle."""
    return [f"{_name(path)}: {name}" for path, name in names_of_tests() if is_riddle(name)]


def is_riddle(name: str) -> bool:
    """Whether a name of a test has an idiom, or hides the component behind a pronoun."""
    for term in TERMS:
        name = name.replace(term, "")
    words = name.replace("_", " ")
    return IDIOM.search(words) is not None or RIDDLE.search(words) is not None


@functools.cache
def names_of_tests() -> list[tuple[Path, str]]:
    """The tracked test modules with the names that pytest shows: of modules, classes, functions, and literal ids."""
    return [
        (path, name)
        for path in _tracked("tests/*.py")
        for name in (path.stem, *_shown_by_pytest(ast.parse(path.read_text(encoding="utf-8"))))
    ]


def _shown_by_pytest(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.startswith(("test_", "Test")):
                yield node.name
        elif isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
            yield from (
                each.value
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


@functools.cache
def project() -> list[Prose]:
    """The prose of every tracked Python and Markdown file outside of `EXEMPT`."""
    return [prose_of(path) for path in _tracked("*.py", "*.md") if not _name(path).startswith(EXEMPT)]


def prose_of_tests() -> list[Prose]:
    """The prose of every tracked Python file of the tests, without the patterns of this module and its test."""
    return [prose_of(path) for path in _tracked("tests/*.py") if not path.stem.endswith("plain_words")]


def _tracked(*patterns: str) -> list[Path]:
    """The tracked files with these names that exist in the work tree."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", *patterns], capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose_of(path: Path) -> Prose:
    """All lines of a Markdown file; of a Python file its comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return Prose(path, list(enumerate(text.splitlines(), 1)))
    return Prose(path, list(_of_python(text)))


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.type in strings:
            for offset, line in enumerate(_without_expressions(token.string).splitlines()):
                yield token.start[0] + offset, line


def _without_expressions(string: str) -> str:
    """An f-string without what it evaluates, which is code; before Python 3.12 it is one token."""
    is_formatted = re.match(r"(?i)[rbu]?f[rbu]?[\"']", string) is not None
    return re.sub(r"\{[^{}\n]*\}", "", string) if is_formatted else string


def main(arguments: list[str]) -> None:
    """Print the count of each idiom, and with `--list` each place, worst files first."""
    prose = project()
    words = sum(each.words for each in prose)
    for name, pattern in IDIOMS.items():
        found = sum(len(re.findall(pattern, line, re.IGNORECASE)) for each in prose for _, line in each.lines)
        print(f"{found * 10_000 / words:8.1f}  {name} ({found})")
    print(f"{per_10_000(prose):8.1f}  in all, in {words} words")
    if "--list" in arguments:
        for each in sorted(prose, key=lambda it: -len(it.hits)):
            for number, line in each.hits:
                print(f"{_name(each.path)}:{number}: {line.strip()[:160]}")


if __name__ == "__main__":
    main(sys.argv[1:])
