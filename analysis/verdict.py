"""The verdict over one run: pass, fail or unknown, and why.

Fail is sticky: a proven anomaly is never masked by something that could not be judged, and does not mask it either: the
reasons of a failed run name both. Whatever is missing (too few operations, an unconfirmed fault, an unfinished final
read, a checker that crashed) makes a run unknown, never pass.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from analysis.core.anomaly import Anomaly
from history import strict_json
from history.regular_files import read_bytes, replace_text
from installation.commands import command

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
VERDICT_FILE = "verdict.json"
CERTIFICATE: Final = "certificate"
"""The directory of the proof of a pass, and the name of the check that it was confirmed."""
NOT_APPLICABLE = "n/a"
"""The verdict of a checker that has nothing to look at: it speaks neither for nor against a run."""
BESIDES: Final = "besides, undecided: "
"""How the reasons of a failed run begin that are no proof of its failure."""


@dataclass(frozen=True)
class Check:
    """What one checker found: its verdict, a sentence of detail, and the seconds it took."""

    name: str
    verdict: str
    detail: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Expectation:
    """What a cell of a campaign must come to; `analysis.expectation` decides whether a run did.

    `verdict`; for *fail* the `anomaly` that must be named, and in `must_hold` what must hold in spite of it, in
    `may_show` anomalies that come with it though their promise stands alone; for
    *unknown* the codes of the `reasons`, one at least of which the run must have, and no other.
    """

    verdict: str = PASS
    anomaly: str | None = None
    reasons: tuple[str, ...] = ()
    must_hold: tuple[str, ...] = ()
    may_show: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = (*((self.anomaly,) if self.anomaly else ()), *self.reasons)
        held = f"; must hold: {', '.join(self.must_hold)}" if self.must_hold else ""
        held += f"; may show: {', '.join(self.may_show)}" if self.may_show else ""
        return self.verdict + (f" ({' or '.join(named)}{held})" if named or held else "")

    def to_toml(self) -> dict[str, Any]:
        """As run.toml and campaigns have it; keys without a value are left out."""
        content = {"verdict": self.verdict, "anomaly": self.anomaly}
        lists = {"reason": list(self.reasons), "must_hold": list(self.must_hold), "may_show": list(self.may_show)}
        return {key: value for key, value in {**content, **lists}.items() if value}


@dataclass(frozen=True)
class Verdict:
    """All that is said of one run; `verdict.json` is this, with the names of the fields as keys, and a checksum.

    `reasons`: why it is what it is; of a failed run the proofs, and behind them whatever is undecided, marked by
    `BESIDES`. `doubts`: what is undecided alone, unmarked; empty for a pass.
    `codes`: of the doubts' reasons, sorted (docs/anomalies.md has them). `unmet`: why the expectation is not met, as
    sentences; empty where it is `met`.
    `finished`: the analysis came to its end; until then `verdict` is unknown, and after a crash it stays so.
    `evidence`: the digest of the files that were judged, `analysis`: of the code that judged them, `certificate`: of
    the proof of a pass, empty where there is none. `engine`: what the analysis ran on, which decides nothing.
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

    def write(self, path: Path) -> None:
        """Write as JSON, atomically: a reader sees the old verdict or the new one."""
        content = self._content()
        text = json.dumps(content | {"checksum": _checksum(content)}, indent=1) + "\n"
        replace_text(path, path.with_suffix(".tmp"), text)

    @classmethod
    def read(cls, path: Path, *, any_form: bool = False) -> Verdict:
        """Read what `write` wrote. Raises `ValueError` naming the file when it is something else, lacks a field, or was
        changed since, and `OSError` when it cannot be read. `any_form`: one that another version wrote may lack fields
        and have others."""
        try:
            content = strict_json.decode(read_bytes(path))
            verdict = msgspec.convert(content, type=cls)
            said = content.pop("checksum", "")
        except (msgspec.MsgspecError, ValueError) as error:
            raise ValueError(f"{path}: is not a verdict ({error}); {_again(path)}") from error
        if not said:
            raise ValueError(f"{path}: has no checksum, as those of older versions; {_again(path)}")
        if said != _checksum(content):
            raise ValueError(f"{path}: was changed after it was written; {_again(path)}")
        if not any_form and (strange := _differing(content, verdict._content())):
            raise ValueError(f"{path}: does not have the fields of a verdict: {', '.join(strange)}; {_again(path)}")
        return verdict

    def _content(self) -> dict[str, Any]:
        """As JSON has it, without the checksum."""
        content = asdict(self)
        text = json.dumps(content, default=str, ensure_ascii=False)
        # What nodes printed may hold bytes that are not UTF-8; as halves of surrogate pairs they cannot be read back.
        written: dict[str, Any] = json.loads(text.encode("utf-8", errors="replace"))
        return written


