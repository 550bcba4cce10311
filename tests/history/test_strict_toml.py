"""TOML of a run: values that Python cannot show are refused."""

import pytest

from history.strict_toml import MOST_LEVELS, decode


def test_values_of_64_bits_and_tables_of_some_levels_are_read() -> None:
    text = f"most = {2**63 - 1}\nleast = {-(2**63)}\n[{'.'.join('a' * 50)}]\nx = [[1], 2.5]\n"
    assert decode(text)["most"] == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"[a.b]\nc = {2**63}", r"a\.b\.c has more than 64 bits"),
        (f"a = [[{{b = 0x{'f' * 5000}}}]]", "64 bits"),
        (f"a = {'9' * 5000}", "digits"),
        (f"{'a.' * MOST_LEVELS}a = 1", "nested deeper"),
        (f"a = {'[' * 3000}{']' * 3000}", "nested deeper"),
        (f"a = {'[' * MOST_LEVELS}{']' * MOST_LEVELS}", "nested deeper"),
        ("a = ", "Invalid value"),
    ],
    ids=["one bit more", "hexadecimal", "decimal", "dots", "very deep lists", "deep lists", "no TOML"],
)
def test_other_values_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        decode(text)
