"""The verdict over one run: pass, fail or unknown, and why.

A fail is final: a proven anomaly remains a fail whatever else could not be decided, and the reasons of a failed run
name both. Anything that is missing (too few operations, an unconfirmed fault, an unfinished final read, a checker that
crashed) makes a run unknown, never pass.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from analysis.core.anomaly import NOT_SHOWN, Anomaly
from history import strict_json
from history.field_types import ONE_OR_MORE, one_of
from history.known_digests import digest_of
from history.regular_files import read_bytes, replace_text
from installation.commands import command
from installation.counted import counted

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
VERDICT_FILE = "verdict.json"
CERTIFICATE: Final = "certificate"
"""The directory of the proof of a pass, and the name of the check that verified it."""
NOT_APPLICABLE = "n/a"
"""The verdict of a checker that has nothing to check in this run; it does not affect the run's verdict."""
BESIDES: Final = "besides, undecided: "
"""The prefix of a failed run's reasons that are not proofs of its failure."""


@dataclass(frozen=True)
class Check:
    """The result of one checker: its verdict, a sentence of detail, and the seconds it took."""

    name: str
    verdict: str
    detail: str
    seconds: float = 0.0


class Expectation(msgspec.Struct, frozen=True):
    """The required result of each run of a campaign's cell: its table `expect`, and that of run.toml.
    `analysis.expectation` decides whether a run meets it."""

    verdict: Annotated[str, one_of((PASS, FAIL, UNKNOWN))] = PASS
    """The verdict that each run of the cell must have."""
    anomaly: str | None = None
    """With `fail`, needed: the anomaly that the run must show ([anomalies](anomalies.md))."""
    at_least: Annotated[int, Meta(ge=1)] | None = None
    """With `fail`: the number of the cell's runs that must show the anomaly; its other runs may pass. Without the key
    every run must show it."""
    reasons: Annotated[tuple[str, ...], Meta(extra_json_schema=ONE_OR_MORE)] = msgspec.field(default=(), name="reason")
    """With `unknown`, needed: the code of the reason, or a list of codes. The run must have at least one of them, and
    no other."""
    must_hold: tuple[str, ...] = ()
    """With `fail`: what the run must not show besides: a list of the words below."""
    may_show: tuple[str, ...] = ()
    """With `fail`: anomalies that may accompany the expected one: of a class that stands alone, such as
    `unexpected-exit` of a broker that finds its metadata wrong; or of any class, as exceptions from
    `no-other-anomaly`."""

    def __str__(self) -> str:
        named = (*((self.anomaly,) if self.anomaly else ()), *self.reasons)
        least_runs = f"; in at least {counted(self.at_least, 'run')}" if self.at_least else ""
        least_runs += f"; must hold: {', '.join(self.must_hold)}" if self.must_hold else ""
        least_runs += f"; may show: {', '.join(self.may_show)}" if self.may_show else ""
        return self.verdict + (f" ({' or '.join(named)}{least_runs})" if named or least_runs else "")

    def to_toml(self) -> dict[str, Any]:
        """As run.toml and campaigns have it; keys without a value are left out."""
        return {key: value for key, value in msgspec.to_builtins(self).items() if value}


