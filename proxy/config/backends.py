"""A pool's `backends:`, each a URL or a mapping."""

from dataclasses import replace

from proxy.config.addresses import BACKEND_URL, BackendUrl, backend_url, bracketed
from proxy.config.fields import Field
from proxy.config.forms import boolean, integer, text
from proxy.config.reading import Scalar
from proxy.config.sections import Form, Key, Keys
from proxy.routing.backends import Backend

_HEAVIEST = 1000  # the ring makes dozens of points for each unit of weight
DEFAULT_PATH = "/mcp"


def _backend_id(field: Field) -> str | None:
    allowed = "printable characters without spaces and `/`"
    written = field.text(allowed)
    if written is not None and ("/" in written or " " in written or not written.isprintable()):
        field.problem(allowed=allowed)
        return None
    return written


_URL_FORM = text(
    "`http[s]://HOST[:PORT][/PATH]`",
    backend_url,
    r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\\\s]+(?:/[^?#\s]*)?$",
    bare=False,
)
_ID = Key(
    "id",
    text("text without spaces and `/`", _backend_id, r"^[^/\s]+$"),
    None,
    "Unique in the pool. What a backend owns, and a drain by command, go by its id; give ids if addresses change.",
    "b",
    without="the URL's `host:port`",
)
_URL = Key(
    "url",
    _URL_FORM,
    None,
    f"Where it is. The port is 80 (https: 443) unless given, the path `{DEFAULT_PATH}`.",
    "http://10.0.0.12:8000/mcp",
    required=True,
)
_WEIGHT = Key("weight", integer(1, _HEAVIEST), 1, "Its share of new work, beside the others'.", "2")
_DRAIN = Key("drain", boolean(), False, "`true`: it takes no new work, but what it owns.", "true")
BACKEND = Keys("One backend. A URL alone is short for `{url: URL}`.", (_ID, _URL, _WEIGHT, _DRAIN))


def read_backends(field: Field) -> tuple[Backend, ...]:
    """All that have no mistake."""
    backends: list[Backend] = []
    lines: dict[str, int] = {}
    for item in field.items("URLs or {id, url, weight, drain}", least=1):
        backend = _backend(item)
        if backend is None:
            continue
        if backend.id in lines:
            item.problem(
                found=f"the id {backend.id!r} again, first in line {lines[backend.id]}",
                allowed="ids of their own: {id: NAME, url: URL}; the default is the URL's host:port",
            )
        lines.setdefault(backend.id, item.line)
        backends.append(backend)
    return tuple(backends)


def _backend(field: Field) -> Backend | None:
    if isinstance(field.node, Scalar):
        url = backend_url(_as_url(field))
        return None if url is None else _made(url, _ID.default, _WEIGHT.default, drain=_DRAIN.default)
    section = BACKEND.section(field)
    if section is None:
        return None
    section.require("url", BACKEND_URL)
    url, backend_id = section.take(_URL), section.take(_ID)
    weight, drain = section.take(_WEIGHT), section.take(_DRAIN)
    return None if url is None else _made(url, backend_id, weight, drain=drain)


def _as_url(field: Field) -> Field:
    """A backend that is only a URL stands where `backends[].url` does."""
    return replace(field, kind=f"{field.kind}.url")


def _made(url: BackendUrl, backend_id: str | None, weight: int, *, drain: bool) -> Backend:
    if backend_id is None:
        backend_id = f"{bracketed(url.host)}:{url.port}"
    path = DEFAULT_PATH if url.path is None else url.path
    return Backend(backend_id, url.host, url.port, path, weight, drain, url.tls)


BACKENDS = Form("list of URLs or mappings", _URL_FORM.schema, read_backends, keys=BACKEND, place="[]")
