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
from proxy.config.fields import Field, Section

_FILE = "the path of a file in PEM"


def read_listen_tls(field: Field) -> ServerTls | None:
    """`listen.tls`."""
    section = field.section("certificate", "key", "client_ca")
    if section is None:
        return None
    before = len(field.report.problems)
    certificate, key = (_path(section.require(name, _FILE)) for name in ("certificate", "key"))
    client_ca = section.read("client_ca", _path, None)
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
    section = field.section("ca", "certificate", "key", "server_name", "verify")
    if section is None:
        return None
    if over_tls and not wanted:
        field.problem(message="no backend of this pool has an https URL", allowed="https URLs, or no such key")
    before = len(field.report.problems)
    ca = section.read("ca", _path, None)
    certificate, key = section.read("certificate", _path, None), section.read("key", _path, None)
    server_name = section.read("server_name", _server_name, None)
    verify = section.read("verify", Field.boolean, True)
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


def _path(field: Field | None) -> Path | None:
    text = None if field is None else field.text(_FILE)
    if field is None or text is None:
        return None
    return Path(field.report.source).parent.joinpath(text).absolute()


def _server_name(field: Field) -> str | None:
    allowed = "a host name or an address, without port"
    text = field.text(allowed)
    if text is None:
        return None
    name = host_name(text.removesuffix("."))
    if name is None:
        try:
            return str(ip_address(text))
        except ValueError:
            field.problem(allowed=allowed)
    return name


def _blame(section: Section, error: CertificateError) -> None:
    blamed = section.get(error.key) or section.field
    blamed.problem(message=str(error), allowed=_FILE)


def _warn(section: Section, key: str, path: Path, flaw: str) -> None:
    if flaw:
        section.field.report.warn(f"{section.field.key}.{key}", f"{path} {flaw}")
