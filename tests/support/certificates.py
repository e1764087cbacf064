"""Certificate files for tests: an authority and the certificates that it signs."""

from __future__ import annotations

from pathlib import Path

import trustme


class CertificateAuthority:
    """Signs certificates of servers and clients for 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.certificate = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.certificate)

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a new certificate and its key."""
        issued = self._authority.issue_cert("127.0.0.1")
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        return certificate, key
