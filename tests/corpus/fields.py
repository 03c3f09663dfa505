"""Fields between two hops: Connection, Upgrade, Expect, names with underscores, and what CGI would take for another."""

from tests.corpus.cases import GET, SMUGGLED, START, refused, served

_PROTECTED = [
    *(b"Host", b"Origin", b"Authorization", b"Content-Length", b"Content-Type", b"Content-Encoding"),
    *(b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host", b"Mcp-Name", b"Mcp-Method", b"Mcp-Session-Id"),
    *(b"Mcp-Param-Region", b"MCP-Protocol-Version", b"mCP-nAME"),
]
_HIDDEN = "hop-by-hop fields abused, 2019; CVE-2022-31813"
CASES = [
    *[
        refused(f"Connection names {name.decode()}", _HIDDEN, START + b"Connection: close, " + name + b"\r\n\r\n")
        for name in _PROTECTED
    ],
    refused("a second Connection names Host", _HIDDEN, START + b"Connection: close\r\nConnection: host\r\n\r\n"),
    refused("Connection names Host between commas", _HIDDEN, START + b"Connection: ,,\thost\t,\r\n\r\n"),
    served("Connection names nothing", "RFC 9110, 7.6.1", START + b"Connection: , ,\r\n\r\n"),
    served("Connection names a field of no weight", "RFC 9110, 7.6.1", START + b"Connection: x-a\r\nX-A: b\r\n\r\n"),
    served(
        "Connection names a coding",
        _HIDDEN,
        START + b"Connection: Transfer-Encoding\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
    ),
    served(
        "Connection names the coding there is",
        _HIDDEN,
        START + b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"hi",
    ),
    served("Connection closes", "RFC 9112, 9.6", START + b"Connection: close\r\n\r\n" + SMUGGLED, closes=True),
    served(
        "Connection closes in capitals", "RFC 9112, 9.6", START + b"Connection: CLOSE\r\n\r\n" + SMUGGLED, closes=True
    ),
    served(
        "Connection closes and is kept", "RFC 9112, 9.3", START + b"Connection: keep-alive, close\r\n\r\n", closes=True
    ),
    served(
        "a second Connection closes",
        "RFC 9112, 9.3",
        START + b"Connection: keep-alive\r\nConnection: close\r\n\r\n",
        closes=True,
    ),
    served("HTTP/1.0 closes", "RFC 9112, 9.3", b"GET /mcp HTTP/1.0\r\n\r\n" + SMUGGLED, closes=True),
    served("HTTP/1.0 kept alive", "RFC 9112, C.2.2", b"GET /mcp HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    served("Keep-Alive alone", "RFC 9112, C.2.2", START + b"Keep-Alive: timeout=5, max=1\r\n\r\n"),
    served("Proxy-Connection closes", "RFC 9112, C.2.2", START + b"Proxy-Connection: close\r\n\r\n", closes=True),
    refused(
        "h2c",
        "h2c smuggling, 2020",
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        501,
    ),
    refused(
        "h2c with a body",
        "h2c smuggling, 2020",
        START + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
        501,
    ),
    refused("WebSocket", "WebSocket smuggling, 2019", GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 501),
    refused("CONNECT", "RFC 9110, 9.3.6", b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n" + SMUGGLED, 501),
    served("Upgrade without Connection", "h2c smuggling, 2020", GET + b"Upgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"),
    served("Connection: Upgrade without Upgrade", "RFC 9110, 7.8", GET + b"Connection: Upgrade\r\n\r\n"),
    served("Upgrade on HTTP/1.0", "RFC 9110, 7.8", b"GET /mcp HTTP/1.0\r\nUpgrade: h2c\r\n\r\n", closes=True),
    served("Expect", "RFC 9110, 10.1.1", START + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    served(
        "Expect in odd case", "RFC 9110, 10.1.1", START + b"eXPECT: 100-CONTINUE\r\nContent-Length: 2\r\n\r\nhi", b"hi"
    ),
    served(
        "Expect twice",
        "0.CL, 2025",
        START + b"Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
    ),
    served(
        "an Expect of something else",
        "0.CL, 2025",
        START + b"Expect: y 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
    ),
    served("an Expect of nothing", "0.CL, 2025", START + b"Expect:\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    served("Expect of no body", "0.CL, 2025", GET + b"Expect: 100-continue\r\n\r\n"),
    served(
        "Expect of chunks",
        "0.CL, 2025",
        START + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"hi",
    ),
    served(
        "Expect on HTTP/1.0",
        "RFC 9110, 10.1.1",
        b"POST /mcp HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        b"hi",
        closes=True,
    ),
    served(
        "underscores",
        "CVE-2022-36760",
        START + b"X_Forwarded_For: 1.2.3.4\r\nMcp_Name: x\r\nHOST_: y\r\nTransfer_Encoding: chunked\r\n\r\n",
    ),
    served("HTTP_ before a name", "httpoxy, CVE-2016-5385", START + b"Proxy: http://x\r\nHTTP_HOST: y\r\n\r\n"),
    served("X-HTTP-Method-Override", "RFC 9110, 9.1", START + b"X-HTTP-Method-Override: CONNECT\r\n\r\n"),
    served("X-Original-URL", "CVE-2018-14773", START + b"X-Original-URL: /stolen\r\nX-Rewrite-URL: /stolen\r\n\r\n"),
    served(
        "a trailer is announced",
        "RFC 9110, 6.6.2",
        START + b"Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
]
