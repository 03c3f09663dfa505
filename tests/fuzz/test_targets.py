"""The fuzzed targets hold for their seeds, for what fuzzing has found, and for made-up bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, pieces_of

FOUND = {
    # Why each was a fault, of the code or of what was expected of it:
    "requests": [
        # an answer of the proxy's own keeps the connection, and is no request's at a backend
        b"@\0POST /mcp HTTP/1.1\r\nHost: x\r\nTr: x\r\nMcp-Session-Id: y\r\n\r\n",
        # a request that is refused ends the connection if not all of it has come
        b"@\0POST /mcp HTTP/1.1\r\nHost: x\r\nMcp-Name: n\r\nMcp-Name: nn\r\nContent-Length: 2\r\n\r\nxx"
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nMcp-Name: \r\nContent-Length: 0\r\n\r\nPO",
        # the parser obeys Proxy-Connection
        b"\0\0POST /mcp HTTP/1.1\r\nHost: x\r\nProxy-Connection: close\r\n\r\nPOST /mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    "responses": [
        # towards HTTP/1.0 only a reset tells that chunks broke off
        b"\1\0\0HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 50\r\n\r\n",
        # nor is it told of interim responses
        b"\xd5@\0HTTP/1.1 100\r\n\r\nHTTP/1.1 200 O)K\r\nContent-Length: 2\r\n\r\nhi",
    ],
    "events": [
        # an empty line's LF behind an event that ends in CR
        b"@\0data: {}\n\ndata: {}\r\n\r\n\ndata: {\r\r",
    ],
}


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    count = 0
    for seed in TARGETS[name].seeds():
        TARGETS[name].check(seed)
        assert len(seed) <= TARGETS[name].longest + 3
        count += 1
    assert count > 3


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, found in FOUND.items() for data in found])
def test_what_was_found(name: str, data: bytes) -> None:
    TARGETS[name].check(data)


SEEDS = {name: list(target.seeds()) for name, target in TARGETS.items()}
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.integers(0, 9),
        st.one_of(
            st.binary(max_size=3),
            st.sampled_from(
                [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"\r\n\r\n", b"chunked"]
            ),
        ),
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("name", TARGETS)
@given(st.data())
def test_seeds_with_changes(name: str, data: st.DataObject) -> None:
    """Some bytes of a seed are taken out and others put in; two seeds may be joined."""
    text = data.draw(st.sampled_from(SEEDS[name]))
    if data.draw(st.integers(0, 3)) == 0:
        text += data.draw(st.sampled_from(SEEDS[name]))[2:]
    for place, taken, put in data.draw(CHANGES):
        at = place % (len(text) + 1)
        text = text[:at] + put + text[at + taken :]
    TARGETS[name].check(data.draw(st.binary(min_size=2, max_size=2)) + text[2:])


@settings(deadline=None)
@given(st.binary(max_size=3), st.binary(max_size=600))
def test_pieces_are_the_text(how: bytes, text: bytes) -> None:
    pieces = pieces_of(how, text)
    assert b"".join(pieces) == text
    assert all(pieces)
