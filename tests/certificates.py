"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class CertificateAuthority:
    """Makes certificates for 127.0.0.1, good for an hour, as files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of tests")])
        self.certificate = self._write("ca.pem", self._signed("authority of tests", self._key.public_key(), ca=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._write(f"{name}.pem", self._signed(name, key.public_key())), self._write(f"{name}.key", plain)

    def _signed(self, name: str, key: ec.EllipticCurvePublicKey, *, ca: bool = False) -> bytes:
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name).public_key(key).serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5)).not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .sign(self._key, hashes.SHA256())
        )  # fmt: skip
        return made.public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, data: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(data)
        return path
