"""The sections about TLS, `listen.tls` and `pools.*.tls`: their files are there, fit each other, and can be used.

A relative path is meant from the folder of the configuration file. A certificate that loads but will be refused, such
as one that has expired, is a warning and no error: it must not keep the rest of a configuration from coming into force.
"""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from proxy.certificates import (
    CertificateError,
    ClientTls,
    ServerTls,
    client_context,
    client_flaw,
    contents_of,
    server_context,
    server_flaw,
)
from proxy.config.addresses import host_name
from proxy.config.fields import Field
from proxy.config.forms import boolean, text
from proxy.config.sections import Key, Keys, Section

_FILE = "the path of a file in PEM"


def _path(field: Field) -> Path | None:
    written = field.text(_FILE)
    return None if written is None else Path(field.report.source).parent.joinpath(written).absolute()


def _server_name(field: Field) -> str | None:
    allowed = "a host name or an address, without port"
    written = field.text(allowed)
    if written is None:
        return None
    name = host_name(written.removesuffix("."))
    if name is None:
        try:
            return str(ip_address(written))
        except ValueError:
            field.problem(allowed=allowed)
    return name


_FORM = text("path of a file in PEM", _path, show=str)
_CERTIFICATE = Key(
    "certificate",
    _FORM,
    None,
    "The certificate, with those that lead to its root behind it.",
    "tls/proxy.pem",
    required=True,
)
_KEY = Key("key", _FORM, None, "Its key, without a password.", "tls/proxy.key", required=True)
_CLIENT_CA = Key(
    "client_ca",
    _FORM,
    None,
    "Clients must show a certificate that one of these has signed.",
    "tls/clients.pem",
    without="clients are asked for none",
)
LISTEN_TLS = Keys(
    "TLS 1.2 or newer, in place of plain HTTP. Relative paths are meant from the configuration's folder. A reload "
    "reads the files anew, also where only they have changed.",
    (_CERTIFICATE, _KEY, _CLIENT_CA),
)

_CA = Key("ca", _FORM, None, "Who must have signed backends' certificates.", "tls/ca.pem", without="the system's")
_OWN_CERTIFICATE = Key(
    "certificate", _FORM, None, "Shown to backends that ask for one.", "tls/proxy.pem", without="none is shown"
)
_OWN_KEY = Key("key", _FORM, None, "Its key; `certificate` and `key` go together.", "tls/proxy.key")
_SERVER_NAME = Key(
    "server_name",
    text("host name or address", _server_name),
    None,
    "SNI, and whom the certificate must be for.",
    "mcp.internal",
    without="each URL's host",
)
_VERIFY = Key(
    "verify",
    boolean(),
    ClientTls().verify,
    "`false`: any certificate is believed, and whoever gets between can read and answer.",
    "true",
)
POOL_TLS = Keys(
    "For backends with an https URL. Paths as in `listen.tls`.",
    (_CA, _OWN_CERTIFICATE, _OWN_KEY, _SERVER_NAME, _VERIFY),
    {"dependentRequired": {"certificate": ["key"], "key": ["certificate"]}},
)


def read_listen_tls(field: Field) -> ServerTls | None:
    """`listen.tls`."""
    section = LISTEN_TLS.section(field)
    if section is None:
        return None
    before = len(field.report.problems)
    for name in ("certificate", "key"):
        section.require(name, _FILE)
    certificate, key = section.take(_CERTIFICATE), section.take(_KEY)
    client_ca = section.take(_CLIENT_CA)
    if certificate is None or key is None or len(field.report.problems) > before:
        return None
    tls = ServerTls(certificate, key, client_ca)
    try:
        server_context(tls)
        _warn(section, "certificate", certificate, server_flaw(tls))
        return replace(tls, contents=contents_of(tls.files))
    except CertificateError as error:
        _blame(section, error)
        return None


def read_pool_tls(field: Field | None, over_tls: Sequence[bool]) -> ClientTls | None:
    """`pools.*.tls`, and what is meant without it; None where no backend is spoken to over TLS.

    `over_tls`: whether each is, as far as they could be read; those that are discovered count as one.
    """
    wanted = any(over_tls)
    if field is None:
        return ClientTls() if wanted else None
    section = POOL_TLS.section(field)
    if section is None:
        return None
    if over_tls and not wanted:
        field.problem(message="no backend of this pool has an https URL", allowed="https URLs, or no such key")
    before = len(field.report.problems)
    ca, server_name, verify = section.take(_CA), section.take(_SERVER_NAME), section.take(_VERIFY)
    certificate, key = section.take(_OWN_CERTIFICATE), section.take(_OWN_KEY)
    if ("certificate" in section) != ("key" in section):
        missing = "key" if "certificate" in section else "certificate"
        section.require(missing, f"{_FILE}: certificate and key go together")
    if not verify and (unused := section.get("ca")) is not None:
        unused.problem(message="has no meaning with `verify: false`", allowed="one of the two")
    if len(field.report.problems) > before:
        return None
    tls = ClientTls(ca, certificate, key, server_name, verify)
    if not verify:
        field.report.warn(f"{field.key}.verify", "is false: whoever gets between can read and answer the requests")
    try:
        if tls.files:
            client_context(tls)
            if certificate is not None:
                _warn(section, "certificate", certificate, client_flaw(tls))
        return replace(tls, contents=contents_of(tls.files))
    except CertificateError as error:
        _blame(section, error)
        return None


def _blame(section: Section, error: CertificateError) -> None:
    blamed = section.get(error.key) or section.field
    blamed.problem(message=str(error), allowed=_FILE)


def _warn(section: Section, key: str, path: Path, flaw: str) -> None:
    if flaw:
        section.field.report.warn(f"{section.field.key}.{key}", f"{path} {flaw}")
