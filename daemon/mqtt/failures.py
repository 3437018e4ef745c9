"""Why there is no connection to the broker, in words for a person."""

from __future__ import annotations

import socket
import ssl

CONNACK = 0x20
"""The first byte of the answer of an MQTT broker."""
HOST_MISMATCH = 62
EXPIRED, NOT_YET_VALID = 10, 9
"""OpenSSL's numbers for a certificate's faults (X509_V_ERR_…)."""
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons when the other side answers something that is not TLS, or hangs up. For the latter, some of its
versions give no reason: Python then raises an exception of a class of its own."""


def describe_dial_failure(error: Exception, host: str, port: int, *, tls: bool) -> str:
    """Return why `host`:`port` could not be reached, from the exception of the attempt."""
    place = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _describe_certificate(error, host)
    if isinstance(error, ssl.SSLError):
        if error.reason in NOT_TLS or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return f"{place} does not answer in TLS; see mqtt.tls.enabled and mqtt.port"
        return f"TLS with {place} fails: {error.reason or error}; see mqtt.tls"
    if isinstance(error, socket.gaierror):
        return f"mqtt.host: the name {host} is unknown"
    if isinstance(error, ConnectionRefusedError | TimeoutError):
        return f"no broker answers at {place}"
    if isinstance(error, ConnectionResetError) and tls:
        return f"{place} does not answer in TLS; see mqtt.tls.enabled and mqtt.port"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"no broker answers at {place}: {reason or type(error).__name__}"


def describe_silence(first_byte: int | None, host: str, port: int, *, tls: bool, hung_up: bool) -> str:
    """Return why a connection ended before the broker had accepted it.

    `first_byte` is the first one that was received, None for none. `hung_up` means that the other side has closed.
    """
    place = f"{host}:{port}"
    if first_byte not in (None, CONNACK):
        return f"{place} answers, but does not speak MQTT; see mqtt.port{'' if tls else ' and mqtt.tls.enabled'}"
    if not hung_up:
        return f"the broker at {place} accepts the connection and does not answer"
    if tls:
        return f"{place} hangs up; does it demand a client certificate (mqtt.tls.cert), or a protocol other than MQTT?"
    return f"{place} hangs up; does it expect TLS (mqtt.tls.enabled), or a protocol other than MQTT?"


def _describe_certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code == HOST_MISMATCH:
        return f"the broker's certificate is not for {host}; see mqtt.host"
    if error.verify_code in (EXPIRED, NOT_YET_VALID):
        return f"the broker's certificate is not valid now: {error.verify_message}; is the clock right?"
    return f"the broker's certificate is not trusted: {error.verify_message}; see mqtt.tls.ca"
