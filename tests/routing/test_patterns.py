"""Patterns: exact text, globs, expressions."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.routes import Pattern
from tests.routing.asking import route


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        # exact
        ("render", "render", True),
        ("render", "Render", False),
        ("render", "render ", False),
        ("render", "", False),
        ("", "", True),
        ("a.b", "axb", False),
        ("a[bc]", "a[bc]", True),
        ("a[bc]", "ab", False),
        ("(x)+", "(x)+", True),
        # glob: the whole value
        ("render_*", "render_image", True),
        ("render_*", "render_", True),
        ("render_*", "xrender_image", False),
        ("*_image", "render_image", True),
        ("*_image", "render_images", False),
        ("*", "", True),
        ("*", "a\nb", True),
        ("?", "x", True),
        ("?", "é", True),
        ("?", "\n", True),
        ("?", "", False),
        ("?", "xy", False),
        ("a?c*", "abc", True),
        ("a?c*", "abcdef", True),
        ("a?c*", "ac", False),
        ("a.*", "a.b", True),
        ("a.*", "axb", False),
        ("[a-z]*", "[a-z]x", True),
        ("[a-z]*", "mx", False),
        ("\\*", "\\x", True),
        ("*\n", "a\n", True),
        ("*", "\ud800", True),
        # expressions: the whole value
        ("regex:render_(image|video)", "render_image", True),
        ("regex:render_(image|video)", "render_images", False),
        ("regex:render_(image|video)", "xrender_image", False),
        ("regex:a|bc", "bc", True),
        ("regex:a|bc", "abc", False),
        ("regex:.*", "a\nb", True),
        ("regex:a$", "a\n", False),
        ("regex:(?i)EU-.*", "eu-west", True),
        ("regex:[*]", "*", True),
    ],
)
def test_pattern(pattern: str, value: str, matches: bool) -> None:
    assert Pattern(pattern).matches(value) is matches


@pytest.mark.parametrize(
    ("pattern", "glob", "exact"),
    [
        ("/mcp", False, True),
        ("/mcp/*", True, False),
        ("/mc?", True, False),
        ("regex:/mcp", False, False),
        ("regex:/mcp/.*", False, False),
        ("/a[b]", False, True),
    ],
)
def test_form_of_a_pattern(pattern: str, glob: bool, exact: bool) -> None:
    assert Pattern(pattern).is_glob is glob
    assert Pattern(pattern).is_exact is exact
    assert route("r", "p", path=Pattern(pattern)).keeps_path is not exact


def test_an_expression_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(re.error):
        Pattern("regex:(")


def test_equal_patterns_are_equal() -> None:
    assert Pattern("a*") == Pattern("a*") != Pattern("a?")


@settings(deadline=None, max_examples=200)
@given(st.text("ab*?\n.[", max_size=6), st.text("ab\n.[", max_size=6))
def test_glob_against_a_plain_definition(pattern: str, value: str) -> None:
    def matches(glob: str, text: str) -> bool:
        if not glob:
            return not text
        if glob[0] == "*":
            return matches(glob[1:], text) or (text != "" and matches(glob, text[1:]))
        return text != "" and glob[0] in ("?", text[0]) and matches(glob[1:], text[1:])

    assert Pattern(pattern).matches(value) is matches(pattern, value)
