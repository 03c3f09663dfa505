"""Certificates made for a test: an authority, what it signs, and the files and contexts of both."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

_NOW = datetime.now(UTC)
PAST = (_NOW - timedelta(days=9), _NOW - timedelta(days=2))
FUTURE = (_NOW + timedelta(days=2), _NOW + timedelta(days=9))


class Authority:
    """A CA whose files are in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.file = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def sign(
        self, file: str, *names: str, valid: tuple[datetime, datetime] | None = None, password: bytes = b""
    ) -> "Pair":
        """A certificate for these names, in `file`.pem and `file`.key; those before it are replaced."""
        not_before, not_after = valid or (None, None)
        made = self._authority.issue_cert(
            *names, not_before=not_before, not_after=not_after, key_type=trustme.KeyType.ECDSA
        )
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}.key", made)
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key = made.private_key_pem.bytes()
        if password:
            loaded = load_pem_private_key(key, None)
            key = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
        pair.key.write_bytes(key)
        return pair

    def trusting(self, pair: "Pair | None" = None) -> ssl.SSLContext:
        """The context of a client that trusts this authority, and shows this certificate."""
        context = ssl.create_default_context(cafile=str(self.file))
        if pair is not None:
            pair.made.configure_cert(context)
        return context


class Pair:
    """A certificate with its key, in files."""

    def __init__(self, certificate: Path, key: Path, made: trustme.LeafCert) -> None:
        self.certificate = certificate
        self.key = key
        self.made = made

    def serving(self, *, clients_of: Authority | None = None) -> ssl.SSLContext:
        """The context of a server that shows this certificate, and asks clients for one of that authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.made.configure_cert(context)
        if clients_of is not None:
            context.load_verify_locations(cafile=str(clients_of.file))
            context.verify_mode = ssl.CERT_REQUIRED
        return context
