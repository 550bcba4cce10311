"""Why a run is unknown: reasons with stable codes, as checkers declare them, and the sentences that carry them.

Theory of operation. A doubt is a sentence, and everything that handles sentences (verdicts, reports, the gate) takes
doubts as they are. A `Doubt` is such a sentence that also names its reason. A checker marks its sentences with
`Reason.says`; a sentence that has no mark has the reason that its checker declares first. So each doubt of each verdict
has a code, and a new sentence in a checker needs none of its own. The codes are what a campaign's cell names in
`expect`; docs/anomalies.md is made from the declarations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Reason:
    """A reason for which a run is unknown: its code, and what was missing in a sentence."""

    code: str
    meaning: str

    def says(self, sentence: str) -> Doubt:
        """The sentence as a doubt with this reason."""
        return Doubt(sentence, self.code)

    def say(self, sentences: Iterable[str]) -> tuple[Doubt, ...]:
        """Each of the sentences as a doubt with this reason."""
        return tuple(map(self.says, sentences))


class Doubt(str):
    """A sentence that speaks against believing a pass; `code`: of its reason."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, sentence: str, code: str) -> Doubt:
        doubt = super().__new__(cls, sentence)
        doubt.code = code
        return doubt

    def __reduce__(self) -> tuple[type[Doubt], tuple[str, str]]:
        return Doubt, (str(self), self.code)


def code_of(doubt: str, otherwise: Reason) -> str:
    """The code of a doubt's reason; that of `otherwise` for a sentence without a mark."""
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
"""Reasons that belong to no checker, or to several."""
