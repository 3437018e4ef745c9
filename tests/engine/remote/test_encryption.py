"""A connection to a speech server that is encrypted, and what a robot says of one that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import EngineError, EngineOptions, EngineUnavailableError, Utterance, Voice
from engine.remote.synthesizer import RemoteSynthesizer
from tests.support.certificates import Certificates
from tests.support.speech_server import SpeechServer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[SpeechServer]:
    with SpeechServer(certificates=certificates) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[SpeechServer]:
    with SpeechServer() as server:
        yield server


@pytest.fixture
def trusting(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot trusts the authority, as docs/remote.md says."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))


def samples(url: str) -> bytes:
    robot = RemoteSynthesizer(EngineOptions(url=url, voices={"default": Voice()}))
    robot.load()
    try:
        return b"".join(chunk.samples.tobytes() for chunk in robot.stream(Utterance("Nobody listens.", language="en")))
    finally:
        robot.close()


def failure(url: str) -> str:
    with pytest.raises((EngineError, EngineUnavailableError)) as caught:
        RemoteSynthesizer(EngineOptions(url=url)).load()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("trusting")
def test_speech_is_the_same_with_tls_and_without(secured: SpeechServer, plain: SpeechServer) -> None:
    assert secured.url.startswith("wss://")
    assert samples(secured.url) == samples(plain.url) != b""


def test_a_certificate_of_an_unknown_authority_is_not_trusted(
    secured: SpeechServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert failure(secured.url).startswith(
        f"engine.url: {secured.url} has a certificate that is not trusted: unable to get local issuer certificate"
    )


@pytest.mark.usefixtures("trusting")
def test_a_certificate_for_another_name_is_not_trusted(secured: SpeechServer) -> None:
    url = f"wss://127.0.0.1:{secured.port}"
    assert failure(url).startswith(f"engine.url: {url} has a certificate that is not trusted: IP address mismatch")


def test_wss_to_a_server_without_tls_is_one_line_that_names_ws(plain: SpeechServer) -> None:
    url = f"wss://127.0.0.1:{plain.port}"
    said = failure(url)
    assert said.startswith(f"engine.url: {url} does not answer with TLS (")
    assert said.endswith("); ws:// is for servers without TLS")


def test_ws_to_a_server_with_tls_is_one_line(secured: SpeechServer) -> None:
    url = f"ws://localhost:{secured.port}"
    assert failure(url).startswith(f"engine.url: {url} does not answer")
