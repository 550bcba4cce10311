"""Doubts: sentences that say why a run is unknown, each with a reason that has a stable code.

Theory of operation. A doubt is a sentence. Everything that handles sentences (verdicts, reports, the gate) accepts
doubts unchanged. A `Doubt` is a sentence that also carries its reason. A checker attaches a reason with `Reason.says`;
a sentence without one gets the first reason that its checker declares. Therefore each doubt of each verdict has a code,
and a new sentence in a checker needs no code of its own. A campaign's cell names these codes in `expect`;
docs/anomalies.md is generated from the declarations.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Reason:
    """A reason why a run is unknown: its code, and a sentence that says what was missing."""

    code: str
    meaning: str

    def says(self, sentence: str) -> "Doubt":
        """The sentence as a doubt with this reason."""
        return Doubt(sentence, self.code)

    def say(self, sentences: Iterable[str]) -> tuple["Doubt", ...]:
        """Each of the sentences as a doubt with this reason."""
        return tuple(map(self.says, sentences))


class Doubt(str):
    """A sentence that says why a pass cannot be believed; `code`: its reason's."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, sentence: str, code: str) -> "Doubt":
        doubt = super().__new__(cls, sentence)
        doubt.code = code
        return doubt

    def __reduce__(self) -> tuple[type["Doubt"], tuple[str, str]]:
        return Doubt, (str(self), self.code)


def code_of(doubt: str, otherwise: Reason) -> str:
    """The code of a doubt's reason, or the code of `otherwise` for a plain sentence."""
    return doubt.code if isinstance(doubt, Doubt) else otherwise.code


CHECKER_CRASHED: Final = Reason("checker-crashed", "A checker failed with an internal error.")
UNJUDGED: Final = Reason("operations-unjudged", "No checker analyzes the clients' operations.")
EVIDENCE_CHANGED: Final = Reason("evidence-changed", "A file of evidence was changed after the end of the run.")
MAY_BE_FORGOTTEN: Final = Reason("may-be-forgotten", "A record is missing that the system may remove by its settings.")
TESTER_SHORT: Final = Reason("tester-short", "The tester's machine ran out of a resource, which may be the cause.")
CERTIFICATE_REFUSED: Final = Reason(
    "certificate-refused", "The certificate of the pass could not be written or confirmed."
)
RECORD_UNREADABLE: Final = Reason("record-unreadable", "The run's record or its run.toml is unreadable.")
ANALYSIS_BROKEN: Final = Reason("analysis-broken", "The analysis failed with an internal error.")
ANALYSIS_NOT_FINISHED: Final = Reason("analysis-not-finished", "The analysis is in progress, or was ended early.")
UNDECIDED: Final = Reason("undecided", "A checker without declared reasons could not decide.")
OWN_UNDECIDED: Final = Reason(
    "own-check-undecided",
    "A checker of the campaign's own failed, did not end in time, or has too few answered operations; or its model "
    "cannot decide.",
)
LOST_CALLS: Final = "the record of a client that may have changed something is not whole"
COMMON: Final = (
    CHECKER_CRASHED,
    UNJUDGED,
    EVIDENCE_CHANGED,
    MAY_BE_FORGOTTEN,
    TESTER_SHORT,
    CERTIFICATE_REFUSED,
    RECORD_UNREADABLE,
    ANALYSIS_BROKEN,
    ANALYSIS_NOT_FINISHED,
    UNDECIDED,
)
"""Reasons that belong to no single checker."""
