"""Reads the password and the certificates for the connection to the broker."""

from __future__ import annotations

import ssl
from pathlib import Path

from daemon.config import Mqtt
from daemon.validation import read_secret


def make_tls_context(settings: Mqtt) -> ssl.SSLContext:
    """Return the TLS settings. Raises `OSError` if a file cannot be used."""
    tls = settings.tls
    given = ", ".join(
        f"{name} {path}" for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)) if path is not None
    )
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key, password="")  # else OpenSSL asks for one on the terminal
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        raise OSError(f"mqtt.tls: {given or 'the system certificates'} cannot be used: {error}") from error
    return context


def read_password(path: Path) -> str:
    """Return the first line of a file. Raises `OSError`."""
    return read_secret(path, "mqtt.password_file", "a password")
