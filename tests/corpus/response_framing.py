"""Responses whose bodies end in more than one place: lengths, codings, chunks, no body by status or method, surplus."""

from tests.corpus.cases import Answer, bad

OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_STOLEN = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
_LENGTHS = {
    "signed": (b"+2", "CVE-2021-32715"),
    "negative": (b"-2", "CVE-2023-47627"),
    "hexadecimal": (b"0x2", "CVE-2022-24761"),
    "with an underscore": (b"0_2", "CVE-2023-47627"),
    "a list": (b"2, 2", "RFC 9110, 8.6"),
    "in quotes": (b'"2"', "RFC 9110, 8.6"),
    "a fraction": (b"2.0", "RFC 9110, 8.6"),
    "letters behind": (b"2x", "CVE-2022-42252"),
    "with a vertical tab": (b"\x0b2", "CVE-2019-18277"),
    "with NUL": (b"2\0", "CVE-2023-47627"),
    "superscript": (b"\xb2", "CVE-2023-47627"),
    "empty": (b"", "CVE-2023-40225"),
    "2 to the 64th and two": (b"18446744073709551618", "CVE-2021-32714"),
    "folded": (b"\r\n 2", "RFC 9112, 5.2"),
}
_CODINGS = {
    "gzip": (b"gzip", "RFC 9112, 6.3"),
    "gzip, chunked": (b"gzip, chunked", "RFC 9112, 6.1"),
    "chunked, gzip": (b"chunked, gzip", "RFC 9112, 6.3"),
    "identity": (b"identity", "CVE-2021-33037"),
    "chunked twice": (b"chunked, chunked", "CVE-2024-6827"),
    "almost chunked": (b"xchunked", "CVE-2019-15605"),
    "behind a vertical tab": (b"\x0bchunked", "CVE-2019-18277"),
    "folded": (b"\r\n chunked", "CVE-2022-32215"),
    "empty": (b"", "CVE-2019-18277"),
}
_CHUNKS = {
    "a signed size": (b"+2\r\nhi\r\n" + _END, "CVE-2022-24801"),
    "0x": (b"0x2\r\nhi\r\n" + _END, "CVE-2022-24801"),
    "an underscore": (b"0_2\r\nhi\r\n" + _END, "CVE-2022-24801"),
    "a blank": (b" 2\r\nhi\r\n" + _END, "CVE-2023-46846"),
    "a bare LF": (b"2\nhi\r\n" + _END, "CVE-2025-22871"),
    "an extension with a bare LF": (b"2;a\n\r\nhi\r\n" + _END, "CVE-2025-58056"),
    "a size too large": (b"10000000000000002\r\nhi\r\n" + _END, "CVE-2021-32714"),
}
_BROKEN = {
    "longer than its size": (b"2\r\nhix\r\n" + _END, "CVE-2024-53868"),
    "no line end behind it": (b"2\r\nhi" + _END, "CVE-2025-43859"),
    "a bare LF behind it": (b"2\r\nhi\n" + _END, "CVE-2025-43859"),
    "no last one": (b"2\r\nhi\r\n", "RFC 9112, 8"),
    "half a last one": (b"2\r\nhi\r\n0\r\n", "RFC 9112, 8"),
    "a bare LF at the end": (b"2\r\nhi\r\n0\r\n\n", "CVE-2025-43859"),
    "a trailer with NUL": (b"2\r\nhi\r\n0\r\nA: \0\r\n\r\n", "CVE-2023-46589"),
    "a trailer without colon": (b"2\r\nhi\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n", "CVE-2019-20444"),
    "a trailer that names a length": (b"2\r\nhi\r\n0\r\nContent-Length: 50\r\n\r\n", "CVE-2023-40175"),
}
CASES = [
    *[
        bad(f"length {name}", seen, OK + b"Content-Length: " + value + b"\r\n\r\nhi")
        for name, (value, seen) in _LENGTHS.items()
    ],
    *[
        bad(f"coding {name}", seen, OK + b"Transfer-Encoding: " + value + b"\r\n\r\n" + _END)
        for name, (value, seen) in _CODINGS.items()
    ],
    *[
        Answer(f"first chunk: {name}", seen, _CHUNKED + text, 200, b"", cut=True)
        for name, (text, seen) in _CHUNKS.items()
    ],
    *[Answer(f"chunks: {name}", seen, _CHUNKED + text, 200, b"hi", cut=True) for name, (text, seen) in _BROKEN.items()],
    bad("two equal lengths", "CVE-2013-4286", OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi"),
    bad("two lengths", "CVE-2020-10108", OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi"),
    bad("length and coding", "CVE-2019-20445", OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + _END),
    bad("coding and length", "CVE-2019-20445", OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n" + _END),
    bad(
        "coding twice", "CVE-2020-8287", OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + _END
    ),
    bad("coding on HTTP/1.0", "RFC 9112, 6.1", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _END),
    Answer("a length", "RFC 9112, 6.3", OK + b"Content-Length: 2\r\n\r\nhi", 200, b"hi"),
    Answer("chunks", "RFC 9112, 7.1", _CHUNKED + b"1\r\nh\r\n1;a=b\r\ni\r\n0\r\nA: b\r\n\r\n", 200, b"hi"),
    Answer("until close", "RFC 9112, 6.3", OK + b"\r\nhi", 200, b"hi"),
    Answer(
        "until close on HTTP/1.0", "RFC 9112, 6.3", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhi", 200, b"hi"
    ),
    Answer("shorter than its length", "RFC 9112, 8", OK + b"Content-Length: 3\r\n\r\nhi", 200, b"hi", cut=True),
    Answer("nothing of its length", "RFC 9112, 8", OK + b"Content-Length: 3\r\n\r\n", 200, b"", cut=True),
    Answer(
        "longer than its length", "response queue poisoning, 2021", OK + b"Content-Length: 2\r\n\r\nhi more", 200, b"hi"
    ),
    Answer(
        "a second response", "response queue poisoning, 2021", OK + b"Content-Length: 2\r\n\r\nhi" + _STOLEN, 200, b"hi"
    ),
    Answer("a second one behind chunks", "response queue poisoning, 2021", _CHUNKED + _END + _STOLEN, 200, b""),
    Answer(
        "a length of zero and a body", "response queue poisoning, 2021", OK + b"Content-Length: 0\r\n\r\nhi", 200, b""
    ),
    Answer("204 with a body", "RFC 9110, 15.3.5", b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nhi", 204),
    Answer(
        "204 with chunks", "RFC 9112, 6.1", b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n" + _END, 204
    ),
    Answer("304 with a body", "RFC 9110, 15.4.5", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nhi", 304),
    Answer(
        "304 with chunks",
        "RFC 9110, 15.4.5",
        b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n" + _END,
        304,
    ),
    Answer(
        "304 with a response as its body",
        "response queue poisoning, 2021",
        b"HTTP/1.1 304 Not Modified\r\n\r\n" + _STOLEN,
        304,
    ),
    Answer(
        "205 with a body", "RFC 9110, 15.3.6", b"HTTP/1.1 205 Reset Content\r\nContent-Length: 2\r\n\r\nhi", 205, b"hi"
    ),
    Answer("HEAD with a length", "RFC 9110, 9.3.2", OK + b"Content-Length: 2\r\n\r\n", 200, verb=b"HEAD"),
    Answer("HEAD with a body", "HEAD response splitting, 2021", OK + b"Content-Length: 2\r\n\r\nhi", 200, verb=b"HEAD"),
    Answer("HEAD with chunks", "RFC 9110, 9.3.2", _CHUNKED + b"2\r\nhi\r\n" + _END, 200, verb=b"HEAD"),
    Answer("HEAD with neither", "RFC 9110, 9.3.2", OK + b"\r\n", 200, verb=b"HEAD"),
    Answer(
        "HEAD with a second response",
        "HEAD response splitting, 2021",
        OK + b"Content-Length: 46\r\n\r\n" + _STOLEN,
        200,
        verb=b"HEAD",
    ),
]
