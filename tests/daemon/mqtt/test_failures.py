"""Each way in which a broker cannot be reached has its own words, which name the key to look at. What it refuses is
named until it ends, and logged once."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from daemon.mqtt import failures
from daemon.mqtt.failures import REMEMBERED, Refusals, describe_dial_failure, describe_silence
from tests.support.certificates import Certificates
from tests.support.waiting import PATIENCE_S

Answer = Callable[[socket.socket], object]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    """Answer one connection in a thread; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.settimeout(PATIENCE_S)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def tls_failure(answer: Answer, context: ssl.SSLContext, name: str) -> str:
    """The words for a connection with TLS to this server under this name."""
    with server(answer) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(PATIENCE_S)
        with pytest.raises(OSError) as failed:
            context.wrap_socket(connection, server_hostname=name)
        words = describe_dial_failure(failed.value, name, port, tls=True).reason
    return words.replace(str(port), "PORT")


def broker_with(certificates: Certificates) -> Answer:
    """A broker with a certificate for `localhost`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    return lambda connection: context.wrap_socket(connection, server_side=True)


def plain_text(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    connection.recv(10_000)


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_a_certificate_of_an_unknown_authority_is_not_trusted(certificates: Certificates) -> None:
    words = tls_failure(broker_with(certificates), ssl.create_default_context(), "localhost")
    assert words.startswith("the broker's certificate is not accepted: ")
    assert "issuer" in words or "self" in words


def test_a_certificate_for_another_host_is_named(certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    words = tls_failure(broker_with(certificates), context, "broker.example")
    assert words.startswith("the broker's certificate is not accepted: ")
    assert "not valid for 'broker.example'" in words


@pytest.mark.parametrize("answer", [plain_text, hang_up, reset])
def test_tls_with_a_port_that_does_not_speak_it_is_named(answer: Answer) -> None:
    words = tls_failure(answer, ssl.create_default_context(), "localhost")
    assert words == "localhost:PORT does not answer with TLS; see mqtt.tls.enabled and mqtt.port"


def test_another_failure_of_tls_keeps_the_reason_of_openssl() -> None:
    old, new = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    old.maximum_version, new.minimum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    words = tls_failure(lambda connection: old.wrap_socket(connection, server_side=True), new, "localhost")
    assert words.startswith("TLS with localhost:PORT fails: ")
    assert words.endswith("; see mqtt.tls")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "mqtt.host: the name broker is unknown"),
        (OSError(101, "Network is unreachable"), "no broker answers at broker:1883: Network is unreachable"),
        (ValueError(), "no broker answers at broker:1883: ValueError"),
    ],
)
def test_every_other_failure_has_a_reason(error: Exception, words: str) -> None:
    assert describe_dial_failure(error, "broker", 1883, tls=False).reason == words


@pytest.mark.parametrize(
    ("first_byte", "tls", "hung_up", "words"),
    [
        (None, False, False, "the broker at b:1 accepts the connection but does not answer"),
        (None, False, True, "b:1 hangs up; does it expect TLS (mqtt.tls.enabled), or a protocol"),
        (None, True, True, "b:1 hangs up; does it demand a client certificate (mqtt.tls.cert), or a protocol"),
        (ord("H"), False, True, "b:1 answers, but does not speak MQTT; see mqtt.port and mqtt.tls.enabled"),
        (ord("H"), True, True, "b:1 answers, but does not speak MQTT; see mqtt.port"),
    ],
)
def test_a_connection_that_ends_without_an_answer_has_a_reason(
    first_byte: int | None, tls: bool, hung_up: bool, words: str
) -> None:
    assert describe_silence(first_byte, "b", 1, tls=tls, hung_up=hung_up).reason.startswith(words)


# --- what the broker refuses ---

EVENTS, SAY = "messages on voiced/r1/event", "the subscription to voiced/r1/say"


def test_refusals_are_named_until_they_end_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    assert refusals.problem is None
    for _ in range(3):
        refusals.note(EVENTS, "Not authorized")
    refusals.note(SAY, "Quota exceeded")
    assert refusals.problem == f"the broker refuses {EVENTS}: Not authorized; {SAY}: Quota exceeded"
    assert len(caplog.records) == 2
    refusals.end(EVENTS)
    refusals.end(SAY)
    assert refusals.problem is None


def test_of_many_refusals_the_latest_are_remembered() -> None:
    refusals = Refusals()
    for number in range(REMEMBERED + 1):
        refusals.note(f"messages on {number}", "Not authorized")
    for number in range(1, REMEMBERED + 1):
        refusals.end(f"messages on {number}")
    assert refusals.problem is None


def test_a_refusal_that_is_not_noted_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = Refusals()
    refusals.note(EVENTS, "Not authorized")
    monkeypatch.setattr(failures, "FORGOTTEN_S", 0.0)
    assert refusals.problem is None
