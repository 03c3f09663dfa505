"""Where a Redis can be: on a socket of this machine, behind TLS, in a database of its number."""

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.background import Background
from proxy.pins.store import Pin, PinStoreError
from tests.pins.stores import K, now, redis_world
from tests.redis_server import redis_server


async def test_a_socket_of_this_machine(background: Background, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    async with redis_server("--unixsocket", str(path), "--requirepass", "sesame") as server:
        async with redis_world(server, background) as world:
            store = world.make(url=f"unix://:sesame@{path}?db=2")
            assert await now(store.put(K[0], "pool", "a", ttl=None)) == "a"
            same = world.make(url=f"redis://default:sesame@127.0.0.1:{server.port}/2")
            assert await now(same.get(K[0])) == Pin("a")
            elsewhere = world.make(url=f"redis://:sesame@127.0.0.1:{server.port}/1")
            assert await now(elsewhere.get(K[0])) is None


async def test_tls_with_a_certificate_that_this_machine_trusts_and_no_other(
    background: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-auth-clients", "no")
    async with redis_server() as plain:  # lends its port
        port = plain.port
        plain.kill()
        async with redis_server("--tls-port", str(port), *tls) as server, redis_world(server, background) as world:
            stranger = world.make(url=f"rediss://127.0.0.1:{port}")
            with pytest.raises(PinStoreError):
                await now(stranger.get(K[0]))
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            store = world.make(url=f"rediss://127.0.0.1:{port}")
            assert await now(store.put(K[0], "pool", "a", ttl=None)) == "a"
            assert await now(world.make().get(K[0])) == Pin("a")


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis of a test")])
    today = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "certificate.pem", directory / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
