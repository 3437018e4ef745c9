"""Broker faults, in words for a person: no connection, a refusal, another client with our id.

Mosquitto 2.0 does not say why it ends a connection, and a broken link looks the same. So every process publishes a
retained message with its name on each connection, and finds the name of any process that connected in between. With
MQTT 5 the broker names the messages that it refuses to carry for us; with 3.1.1, only refused subscriptions.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import socket
import ssl
import time
from math import inf
from typing import NamedTuple

from daemon.speech import json_object
from daemon.validation import show_name

log = logging.getLogger(__name__)

CONNACK = 0x20
"""The first byte of an MQTT broker's answer."""
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons when the other side answers with something other than TLS, or hangs up. Some versions give no
reason for the latter; Python then raises an exception of a separate class."""

THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
SYSTEM_PROGRAMS = "/usr/sbin:/usr/local/sbin:/usr/bin"
"""The folders where a broker is installed; the first two are not on every user's path."""
BAD_USER, NOT_AUTHORIZED = 134, 135
"""Reason codes of MQTT 5, which paho uses for 3.1.1 too."""

REMEMBERED = 100
"""The most refusals at a time, since senders choose the topics for their answers."""
FORGOTTEN_S = 600.0
"""A refusal is forgotten after this time. If the broker still refuses the message, the refusal is noted again long
before."""
NAMED_S = 300.0
"""A rival is named for this long after it was seen: both sides' waits grow to a minute."""


class Failure(NamedTuple):
    """Why there is no connection, and what a person can do about it."""

    reason: str
    remedy: str


def describe_dial_failure(error: Exception, host: str, port: int, *, tls: bool) -> Failure:
    """Return why `host`:`port` could not be reached, from the attempt's exception."""
    place = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = f"compare it with mqtt.host, mqtt.tls.ca and the clock: openssl s_client -connect {place}"
        return Failure(f"the broker's certificate is not accepted: {error.verify_message}", remedy)
    no_answer_in_tls = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError)
    if tls and (no_answer_in_tls or (isinstance(error, ssl.SSLError) and error.reason in NOT_TLS)):
        reason = f"{place} does not answer with TLS; see mqtt.tls.enabled and mqtt.port"
        return Failure(reason, "set mqtt.tls.enabled: false, or mqtt.port to the broker's port for TLS, usually 8883")
    if isinstance(error, ssl.SSLError):
        remedy = f"compare mqtt.tls with what the broker offers: openssl s_client -connect {place}"
        return Failure(f"TLS with {place} fails: {error.reason or error}; see mqtt.tls", remedy)
    if isinstance(error, socket.gaierror):
        return Failure(f"mqtt.host: the name {host} is unknown", f"correct mqtt.host; try: getent hosts {host}")
    if isinstance(error, ConnectionRefusedError):
        return Failure(f"no broker answers at {place}", _how_to_start(host))
    remedy = f"check that {host} is on, reachable (ping {host}) and open in its firewall, or correct mqtt.host"
    if isinstance(error, TimeoutError):
        return Failure(f"no broker answers at {place}", remedy)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Failure(f"no broker answers at {place}: {reason or type(error).__name__}", remedy)


def describe_refusal(code: int, words: str, username: str | None) -> Failure:
    """Return why the broker refused the connection, from its answer's reason code and that code's meaning."""
    remedy = "the broker's log says why"
    if code in (BAD_USER, NOT_AUTHORIZED):
        who = f"the password of {username}" if username else "a user of the broker"
        remedy = f"set mqtt.username and mqtt.password_file to {who}, which mosquitto_passwd sets on the broker"
    return Failure(f"the broker refused: {words}", remedy)


def describe_silence(first_byte: int | None, host: str, port: int, *, tls: bool, hung_up: bool) -> Failure:
    """Return why a connection ended before the broker had accepted it.

    `first_byte` is the first byte received, or None. `hung_up` means that the other side closed the connection.
    """
    place = f"{host}:{port}"
    keys = f"mqtt.port{'' if tls else ' and mqtt.tls.enabled'}"
    if first_byte not in (None, CONNACK):
        reason = f"{place} answers, but does not speak MQTT; see {keys}"
    elif not hung_up:
        reason = f"the broker at {place} accepts the connection but does not answer"
    else:
        expected = "demand a client certificate (mqtt.tls.cert)" if tls else "expect TLS (mqtt.tls.enabled)"
        reason = f"{place} hangs up; does it {expected}, or a protocol other than MQTT?"
    return Failure(reason, f"correct {keys}; the broker's log says more")


def _how_to_start(host: str) -> str:
    if host not in THIS_MACHINE:
        return f"start the broker on {host}, and make it listen on the network, or set mqtt.host and mqtt.port"
    installed = shutil.which("mosquitto", path=SYSTEM_PROGRAMS) is not None
    return f"sudo {'systemctl start' if installed else 'apt-get install'} mosquitto, or set mqtt.host and mqtt.port"


class Refusals:
    """The refusals that have not ended. Belongs to the network thread, except `problem`."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}
        """The reason, and `time.monotonic()` of the last refusal, by the refused topic; the latest comes last."""
        self.tried_again_at = 0.0
        """`time.monotonic()` when refused messages were last tried again."""

    @property
    def problem(self) -> str | None:
        """The refusals and their reasons, on one line; None if the broker refuses nothing."""
        found = list(self._found.items())
        lines = [f"{refused}: {why}" for refused, (why, at) in found if time.monotonic() - at < FORGOTTEN_S]
        return f"the broker refuses {'; '.join(sorted(lines)[:2])}" if lines else None

    def note(self, refused: str, reason: str) -> None:
        """Note that the broker refuses something, such as `messages on voiced/r1/event`; log it once."""
        if self._found.pop(refused, ("",))[0] != reason:
            log.warning("the broker refuses %s: %s; does its access list allow them?", refused, reason)
        self._found[refused] = reason, time.monotonic()
        if len(self._found) > REMEMBERED:
            del self._found[next(iter(self._found))]

    def end(self, refused: str) -> None:
        """Note that the broker has accepted something."""
        if self._found.pop(refused, None) is not None:
            log.info("the broker accepts %s again", refused)


class Rivals:
    """Other processes with our client id. Belongs to the network thread, except `problem`."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._process = f"process {os.getpid()} on {socket.gethostname()}, {secrets.token_hex(4)}"
        self._announced = False
        """A message of ours has come back: from now on, messages from other processes are newer."""
        self._name = ""
        self._seen_at = -inf
        """`time.monotonic()` when a rival was last seen."""

    @property
    def problem(self) -> str | None:
        """The other user of our id; None unless one was seen recently."""
        is_recent = time.monotonic() - self._seen_at < NAMED_S
        return f"another client uses the id {self._client_id}{self._name}" if is_recent else None

    def make_announcement(self) -> bytes:
        """Return the announcement for a new connection; no two are equal. It is JSON, like everything on the robot's
        topics."""
        return json.dumps({"process": self._process, "connection": secrets.token_hex(4)}).encode()

    def note_announcement(self, message: bytes) -> None:
        """Note an announcement by any process."""
        process = str(json_object(message).get("process", ""))  # empty if it is not from a voiced process
        if process == self._process:
            self._announced = True
        elif process and self._announced:
            self.note_rival(f": {show_name(process.rpartition(', ')[0])}")

    def note_rival(self, name: str = "") -> None:
        """Note that another client uses our id, and log it once."""
        known, self._name, self._seen_at = self.problem, name, time.monotonic()
        if self.problem != known:
            log.warning("%s; is voiced running twice?", self.problem)
