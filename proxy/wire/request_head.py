"""Heads of requests: read, checked, and turned into the bytes to send on; how a request's body is framed.

httptools has validated the syntax of every head that comes here (it refuses bare CR and LF, obs-fold, NUL, blanks
before a colon, several Content-Lengths, Content-Length with Transfer-Encoding). Here stands what it does not check, and
what two parsers could otherwise frame differently:
* one transfer coding, a final `chunked`, never on HTTP/1.0; a request line of exactly three words; HTTP/1.0 or 1.1;
* exactly one valid Host on HTTP/1.1; a target in origin form without dot segments, `//`, or encoded `/ \\ .`;
* limits on bytes, fields, one Mcp-* value and the number of Mcp-Param-*.
Fields are kept as the lines they came in: what is forwarded is forwarded byte for byte.

A head with the same lines as the one before, but for the name and the length, shares its frame (wire.request_frame).
"""

import re

from proxy.records import KNOWN_METHODS
from proxy.routing import headers as fields
from proxy.routing.errors import BadRequest, DuplicateHeader, HeadTooLarge, ProxyError
from proxy.routing.headers import RoutingHeaders, is_modern
from proxy.routing.ownership import may_teach
from proxy.routing.retries import may_repeat
from proxy.wire.limits import MAX_FIELDS, MAX_HEAD, MAX_ROUTING_VALUE, OWS, content_length, remember, tokens_of
from proxy.wire.request_frame import NO_LINES, Frame, RequestHead

MAX_PARAMS = 64  # Mcp-Param-* fields of one request
_MAX_HOST = 261  # bytes: a name of 255 and a port

