"""What the settings of TLS amount to: contexts for the listener and towards backends, or what is wrong with the files.

Both sides speak TLS 1.2 or newer, HTTP/1.1 alone (ALPN), and do not renegotiate. Whom a CA file names is trusted as far
as it goes: an intermediate, or a certificate that signs itself, need not lead to a root.
"""

import hashlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST = 4 * 1024 * 1024  # bytes; a system's bundle of CAs has some 250 KB
_CERTIFICATE = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----")
_KEY = b"PRIVATE KEY-----"
_LAPSED = {
    9: "is not valid yet",
    10: "has expired",
    26: "is not made for this: its extended key usage does not allow it",
}
"""By OpenSSL's X509_V_ERR codes."""
_TURNS = 4  # of each side, in which any handshake is done (RFC 5246, 7.3)


class CertificateError(ValueError):
    """Files that cannot be used. `key` is the setting that names the one that is to blame."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How clients are spoken to. With `client_ca` they must show a certificate that it has signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    contents: bytes = field(default=b"", repr=False)
    """A digest of the files' contents: other contents are other settings."""

    @property
    def files(self) -> dict[str, Path]:
        """The files by the settings that name them."""
        return _named(certificate=self.certificate, key=self.key, client_ca=self.client_ca)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How the backends of a pool are spoken to. No `ca`: the system's. No `server_name`: each is asked for its host."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    verify: bool = True
    contents: bytes = field(default=b"", repr=False)
    """As in ServerTls."""

    @property
    def files(self) -> dict[str, Path]:
        """The files by the settings that name them."""
        return _named(ca=self.ca, certificate=self.certificate, key=self.key)


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """The context for connections from clients. Raises CertificateError."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, tls.certificate, tls.key)
    if tls.client_ca is not None:
        _load_ca(context, "client_ca", tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """The context for connections to backends. Raises CertificateError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_ca(context, "ca", tls.ca)
    if tls.certificate is not None and tls.key is not None:
        _load_pair(context, tls.certificate, tls.key)
    return context


def contents_of(files: dict[str, Path]) -> bytes:
    """A digest of what these files hold. Raises CertificateError where one cannot be read."""
    digest = hashlib.sha256()
    for key, path in files.items():
        digest.update(hashlib.sha256(_read(key, path)).digest())
    return digest.digest()


def server_flaw(tls: ServerTls) -> str:
    """Why clients will refuse a certificate that loads, or nothing. Raises CertificateError."""
    asking = _context(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False  # by which names clients come is not known here
    _load_ca(asking, "certificate", tls.certificate)
    showing = _context(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(showing, tls.certificate, tls.key)
    return _flaw(showing, asking)


def client_flaw(tls: ClientTls) -> str:
    """Why backends will refuse the certificate shown to them, or nothing. Raises CertificateError."""
    if tls.certificate is None or tls.key is None:
        return ""
    asking = _context(ssl.PROTOCOL_TLS_SERVER)
    asking.verify_mode = ssl.CERT_REQUIRED
    _load_pair(asking, tls.certificate, tls.key)
    _load_ca(asking, "certificate", tls.certificate)
    showing = _context(ssl.PROTOCOL_TLS_CLIENT)
    showing.check_hostname = False
    showing.verify_mode = ssl.CERT_NONE
    _load_pair(showing, tls.certificate, tls.key)
    return _flaw(asking, showing)


def _named(**files: Path | None) -> dict[str, Path]:
    return {key: path for key, path in files.items() if path is not None}


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _read(key: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            contents = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CertificateError(key, f"{path} cannot be read: {reason}") from None
    if len(contents) > _LARGEST:
        raise CertificateError(key, f"{path} is larger than {_LARGEST} bytes")
    return contents


def _load_ca(context: ssl.SSLContext, key: str, path: Path) -> None:
    if not any(mark in _read(key, path) for mark in _CERTIFICATE):
        raise CertificateError(key, f"{path} holds no certificate in PEM")
    try:
        context.load_verify_locations(cafile=str(path))
    except OSError as error:  # SSLError included
        raise CertificateError(key, f"{path} cannot be loaded: {_said(error)}") from None


class _Encrypted(Exception):
    """A key asks for its password."""


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    if not any(mark in _read("certificate", certificate) for mark in _CERTIFICATE):
        raise CertificateError("certificate", f"{certificate} holds no certificate in PEM")
    if _KEY not in _read("key", key):
        raise CertificateError("key", f"{key} holds no private key in PEM")

    def password() -> str:
        raise _Encrypted

    try:
        context.load_cert_chain(certificate, key, password)
    except _Encrypted:
        raise CertificateError("key", f"{key} is protected by a password: a key without one is needed") from None
    except OSError as error:
        if isinstance(error, ssl.SSLError) and error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise CertificateError("key", f"{key} is not the key of the certificate in {certificate}") from None
        named = "key" if _certificates_load(certificate) else "certificate"
        blamed = key if named == "key" else certificate
        raise CertificateError(named, f"{blamed} cannot be loaded: {_said(error)}") from None


def _certificates_load(path: Path) -> bool:
    try:
        _context(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=str(path))
    except OSError:
        return False
    return True


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not what OpenSSL can read").replace("_", " ").lower()
    return error.strerror or str(error)


def _flaw(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """What one side of a handshake in memory finds wrong with the other's certificate, which it was told to trust."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for side in sides * _TURNS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return _LAPSED.get(error.verify_code, f"is not accepted: {error.verify_message}")
        except ssl.SSLError as error:
            return f"cannot be used: {_said(error)}"
    return ""
