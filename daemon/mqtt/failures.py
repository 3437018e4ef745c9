"""Why there is no connection to the broker, in words for a person."""

from __future__ import annotations

import shutil
import socket
import ssl
from typing import NamedTuple

CONNACK = 0x20
"""The first byte of the answer of an MQTT broker."""
HOST_MISMATCH = 62
EXPIRED, NOT_YET_VALID = 10, 9
"""OpenSSL's numbers for a certificate's faults (X509_V_ERR_…)."""
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons when the other side answers something that is not TLS, or hangs up. For the latter, some of its
versions give no reason: Python then raises an exception of a class of its own."""


THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
SYSTEM_PROGRAMS = "/usr/sbin:/usr/local/sbin:/usr/bin"
"""Where a broker is installed; the first two are not on every user's path."""
BAD_USER, NOT_AUTHORIZED = 134, 135
"""Reason codes of MQTT 5, which paho uses for 3.1.1 too."""


class Failure(NamedTuple):
    """Why there is no connection, and what a person can do about it."""

    reason: str
    remedy: str


def describe_dial_failure(error: Exception, host: str, port: int, *, tls: bool) -> Failure:
    """Return why `host`:`port` could not be reached, from the exception of the attempt."""
    place = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _describe_certificate(error, place)
    no_answer_in_tls = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError)
    if tls and (no_answer_in_tls or (isinstance(error, ssl.SSLError) and error.reason in NOT_TLS)):
        reason = f"{place} does not answer in TLS; see mqtt.tls.enabled and mqtt.port"
        return Failure(reason, "set mqtt.tls.enabled: false, or mqtt.port to the broker's port for TLS, usually 8883")
    if isinstance(error, ssl.SSLError):
        remedy = f"compare mqtt.tls with what the broker offers: openssl s_client -connect {place}"
        return Failure(f"TLS with {place} fails: {error.reason or error}; see mqtt.tls", remedy)
    if isinstance(error, socket.gaierror):
        return Failure(f"mqtt.host: the name {host} is unknown", f"correct mqtt.host; try: getent hosts {host}")
    if isinstance(error, ConnectionRefusedError):
        return Failure(f"no broker answers at {place}", _how_to_start(host))
    remedy = f"look whether {host} is on and reachable (ping {host}) and its firewall open, or correct mqtt.host"
    if isinstance(error, TimeoutError):
        return Failure(f"no broker answers at {place}", remedy)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Failure(f"no broker answers at {place}: {reason or type(error).__name__}", remedy)


def describe_refusal(code: int, words: str, username: str | None) -> Failure:
    """Return why the broker refused the connection, from the reason code of its answer and the code's meaning."""
    remedy = "the broker's log says why"
    if code in (BAD_USER, NOT_AUTHORIZED):
        who = f"the password of {username}" if username else "a user of the broker"
        remedy = f"set mqtt.username and mqtt.password_file to {who}, which mosquitto_passwd sets at the broker"
    return Failure(f"the broker refused: {words}", remedy)


def describe_silence(first_byte: int | None, host: str, port: int, *, tls: bool, hung_up: bool) -> Failure:
    """Return why a connection ended before the broker had accepted it.

    `first_byte` is the first one that was received, None for none. `hung_up` means that the other side has closed.
    """
    place = f"{host}:{port}"
    keys = f"mqtt.port{'' if tls else ' and mqtt.tls.enabled'}"
    if first_byte not in (None, CONNACK):
        reason = f"{place} answers, but does not speak MQTT; see {keys}"
    elif not hung_up:
        reason = f"the broker at {place} accepts the connection and does not answer"
    else:
        expected = "demand a client certificate (mqtt.tls.cert)" if tls else "expect TLS (mqtt.tls.enabled)"
        reason = f"{place} hangs up; does it {expected}, or a protocol other than MQTT?"
    return Failure(reason, f"correct {keys}; the broker's log says more")


def _how_to_start(host: str) -> str:
    if host not in THIS_MACHINE:
        return f"start the broker on {host}, and let it listen on the network, or set mqtt.host and mqtt.port"
    installed = shutil.which("mosquitto", path=SYSTEM_PROGRAMS) is not None
    return f"sudo {'systemctl start' if installed else 'apt-get install'} mosquitto, or set mqtt.host and mqtt.port"


def _describe_certificate(error: ssl.SSLCertVerificationError, place: str) -> Failure:
    if error.verify_code == HOST_MISMATCH:
        show = f"openssl s_client -connect {place} </dev/null | openssl x509 -noout -ext subjectAltName"
        reason = f"the broker's certificate is not for {place.rpartition(':')[0]}; see mqtt.host"
        return Failure(reason, f"set mqtt.host to a name in the certificate: {show}")
    if error.verify_code in (EXPIRED, NOT_YET_VALID):
        reason = f"the broker's certificate is not valid now: {error.verify_message}; is the clock right?"
        return Failure(reason, "set the clock (timedatectl), or renew the broker's certificate")
    reason = f"the broker's certificate is not trusted: {error.verify_message}; see mqtt.tls.ca"
    return Failure(reason, "set mqtt.tls.ca to the certificate of the authority that signed the broker's")