_METHOD = re.compile(rb"[A-Z-]+")
_TARGET = re.compile(rb"/[!\"$-\[\]-~]*")  # origin form: visible ASCII but `#` and backslash (RFC 9112, 3.2.1)
# Some servers take `..;x` for a dot segment: they cut a segment's parameters off first (RFC 3986, 3.3).
_DEVIOUS = re.compile(rb"//|/\.{1,2}(?:[/;]|$)|%(?:2f|5c|2e)", re.IGNORECASE)
_HOST = re.compile(rb"(?P<name>[A-Za-z0-9._~%!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


class RequestHeadReader:
    """Reads request heads. `wanted`: lower-case names of further fields that routes and ring keys ask for."""

    def __init__(self, wanted: frozenset[bytes] = frozenset()) -> None:
        self._wanted = wanted
        self._kinds: dict[bytes, int] = {}
        self._hosts: dict[bytes, str] = {}

    def read(self, head: bytes, before: Frame | None = None) -> RequestHead:
        """Reads one head, from its request line to its empty line; `before`: the frame of the connection's last one.

        Raises BadRequest, HeadTooLarge.
        """
        lines = head.split(b"\r\n")
        # Below this size no limit can be passed that the first head with this frame has not met.
        if (
            before is not None
            and before.reader is self
            and len(lines) == len(before.lines)
            and len(head) <= MAX_ROUTING_VALUE
        ):
            name_line, length_line = lines[before.name_at], lines[before.length_at]
            lines[before.name_at] = lines[before.length_at] = b""
            if (
                lines == before.lines
                and name_line.startswith(before.name_prefix)
                and length_line.startswith(before.length_prefix)
            ):
                if before.likeness is None:
                    before.expect_alike(head)
                return _of_frame(before, name_line, length_line)
            lines = head.split(b"\r\n")
        return self._read_anew(head, lines)

    def _read_anew(self, head: bytes, lines: list[bytes]) -> RequestHead:
        if len(head) > MAX_HEAD:
            raise HeadTooLarge(f"the head has more than {MAX_HEAD} bytes")
        if len(lines) - 3 > MAX_FIELDS:
            raise HeadTooLarge(f"the head has more than {MAX_FIELDS} fields")
        frame = Frame()
        frame.reader = self
        frame.likeness = frame.memo = None
        frame.verb, frame.path, frame.query, frame.http10 = _request_line(lines[0])
        frame.kept, frame.accept_encoding = [], []
        frame.name_at = frame.length_at = -1  # the last line, which is empty
        frame.name_prefix = frame.length_prefix = frame.session_prefix = b""
        found: dict[int, bytes] = {}
        repeated: list[int] = []
        params: list[tuple[str, str]] = []
        asked: dict[str, str] = {}
        proxied = b""
        for at, line in enumerate(lines[1:-2], start=1):
            name, _, value = line.partition(b":")
            kind = self._kind(name)
            if kind == fields.NAME:
                frame.name_at, frame.name_prefix = at, name + b":"
            elif kind == fields.SESSION:
                frame.session_prefix = name + b":"
            elif kind >= fields.KEPT:
                frame.kept.append(line)
            if kind == fields.PARAM:
                params.append((name[10:].lower().decode("latin-1"), _text(value)))
            elif kind == fields.WANTED:
                known = name.lower().decode("latin-1")
                asked[known] = f"{asked[known]}, {_text(value)}" if known in asked else _text(value)
            elif kind == fields.ACCEPT_ENCODING:
                frame.accept_encoding.append(line)
            elif kind == fields.DROPPED:
                if name.lower() == b"proxy-connection":
                    proxied += b"," + value
            elif kind == fields.PASSED:
                continue
            elif kind in found:
                repeated.append(kind)
                found[kind] += b", " + value.strip(OWS)
            else:
                found[kind] = value.strip(OWS)
                if kind == fields.LENGTH:
                    frame.length_at, frame.length_prefix = at, name + b":"

        frame.forwarded = found
        frame.expect = b"" if frame.http10 else found.get(fields.EXPECT, b"")
        frame.keep_alive = not frame.http10
        if fields.CONNECTION in found:
            self._apply_connection(frame, found[fields.CONNECTION])
        if b"close" in tokens_of(proxied):  # the parser obeys it as well
            frame.keep_alive = False
        host_text = self._apply_host(frame, found.get(fields.HOST), repeated=fields.HOST in repeated)
        length = _apply_framing(frame, found, repeated)
        origin = found.get(fields.ORIGIN)
        frame.origin = None if origin is None else origin.decode("latin-1")
        version = found.get(fields.VERSION, b"").decode("latin-1")
        session, mcp_name = found.get(fields.SESSION), found.get(fields.NAME)
        frame.routing = RoutingHeaders(
            verb=frame.verb.decode("ascii"),
            path=frame.path.decode("ascii"),
            host=host_text,
            version=version,
            modern=all(map(is_modern, version.split(", "))),  # of a repeated one, too, though it is refused
            method=found.get(fields.METHOD, b"").decode("latin-1"),
            session=None if session is None else session.decode("latin-1"),
            params=tuple(params),
            fields=asked,
            name=None if mcp_name is None else mcp_name.decode("latin-1"),
        )
        routing = frame.routing
        frame.label = routing.method if routing.modern and routing.method in KNOWN_METHODS else "other"
        frame.kind = "task" if routing.is_task else "session" if routing.is_session else "none"
        frame.teaches = may_teach(routing)
        frame.repeatable = may_repeat(routing)
        frame.sent = {}
        fault = _routing_fault(found, repeated, params)
        if len(head) > MAX_ROUTING_VALUE and any(map(_is_long_routing_field, frame.kept)):
            fault = HeadTooLarge(f"a Mcp-* value has more than {MAX_ROUTING_VALUE} bytes")
        name_line = lines[frame.name_at] + b"\r\n" if mcp_name is not None else b""
        lines[frame.name_at] = lines[frame.length_at] = b""
        frame.lines = lines if fault is None else NO_LINES
        return RequestHead(frame, frame.routing, length, name_line, fault)

    def memos(self) -> list[bytes]:
        """What is remembered of what clients sent, for whoever looks after memory."""
        return [*self._kinds, *self._hosts]

    def _kind(self, name: bytes) -> int:
        kind = self._kinds.get(name)
        if kind is None:
            kind = remember(self._kinds, name, fields.field_kind(name, self._wanted))
        return kind

    def _apply_connection(self, frame: Frame, value: bytes) -> None:
        """Decides keep-alive and takes out the fields that `Connection` names (RFC 9110, 7.6.1)."""
        tokens = tokens_of(value)
        frame.keep_alive = (b"keep-alive" in tokens or not frame.http10) and b"close" not in tokens
        named = tokens - fields.HOP_BY_HOP - {b"close", b""}
        if any(fields.is_protected(token) or token in self._wanted for token in named):
            raise BadRequest("Connection names a field that decides where a request goes or what it carries")
        if named:
            frame.kept = [line for line in frame.kept if line.partition(b":")[0].lower() not in named]
            if b"accept-encoding" in named:
                frame.accept_encoding = []
            if b"expect" in named:
                frame.expect = b""

    def _apply_host(self, frame: Frame, value: bytes | None, *, repeated: bool) -> str:
        """Keeps the Host value and returns its name in lower case, without port."""
        frame.host = value or b""
        if value is None:
            if frame.http10:
                return ""
            raise BadRequest("no Host field")
        if repeated:
            raise BadRequest("more than one Host field")
        text = self._hosts.get(value)
        if text is None:
            found = _HOST.fullmatch(value) if len(value) <= _MAX_HOST else None
            if found is None:
                raise BadRequest("the Host field is not a host with an optional port")
            text = remember(self._hosts, value, found["name"].lower().decode("ascii"))
        return text


def _of_frame(frame: Frame, name_line: bytes, length_line: bytes) -> RequestHead:
    """A head that differs from the frame's first one in the name and the length alone."""
    size = content_length(length_line[len(frame.length_prefix) :].strip(OWS)) if length_line else 0
    if size is None:
        raise BadRequest("Content-Length must be one number")
    if not name_line:
        return RequestHead(frame, frame.routing, size, b"")
    name = name_line[len(frame.name_prefix) :].strip(OWS).decode("latin-1")
    return RequestHead(frame, frame.routing.named(name), size, name_line + b"\r\n")


def _is_long_routing_field(line: bytes) -> bool:
    return line[:4].lower() == b"mcp-" and len(line.partition(b":")[2].strip(OWS)) > MAX_ROUTING_VALUE


def _text(value: bytes) -> str:
    return value.strip(OWS).decode("latin-1")


def _request_line(line: bytes) -> tuple[bytes, bytes, bytes, bool]:
    words = line.split(b" ")
    if len(words) != 3 or _METHOD.fullmatch(words[0]) is None:
        raise BadRequest("the request line is not `METHOD target HTTP/1.1`")
    verb, target, version = words
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest("the version is not HTTP/1.1 or HTTP/1.0")
    if _TARGET.fullmatch(target) is None:
        raise BadRequest("the target is not an absolute path of visible ASCII without `#` and backslash")
    path, mark, query = target.partition(b"?")
    if _DEVIOUS.search(path) is not None:
        raise BadRequest("the target's path has `//`, dot segments or an encoded slash, backslash or dot")
    return verb, path, mark + query, version == b"HTTP/1.0"


def _apply_framing(frame: Frame, found: dict[int, bytes], repeated: list[int]) -> int:
    """Decides how the body is framed and returns its length (RFC 9112, 6.3)."""
    coding, length = found.get(fields.TRANSFER), found.get(fields.LENGTH)
    frame.chunked, frame.has_length = coding is not None, length is not None
    if coding is not None:
        if frame.http10 or length is not None or coding.lower() != b"chunked":
            raise BadRequest("Transfer-Encoding must be `chunked` alone, on HTTP/1.1, without Content-Length")
        return 0
    if length is None:
        return 0
    size = content_length(length)
    if size is None or fields.LENGTH in repeated:
        raise BadRequest("Content-Length must be one number")
    return size


def _routing_fault(found: dict[int, bytes], repeated: list[int], params: list[tuple[str, str]]) -> ProxyError | None:
    if len(params) > MAX_PARAMS:
        return HeadTooLarge(f"more than {MAX_PARAMS} Mcp-Param-* fields")
    values = [len(found.get(kind, b"")) for kind in fields.ONLY_ONCE] + [len(value) for _, value in params]
    if max(values) > MAX_ROUTING_VALUE:
        return HeadTooLarge(f"a Mcp-* value has more than {MAX_ROUTING_VALUE} bytes")
    for kind in repeated:
        if kind in fields.ONLY_ONCE:
            return DuplicateHeader(f"{fields.ONLY_ONCE[kind]} comes more than once")
    return None
