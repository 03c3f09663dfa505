"""Bodies as they stand on the wire, encoded without the code under test, and ways to cut them."""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

from proxy.wire.framing import BodyCursor, cursor_for

SIZES = [1, 2, 3, 7, 10**9]
EMPTY_LINE = b"\r\n\r\n"


def cut(text: bytes, cuts: int | list[int]) -> list[bytes]:
    """The text in pieces of a size, or cut at these places."""
    places = (
        range(cuts, len(text), cuts) if isinstance(cuts, int) else sorted({at for at in cuts if 0 < at < len(text)})
    )
    return [text[start:end] for start, end in pairwise([0, *places, len(text)]) if end]


@dataclass
class Body:
    """A body as it stands on the wire: chunked, or with a length."""

    chunks: list[bytes]
    """Its text, in the pieces of which each non-empty one makes a chunk."""
    chunked: bool = True
    extension: bytes = b""
    trailers: list[bytes] = field(default_factory=list)
    size_format: bytes = b"%x"

    @property
    def text(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def framing(self) -> bytes:
        return b"Transfer-Encoding: chunked" if self.chunked else b"Content-Length: %d" % len(self.text)

    def cursor(self) -> BodyCursor:
        """A new one for this body."""
        return cursor_for(None if self.chunked else len(self.text), chunked=self.chunked)

    @property
    def on_the_wire(self) -> bytes:
        if not self.chunked:
            return self.text
        out = b""
        for chunk in self.chunks:
            if chunk:
                out += self.size_format % len(chunk) + self.extension + b"\r\n" + chunk + b"\r\n"
        return out + b"0" + self.extension + b"\r\n" + b"".join(line + b"\r\n" for line in self.trailers) + b"\r\n"


TRICKY = b"a\r\n\r\nb\r\n0\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n"
BODIES = {
    "plain": Body([b"hello"]),
    "empty": Body([]),
    "several": Body([b"a", b"bc", b"def" * 10]),
    "empty lines within": Body([TRICKY]),
    "empty lines across chunks": Body([b"a\r", b"\n\r", b"\n", b"\r\n", b"\r\n"]),
    "nothing but an empty line": Body([b"\r\n\r\n"]),
    "ends in a line": Body([b"a\r\n"]),
    "looks like an end": Body([b"0\r\n\r\n"]),
    "extensions": Body([b"hello", TRICKY], extension=b';a=b;c="d"'),
    "trailers": Body([b"hello"], trailers=[b"X-A: 1", b"X-B: 2"]),
    "trailers of an empty body": Body([], trailers=[b"X-A: 1"]),
    "all at once": Body([TRICKY, b"x"], extension=b";x", trailers=[b"A: b"], size_format=b"%X"),
    "zeros before the size": Body([b"hello" * 5], size_format=b"000%x"),
    "length": Body([b"hello"], chunked=False),
    "length with empty lines": Body([TRICKY], chunked=False),
    "length zero": Body([], chunked=False),
}

SCRAPS = [b"\r\n", b"\r", b"\n", b"0", b"a", b"5\r\nhello\r\n", b"0\r\n\r\n"]
TEXTS = st.one_of(st.lists(st.sampled_from(SCRAPS), max_size=8).map(b"".join), st.binary(max_size=20))
MADE_UP = st.builds(
    Body,
    chunks=st.lists(TEXTS, max_size=4),
    chunked=st.booleans(),
    extension=st.sampled_from([b"", b";a", b";a=b", b';a="b c"']),
    trailers=st.lists(st.sampled_from([b"A: b", b"C:", b"D: e f"]), max_size=2),
    size_format=st.sampled_from([b"%x", b"%X", b"0%x"]),
)
CUTS = st.one_of(st.sampled_from(SIZES), st.lists(st.integers(1, 400), max_size=12))
"""How to cut a text: pieces of a size, or at these places."""