def _differing(said: Mapping[str, Any], meant: Mapping[str, Any]) -> list[str]:
    """The fields that a file has otherwise than `write` writes them. A field that the file lacks must not count as the
    default of that field: an absent list of doubts is not a statement that there are none."""
    return [name for name in sorted(said.keys() | meant.keys()) if name not in said or said[name] != meant.get(name)]


def digest_of_certificate(run_dir: Path) -> str:
    """Of the files of a run's certificate as they lie there now; empty where there are none. Raises OSError."""
    folder = run_dir / CERTIFICATE
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {hashlib.sha256(read_bytes(path)).hexdigest()}\n".encode())
    return digest.hexdigest() if files else ""


def _checksum(content: Mapping[str, Any]) -> str:
    """Of all but the time that checks took: the same findings have the same checksum."""
    checks = [{**check, "seconds": 0} for check in content["checks"]]
    return hashlib.sha256(json.dumps({**content, "checks": checks}, sort_keys=True).encode()).hexdigest()


def _again(path: Path) -> str:
    return f"make it anew with: {command('analyze', str(path.parent))}"


class Decision(NamedTuple):
    """A verdict, its reasons, and those of them that say what is undecided; see `Verdict`."""

    verdict: str
    reasons: tuple[str, ...]
    doubts: tuple[str, ...]


def decide(checks: Sequence[Check], anomalies: Sequence[Anomaly], doubts: Sequence[str]) -> Decision:
    """The verdict and its reasons, from what the checkers found and from what speaks against believing a pass."""
    # What went wrong with the run comes first: most of what could not be checked follows from it.
    unchecked = [f"{check.name}: {check.detail}" for check in checks if check.verdict == UNKNOWN]
    undecided = tuple(dict.fromkeys((*doubts, *unchecked)))
    if anomalies or any(check.verdict == FAIL for check in checks):
        proofs = [f"{a.name}: {a.sentence}" for a in anomalies]
        proofs += [f"{check.name}: {check.detail}" for check in checks if check.verdict == FAIL and not anomalies]
        return Decision(FAIL, (*proofs, *(f"{BESIDES}{each}" for each in undecided)), undecided)
    return Decision(UNKNOWN if undecided else PASS, undecided, undecided)


def besides(reasons: Sequence[str]) -> list[str]:
    """What is undecided of a failed run besides its proofs, without the mark."""
    return [reason.removeprefix(BESIDES) for reason in reasons if reason.startswith(BESIDES)]


def first_reasons(reasons: Sequence[str], most: int) -> list[str]:
    """The first few reasons of a verdict: as many proofs, and as many doubts, each with how many more there are."""
    lines: list[str] = []
    for is_beside, what in ((False, ""), (True, BESIDES)):
        mine = [reason for reason in reasons if reason.startswith(BESIDES) == is_beside]
        lines += mine[:most]
        lines += [f"{what}{len(mine) - most} more"] if len(mine) > most else []
    return lines
