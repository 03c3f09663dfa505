"""Several messages on one connection, and what stands between and behind them."""

from tests.corpus.cases import CHUNKED, GET, HONEST, SMUGGLED, START, refused, served

_TWO = START + b"Content-Length: 2\r\n\r\nhi"
_END = b"0\r\n\r\n"
CASES = [
    served(
        "three of them", "RFC 9112, 9.3.2", _TWO + GET + b"\r\n" + CHUNKED + b"2\r\nyo\r\n" + _END, b"hi", b"", b"yo"
    ),
    served("an empty line between", "RFC 9112, 2.2", _TWO + b"\r\n" + _TWO, b"hi", b"hi"),
    served("eight empty lines between", "RFC 9112, 2.2", _TWO + b"\r\n" * 8 + _TWO, b"hi", b"hi"),
    refused("a bare LF between", "RFC 9112, 2.2", _TWO + b"\n" + _TWO, after=(b"hi",)),
    refused("a bare CR between", "RFC 9112, 2.2", _TWO + b"\r" + _TWO, after=(b"hi",)),
    refused("one byte too many", "CL.TE, 2019", START + b"Content-Length: 2\r\n\r\nhiX" + HONEST, after=(b"hi",)),
    refused("NUL behind the body", "CL.TE, 2019", _TWO + b"\0\r\n\r\n", after=(b"hi",)),
    refused("a chunk behind a length", "CL.TE, 2019", _TWO + _END, after=(b"hi",)),
    refused("a length behind chunks", "TE.CL, 2019", CHUNKED + _END + b"hi\r\n\r\n", after=(b"",)),
    refused("a body on GET without length", "CL.0, 2022", GET + b"\r\nhi\r\n\r\n", after=(b"",)),
    refused("a second last chunk", "CVE-2025-43859", CHUNKED + _END + _END, after=(b"",)),
    refused("garbage", "RFC 9112, 9.3.2", _TWO + b"\xff\xfe\x00garbage\r\n\r\n", after=(b"hi",)),
    refused("a refused one between", "RFC 9112, 2.2", _TWO + START + b"A : b\r\n\r\n" + HONEST, after=(b"hi",)),
    refused("a broken chunk in the second", "RFC 9112, 7.1", _TWO + CHUNKED + b"2\r\nhiX" + HONEST, after=(b"hi",)),
    served("behind one that closes", "RFC 9112, 9.6", START + b"Connection: close\r\n\r\n" + SMUGGLED, closes=True),
    served(
        "twenty of them",
        "RFC 9112, 9.3.2",
        b"".join(START + b"Content-Length: 2\r\n\r\n%02d" % i for i in range(20)),
        *(b"%02d" % i for i in range(20)),
    ),
    served(
        "heads that differ in two lines alone",
        "RFC 9112, 2.2",
        b"".join(
            START + b"Mcp-Name: %b\r\nContent-Length: %d\r\n\r\n%b" % (b"n" * i, i, b"x" * i) for i in (1, 2, 0, 9)
        ),
        b"x",
        b"xx",
        b"",
        b"x" * 9,
    ),
    refused(
        "a bad length behind a good one",
        "CVE-2021-32715",
        _TWO + START + b"Content-Length: +2\r\n\r\nhi",
        after=(b"hi",),
    ),
    refused(
        "a length too large behind a good one",
        "CVE-2021-32714",
        _TWO + START + b"Content-Length: 18446744073709551618\r\n\r\nhi",
        after=(b"hi",),
    ),
]
