"""Content-Length: repeated, listed, signed, in other notations, too large."""

from tests.corpus.cases import START, refused, served

_CASES = {
    "signed": (b"+2", "CVE-2021-32715, CVE-2022-24761"),
    "negative": (b"-2", "CVE-2023-47627"),
    "minus zero": (b"-0", "CVE-2023-47627"),
    "hexadecimal": (b"0x2", "CVE-2022-24761"),
    "octal": (b"0o2", "CVE-2022-24761"),
    "with an underscore": (b"0_2", "CVE-2023-47627"),
    "with a blank within": (b"1 2", "CVE-2018-7159"),
    "a fraction": (b"2.0", "RFC 9110, 8.6"),
    "with an exponent": (b"2e0", "RFC 9110, 8.6"),
    "with a comma behind": (b"2,", "CVE-2022-42252"),
    "with a comma before": (b",2", "CVE-2022-42252"),
    "a list of equals": (b"2, 2", "RFC 9110, 8.6"),
    "a list of others": (b"2, 3", "CVE-2019-16792"),
    "with a semicolon": (b"2;q=1", "RFC 9110, 8.6"),
    "in quotes": (b'"2"', "RFC 9110, 8.6"),
    "letters behind": (b"2x", "CVE-2022-42252"),
    "with a vertical tab": (b"\x0b2", "CVE-2019-18277"),
    "with a form feed": (b"2\x0c", "CVE-2023-47627"),
    "with NUL": (b"2\0", "CVE-2023-47627"),
    "with a byte of NBSP": (b"\xa02", "CVE-2020-7238"),
    "superscript digit": (b"\xb2", "CVE-2023-47627"),
    "full-width digit": (b"\xef\xbc\x92", "CVE-2023-47627"),
    "2 to the 64th": (b"18446744073709551616", "CVE-2021-32714"),
    "2 to the 64th and two": (b"18446744073709551618", "CVE-2021-32714"),
    "2 to the 32nd and more digits": (b"4294967298" + b"0" * 30, "CVE-2021-32714"),
    "five thousand digits": (b"0" * 5000 + b"2", "CVE-2021-32714"),
}
CASES = [
    *[
        refused(f"length {name}", seen, START + b"Content-Length: " + value + b"\r\n\r\nhi")
        for name, (value, seen) in _CASES.items()
    ],
    refused("no length at all in the field", "CVE-2023-40225", START + b"Content-Length:\r\n\r\n"),
    refused("a length of blanks", "CVE-2023-40225", START + b"Content-Length: \t \r\n\r\n"),
    refused("two equal lengths", "CVE-2013-4286", START + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi"),
    refused("two lengths", "CVE-2020-10108", START + b"Content-Length: 0\r\nContent-Length: 2\r\n\r\nhi"),
    refused("two lengths, the other way", "CVE-2015-5740", START + b"Content-Length: 2\r\nContent-Length: 0\r\n\r\nhi"),
    refused("two lengths in other case", "CVE-2020-10108", START + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\nhi"),
    refused("a length and an empty one", "CVE-2023-40225", START + b"Content-Length: 2\r\nContent-Length:\r\n\r\nhi"),
    refused("a length behind a tab", "CVE-2024-27982", START + b"\tContent-Length: 2\r\n\r\nhi"),
    refused(
        "a length behind a blank", "CVE-2024-27982", b"POST /mcp HTTP/1.1\r\n Content-Length: 2\r\nHost: x\r\n\r\nhi"
    ),
    refused("a blank in the name", "CVE-2015-5739", START + b"Content Length: 2\r\n\r\nhi"),
    refused("folded behind its name", "CVE-2022-32215", START + b"Content-Length:\r\n 2\r\n\r\nhi"),
    served("with blanks around", "RFC 9112, 5.1", START + b"Content-Length:  \t2\t \r\n\r\nhi", b"hi"),
    served("without a blank", "RFC 9112, 5.1", START + b"Content-Length:2\r\n\r\nhi", b"hi"),
    served("leading zeros", "RFC 9110, 8.6", START + b"Content-Length: 0000000000000000002\r\n\r\nhi", b"hi"),
    served("a length in odd case", "RFC 9110, 5.1", START + b"cOnTeNt-LeNgTh: 2\r\n\r\nhi", b"hi"),
    served(
        "an underscore makes another field of a length",
        "CVE-2022-36760",
        START + b"Content_Length: 9\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
    ),
    served("an underscore alone is no length", "CVE-2022-36760", START + b"Content_Length: 2\r\n\r\n", b""),
    served("a body on GET", "CL.0, 2022", b"GET /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    served("a body on HEAD", "CL.0, 2022", b"HEAD /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    served(
        "a body on OPTIONS", "CL.0, 2022", b"OPTIONS /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"hi"
    ),
    served("a body on DELETE", "CL.0, 2022", b"DELETE /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    served(
        "a body that looks like a request",
        "CL.0, 2022",
        START + b"Content-Length: 33\r\n\r\nGET /stolen HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /stolen HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    served("a length of zero", "CVE-2023-40175", START + b"Content-Length: 0\r\n\r\n", b""),
    served("neither length nor coding", "RFC 9112, 6.3", START + b"\r\n", b""),
    served(
        "a length on HTTP/1.0",
        "RFC 9112, 6.3",
        b"POST /mcp HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
        closes=True,
    ),
]
