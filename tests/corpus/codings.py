"""Transfer-Encoding: beside a length, hidden, repeated, listed, on HTTP/1.0."""

from tests.corpus.cases import CHUNKED, SMUGGLED, START, refused, served

_END = b"0\r\n\r\n"
_VALUES = {
    "identity": (b"identity", "CVE-2021-33037"),
    "identity, chunked": (b"identity, chunked", "CVE-2021-33037"),
    "chunked, identity": (b"chunked, identity", "CVE-2021-33037"),
    "gzip, chunked": (b"gzip, chunked", "RFC 9112, 6.1"),
    "chunked, gzip": (b"chunked, gzip", "RFC 9112, 6.3"),
    "gzip": (b"gzip", "RFC 9112, 6.3"),
    "chunked twice": (b"chunked, chunked", "CVE-2024-6827"),
    "almost chunked": (b"xchunked", "CVE-2019-15605"),
    "more than chunked": (b"chunkedx", "CVE-2019-15605"),
    "chunked and no more": (b"chunk", "CVE-2020-11077"),
    "with a comma behind": (b"chunked,", "CVE-2020-15811"),
    "with a comma before": (b",chunked", "CVE-2020-15811"),
    "with a parameter": (b"chunked;q=1", "RFC 9112, 7"),
    "in quotes": (b'"chunked"', "CVE-2020-15811"),
    "behind a vertical tab": (b"\x0bchunked", "CVE-2019-18277"),
    "before a vertical tab": (b"chunked\x0b", "CVE-2019-18277"),
    "behind a form feed": (b"\x0cchunked", "CVE-2024-1135"),
    "behind NUL": (b"\0chunked", "CVE-2020-25613"),
    "before NUL": (b"chunked\0", "CVE-2020-25613"),
    "behind a byte of NBSP": (b"\xa0chunked", "CVE-2024-1135"),
    "behind a BOM": (b"\xef\xbb\xbfchunked", "CVE-2024-1135"),
    "with a bare CR": (b"\rchunked", "CVE-2023-30589"),
    "with a bare LF": (b"\nchunked", "CVE-2022-32214"),
    "folded": (b"\r\n chunked", "CVE-2022-32215"),
    "nothing": (b"", "CVE-2019-18277"),
    "false": (b"false", "TE.TE, 2019"),
    "cow": (b"cow", "TE.TE, 2019"),
    "chunked cow": (b"chunked cow", "TE.TE, 2019"),
    "a dotless letter": (b"chun\xc4\xb1ed", "CVE-2024-1135"),
    "the Kelvin sign": (b"chun\xe2\x84\xaaed", "CVE-2024-1135"),
}
_LINES = {
    "a blank before the colon": (b"Transfer-Encoding : chunked", "CVE-2019-16276, CVE-2019-16869"),
    "a tab before the colon": (b"Transfer-Encoding\t: chunked", "CVE-2020-15810"),
    "a blank before the name": (b" Transfer-Encoding: chunked", "CVE-2020-7238"),
    "a vertical tab before the name": (b"\x0bTransfer-Encoding: chunked", "CVE-2020-7238"),
    "a control character in the name": (b"Transfer-Encoding\x01: chunked", "CVE-2021-43797"),
    "NUL in the name": (b"Transfer-Encoding\0: chunked", "CVE-2020-25613"),
    "a byte of NBSP in the name": (b"Transfer-Encoding\xa0: chunked", "CVE-2024-1135"),
    "no colon": (b"Transfer-Encoding chunked", "CVE-2019-20444"),
    "two colons": (b"Transfer-Encoding:: chunked", "CVE-2024-1135"),
    "behind a bare LF": (b"X: y\nTransfer-Encoding: chunked", "CVE-2022-32214"),
    "behind a bare CR": (b"X: y\rTransfer-Encoding: chunked", "CVE-2023-30589"),
    "the name folded": (b"Transfer-\r\n Encoding: chunked", "CVE-2022-32215"),
    "twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "CVE-2020-8287"),
    "chunked, then identity": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "CVE-2020-8287"),
    "identity, then chunked": (b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "CVE-2020-8287"),
    "chunked, then nothing": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding:", "CVE-2020-8287"),
    "in other case again": (b"Transfer-Encoding: chunked\r\ntransfer-encoding: cow", "TE.TE, 2019"),
}
CASES = [
    *[
        refused(f"coding {name}", seen, START + b"Transfer-Encoding: " + value + b"\r\n\r\n" + _END + SMUGGLED)
        for name, (value, seen) in _VALUES.items()
    ],
    *[
        refused(f"coding {name}", seen, START + line + b"\r\n\r\n" + _END + SMUGGLED)
        for name, (line, seen) in _LINES.items()
    ],
    *[
        refused(f"length, and coding {name}", seen, START + b"Content-Length: 5\r\n" + line + b"\r\n\r\n" + _END)
        for name, (line, seen) in _LINES.items()
    ],
    refused("CL.TE", "CVE-2005-2088", START + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"),
    refused(
        "TE.CL",
        "CVE-2020-10109",
        START + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGPOST / HTTP/1.1\r\n\r\n0\r\n\r\n",
    ),
    refused(
        "length of zero and coding",
        "0.CL, 2025",
        START + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + _END,
    ),
    refused(
        "coding and a bad length",
        "CVE-2023-47641",
        START + b"Transfer-Encoding: chunked\r\nContent-Length: x\r\n\r\n" + _END,
    ),
    refused(
        "TE.0",
        "TE.0, 2024",
        b"OPTIONS /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + _END,
    ),
    refused(
        "coding on HTTP/1.0",
        "RFC 9112, 6.1",
        b"POST /mcp HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + _END + SMUGGLED,
    ),
    refused(
        "coding and length on HTTP/1.0",
        "RFC 9112, 6.1",
        b"POST /mcp HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + _END,
    ),
    refused(
        "coding on HTTP/1.0 kept alive",
        "CVE-2021-33037",
        b"POST /mcp HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + _END + SMUGGLED,
    ),
    served("chunked", "RFC 9112, 7.1", CHUNKED + b"2\r\nhi\r\n" + _END, b"hi"),
    served("coding in odd case", "RFC 9112, 7", START + b"tRANSFER-eNCODING: ChUnKeD\r\n\r\n2\r\nhi\r\n" + _END, b"hi"),
    served("behind blanks", "RFC 9112, 5.1", START + b"Transfer-Encoding: \t chunked\r\n\r\n2\r\nhi\r\n" + _END, b"hi"),
    refused("before blanks", "CVE-2020-7238", START + b"Transfer-Encoding: chunked \t\r\n\r\n2\r\nhi\r\n" + _END),
    served(
        "an underscore makes another field of a coding",
        "CVE-2022-36760",
        START + b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + _END,
        _END,
    ),
    served(
        "on GET",
        "TE.0, 2024",
        b"GET /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n" + _END,
        b"hi",
    ),
    served("TE is no coding", "RFC 9110, 10.1.4", START + b"TE: chunked\r\nContent-Length: 5\r\n\r\n" + _END, _END),
    served(
        "a content coding is none",
        "RFC 9110, 8.4",
        START + b"Content-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + _END,
        _END,
    ),
    served(
        "another field of that value",
        "RFC 9112, 6.1",
        START + b"X-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + _END,
        _END,
    ),
]
