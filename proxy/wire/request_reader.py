"""Requests read off the bytes of one connection, one after the other; without a transport, and without waiting.

Each message is fed to httptools alone: a head up to its empty line, then its body up to its end, so that the parser
never sees two messages joined; what is pipelined behind stays unread.
"""

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from proxy.routing.errors import BadRequest, FramingError, HeadTooLarge, ProxyError, Unsupported
from proxy.wire.framing import BodyCursor, Chunks, cursor_for
from proxy.wire.limits import MAX_HEAD
from proxy.wire.parsing import DUE, ONLY_END, into
from proxy.wire.request_frame import Frame, RequestHead
from proxy.wire.request_head import RequestHeadReader

_MAX_EMPTY_LINES = 8  # before a request line (RFC 9112, 2.2)
_CR = 13
_NONE = HttpRequestParser(None)  # reads nothing: it stands where there is no parser


def feed_head(parser: HttpRequestParser, data: bytes) -> None:
    """Feeds the parser some bytes of a head, up to its end. Raises BadRequest, Unsupported."""
    try:
        parser.feed_data(data)
    except HttpParserUpgrade:
        raise Unsupported("CONNECT and Upgrade are not supported") from None
    except HttpParserError as error:
        raise BadRequest(f"the request does not parse: {error}") from None


class RequestReader:
    """Reads one connection. Add what comes to `text`; while some of it is unread, read a head, or what is `in_body`.

    After an error nothing more can be read: nobody knows where the next message would begin.
    """

    __slots__ = ("_body", "_empty", "_fed", "_frame", "_marks", "_parser", "at", "in_body", "pieces", "text")

    _body: BodyCursor

    def __init__(self) -> None:
        self.text = b""
        """What came; some of what is read may still stand at its beginning."""
        self.at = 0
        """How much of it is read."""
        self.in_body = False
        """True from a head to the end of its body."""
        self.pieces: list[bytes] = []
        """The content that was read; to be taken before more is read."""
        self._empty = 0  # lines passed over before the next head
        self._fed = 0  # how much of the text the parser has seen, of a head that is not whole
        self._frame: Frame | None = None  # of the last head
        self._marks: list[None] = []
        self._parser = _NONE

    @property
    def before(self) -> Frame | None:
        """Between messages: that of the last request, if the next one may be told by it and needs no reading."""
        return None if self._empty else self._frame

    def read_head(self, heads: RequestHeadReader) -> RequestHead | None:
        """The next head if it is there whole, and with it its body if that is all that follows; None: not yet.

        Raises BadRequest, HeadTooLarge, Unsupported.
        """
        text = self.text
        if not self._fed and text[self.at] == _CR and not self._skip_empty_lines():
            return None
        start = self.at
        end = text.find(b"\r\n\r\n", max(start, self._fed - 3)) + 4
        if (end if end >= 4 else len(text)) - start > MAX_HEAD:
            raise HeadTooLarge(f"the head has more than {MAX_HEAD} bytes")
        if self._parser is _NONE:
            self._parser = HttpRequestParser(into(self._marks, self.pieces))
        if end < 4:
            feed_head(self._parser, text[max(start, self._fed) :])
            self._fed = len(text)
            return None
        marks, seen = self._marks, max(start, self._fed)
        marks += DUE
        try:
            head = heads.read(text[start:end], self._frame)
        except ProxyError:
            feed_head(self._parser, text[seen:end])  # what it refuses has an answer of its own
            raise
        whole = not head.frame.chunked and len(text) - end == head.length
        stop = len(text) if whole else end
        feed_head(self._parser, text if not seen and stop == len(text) else text[seen:stop])
        if len(marks) > (0 if whole else ONLY_END):
            raise BadRequest("the request does not end where it seems to")
        self.at, self._fed, self._empty, self._frame = stop, 0, 0, head.frame
        if marks:
            self.in_body, self._body = True, cursor_for(head.length, chunked=head.frame.chunked)
        return head

    def _skip_empty_lines(self) -> bool:
        """Passes over empty lines before a request line; False if one may have come by half."""
        text = self.text
        while text.startswith(b"\r\n", self.at):
            self.at += 2
            self._empty += 1
            if self._empty > _MAX_EMPTY_LINES:
                raise BadRequest(f"more than {_MAX_EMPTY_LINES} empty lines stand before the request")
        return self.at < len(text) and text[self.at :] != b"\r"

    def read_body(self) -> None:
        """Reads what there is of the body. Raises BadRequest."""
        text, start = self.text, self.at
        try:
            end = self.at = self._body.end(text, start)
            self._parser.feed_data(text if end - start == len(text) else text[start:end])
            self.in_body = bool(self._marks)
            if not self.in_body and isinstance(self._body, Chunks):
                self._parser = _NONE  # it obeys a Connection in trailers, which mean nothing there (RFC 9110, 6.5.1)
            if self._body.ended is self.in_body:
                raise FramingError("it does not end where it should")
        except (HttpParserError, FramingError) as error:
            self.in_body = True
            raise BadRequest(f"the request's body does not parse: {error}") from None

    def rest(self) -> None:
        """No further request is to be read for long: what makes reading the next one cheaper is let go of. Does nothing
        within a message."""
        if not self.in_body and not self._fed:
            self._parser = _NONE
            if self._frame is not None:
                self._frame.stop_sharing()
                self._frame = None

    def forget_read(self) -> None:
        """Lets go of the text that is read, where some is left that has to wait."""
        self.text, self.at, self._fed = self.text[self.at :], 0, max(0, self._fed - self.at)
