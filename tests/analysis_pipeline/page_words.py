"""The words of Kafka on a page, which the page of another system must not have."""

import html
import re
from typing import Final

_OF_KAFKA: Final = re.compile(
    r"\b(partition|topic|broker|ISRs?\b|in-sync|high watermark|epoch|offset|consumer|producer|replica|segment|metadata"
    r"|leader|truncat|elect|remote stor|controller|fenced|records read|log end)",
    re.IGNORECASE,
)
_UNSEEN: Final = re.compile(r"<(script|style)\b.*?</\1>|\s+", re.DOTALL)
_TAG: Final = re.compile(r'<[^>]*?(?:(?:title|alt|aria-label)="([^"]*)"[^>]*)?>')


def words_of_kafka(page: str) -> list[str]:
    """Each with the words around it, in the texts of the page and those that appear on hover."""
    seen = html.unescape(_TAG.sub(r" \1 ", _UNSEEN.sub(" ", page)))
    return [seen[max(0, match.start() - 40) : match.end() + 40] for match in _OF_KAFKA.finditer(seen)]
