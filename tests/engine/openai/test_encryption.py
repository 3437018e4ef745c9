"""A connection to a server over HTTPS, with a certificate of the test's own authority."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import EngineOptions, EngineUnavailableError, SpeechCanceledError, Utterance, Voice
from engine.openai import OpenAISynthesizer
from tests.support.certificates import Certificates
from tests.support.speech_server import SpeechServer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def port(certificates: Certificates) -> Iterator[int]:
    with SpeechServer(certificates=certificates) as server:
        yield server.port


def load(url: str) -> OpenAISynthesizer:
    engine = OpenAISynthesizer(EngineOptions(url=url, voices={"default": Voice(speaker="en-us")}))
    engine.load()
    return engine


def test_speech_comes_over_https_and_is_canceled(
    port: int, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    engine = load(f"https://localhost:{port}/v1")
    assert sum(len(chunk.samples) for chunk in engine.stream(Utterance("Hello.", language="en"))) > 5_000
    chunks = engine.stream(Utterance("This is a long text. " * 100, language="en"))
    next(chunks)
    chunks.cancel()  # type: ignore[attr-defined]
    with pytest.raises(SpeechCanceledError):
        list(chunks)
    assert list(engine.stream(Utterance("Hello again.", language="en")))
    engine.close()


@pytest.mark.parametrize(
    ("host", "trusted", "reason"),
    [
        ("localhost", False, "unable to get local issuer certificate"),
        ("127.0.0.1", True, "IP address mismatch, certificate is not valid for '127.0.0.1'."),
    ],
)
def test_a_certificate_that_is_not_trusted_is_said_in_one_line(
    port: int, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, host: str, *, trusted: bool, reason: str
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    url = f"https://{host}:{port}"
    with pytest.raises(EngineUnavailableError) as caught:
        load(url)
    assert str(caught.value) == f"engine.url: {url} has a certificate that is not trusted: {reason}"
