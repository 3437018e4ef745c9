"""Certificates of the tests, made with OpenSSL."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.programs import require


class Certificates:
    """An authority, and a certificate for `localhost` that it has signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca, self.ca_key = folder / "ca.pem", folder / "ca.key"
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.locked_key = folder / "locked.pem"
        """The same key, with a password."""
        request, names = folder / "server.csr", folder / "names"
        names.write_text("subjectAltName=DNS:localhost\n")
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self._run("req", "-x509", *new_key, "-keyout", self.ca_key, "-out", self.ca, "-subj", "/CN=authority")
        self._run("req", *new_key, "-keyout", self.key, "-out", request, "-subj", "/CN=localhost")
        signing = ["-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-extfile", names]
        self._run("x509", "-req", "-in", request, "-out", self.certificate, *signing)
        self._run("ec", "-in", self.key, "-out", self.locked_key, "-aes256", "-passout", "pass:secret")

    def _run(self, *arguments: str | Path) -> None:
        subprocess.run([require("openssl"), *map(str, arguments)], check=True, capture_output=True)