@dataclass(frozen=True)
class Cost:
    """What an analysis used until its verdict, without plots: user and system time of its processes on this machine,
    elapsed time (both in seconds) and the number of tasks of its engine."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    tasks: int = 0


@dataclass(frozen=True)
class Verdict:
    """The result of a run's analysis; `verdict.json` has the fields' names as keys, and a checksum.

    `reasons`: why the verdict is what it is. A failed run lists its proofs, then everything undecided with the prefix
    `BESIDES`. `doubts`: only what is undecided, without the prefix; empty for a pass. `codes`: of the doubts' reasons,
    sorted (docs/anomalies.md has them). `unmet`: why the expectation is not met, as sentences; empty if it is `met`.
    `finished`: the analysis is complete. Until then, and after a crash, `verdict` is unknown. `evidence`: the digest of
    the analyzed files, `analysis`: of the code of the analysis, `certificate`: of the proof of a pass, empty without
    one. `engine`: what the analysis ran on, `cost`: what it used; they do not influence the result.
    """

    run: str
    campaign: str
    cell: str
    seed: int
    verdict: str
    expected: Expectation
    met: bool
    reasons: tuple[str, ...]
    anomalies: tuple[Anomaly, ...]
    checks: tuple[Check, ...]
    faults: tuple[dict[str, Any], ...]
    never_seen: tuple[str, ...]
    stats: dict[str, Any]
    upper_bound: str
    world: str
    limits: tuple[str, ...]
    replay: str
    doubts: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    mutants: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False
    evidence: str = ""
    analysis: str = ""
    certificate: str = ""
    engine: str = ""
    cost: Cost = Cost()

    @property
    def cause(self) -> str:
        """The cause of the failure in one sentence: of the first anomaly whose cause the events show, else of the first
        one. Empty without an anomaly."""
        causes = [anomaly.cause for anomaly in self.anomalies if anomaly.cause]
        return next((anomaly for anomaly in causes if not anomaly.startswith(NOT_SHOWN)), "".join(causes[:1]))

    @property
    def first_doubt(self) -> str:
        """The first cause of an undecided run. Doubts about the run come first: they cause most others."""
        return f"Undecided: {self.doubts[0]}" if self.verdict == UNKNOWN and self.doubts else ""

    @property
    def drawn(self) -> tuple[str, ...]:
        """What the seed of a swarm drew and its run met, as a line for a terminal, if there is one."""
        return tuple(filter(None, [self.stats.get("drawn")]))

    @property
    def cause_lines(self) -> list[str]:
        """The cause as a line for a terminal, if there is one."""
        return [f"cause: {self.cause}"] if self.cause else []

    def write(self, path: Path) -> None:
        """Write as JSON, atomically: a reader sees the old verdict or the new one."""
        content = self._content()
        text = json.dumps(content | {"checksum": _checksum(content)}, indent=1) + "\n"
        replace_text(path, text)

    @classmethod
    def read(cls, path: Path, *, any_form: bool = False) -> "Verdict":
        """Read what `write` wrote. Raises `ValueError` naming the file when it is something else, lacks a field, or was
        changed since, and `OSError` when it cannot be read. `any_form`: accept the missing and additional fields of
        another version's verdict."""
        try:
            content = strict_json.decode(read_bytes(path))
            verdict = msgspec.convert(content, type=cls)
            checksum = content.pop("checksum", "")
        except (msgspec.MsgspecError, ValueError) as error:
            raise ValueError(f"{path}: is not a verdict ({error}); {_again(path)}") from error
        if not checksum:
            raise ValueError(f"{path}: has no checksum; an older version wrote it; {_again(path)}")
        if checksum != _checksum(content):
            raise ValueError(f"{path}: was changed after it was written; {_again(path)}")
        if not any_form and (strange := _differing(content, verdict._content())):
            raise ValueError(f"{path}: does not have the fields of a verdict: {', '.join(strange)}; {_again(path)}")
        return verdict

    def _content(self) -> dict[str, Any]:
        """As JSON has it, without the checksum."""
        content = asdict(self) | {"expected": msgspec.to_builtins(self.expected)}
        text = json.dumps(content, default=str, ensure_ascii=False)
        # A node's output may hold bytes that are not UTF-8; as lone surrogates they could not be read back.
        written: dict[str, Any] = json.loads(text.encode("utf-8", errors="replace"))
        return written


def _differing(recorded: Mapping[str, Any], meant: Mapping[str, Any]) -> list[str]:
    """The fields in which a file differs from the output of `write`. A missing field must not count as its default: an
    absent list of doubts does not state that the run has no doubts."""
    return [
        name
        for name in sorted(recorded.keys() | meant.keys())
        if name not in recorded or recorded[name] != meant.get(name)
    ]


def digest_of_certificate(run_dir: Path) -> str:
    """The digest of the files of a run's certificate as they are now; empty without files. Raises OSError."""
    folder = run_dir / CERTIFICATE
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {digest_of(str(path))}\n".encode())
    return digest.hexdigest() if files else ""


def _checksum(content: Mapping[str, Any]) -> str:
    """The digest of all fields but durations and cost: the same findings have the same checksum."""
    checks = [{**check, "seconds": 0} for check in content["checks"]]
    return hashlib.sha256(json.dumps({**content, "checks": checks, "cost": None}, sort_keys=True).encode()).hexdigest()


def _again(path: Path) -> str:
    return f"make it again with: {command('analyze', str(path.parent))}"


class Decision(NamedTuple):
    """A verdict, its reasons, and those of them that say what is undecided; see `Verdict`."""

    verdict: str
    reasons: tuple[str, ...]
    doubts: tuple[str, ...]


def decide(checks: Sequence[Check], anomalies: Sequence[Anomaly], doubts: Sequence[str]) -> Decision:
    """The verdict and its reasons, from the checkers' results and the doubts."""
    # Doubts about the run come first: they cause most of the failed checks.
    unchecked = [f"{check.name}: {check.detail}" for check in checks if check.verdict == UNKNOWN]
    undecided = tuple(dict.fromkeys((*doubts, *unchecked)))
    if anomalies or any(check.verdict == FAIL for check in checks):
        proofs = [f"{a.name}: {a.sentence}" for a in anomalies]
        proofs += [f"{check.name}: {check.detail}" for check in checks if check.verdict == FAIL and not anomalies]
        return Decision(FAIL, (*proofs, *(f"{BESIDES}{reason}" for reason in undecided)), undecided)
    return Decision(UNKNOWN if undecided else PASS, undecided, undecided)


def besides(reasons: Sequence[str]) -> list[str]:
    """The undecided reasons of a failed run, without the prefix."""
    return [reason.removeprefix(BESIDES) for reason in reasons if reason.startswith(BESIDES)]


def first_reasons(reasons: Sequence[str], most: int) -> list[str]:
    """At most `most` proofs and `most` doubts among the reasons, each with the number of the others."""
    lines: list[str] = []
    for is_beside, prefix in ((False, ""), (True, BESIDES)):
        mine = [reason for reason in reasons if reason.startswith(BESIDES) == is_beside]
        lines += mine[:most]
        lines += [f"{prefix}{len(mine) - most} more"] if len(mine) > most else []
    return lines
