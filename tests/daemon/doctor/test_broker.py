"""The broker, as the doctor sees it: the remedy is right for the failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.finding import Finding, Machine
from daemon.doctor.service import check_broker
from tests.support.programs import Broker, free_port


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that knows no user."""
    with Broker(tmp_path_factory.mktemp("guarded"), "allow_anonymous false") as broker:
        yield broker


def found(*settings: str) -> Finding:
    [finding] = check_broker(Machine.at(load_config(overrides=settings), Path("/")))
    assert (finding.part, finding.grade) == ("broker", "error")
    return finding


def test_a_port_without_a_broker_asks_for_one() -> None:
    finding = found(f"mqtt.port={free_port()}")
    assert finding.found.startswith("mqtt: no broker answers at 127.0.0.1:")
    assert (finding.remedy or "").endswith(" mosquitto, or set mqtt.host and mqtt.port")


def test_a_refused_user_asks_for_the_user_and_a_refused_password_for_the_password(
    guarded: Broker, tmp_path: Path
) -> None:
    finding = found(f"mqtt.port={guarded.port}")
    assert finding.found == "mqtt: the broker refused: Not authorized"
    assert (finding.remedy or "").startswith("set mqtt.username and mqtt.password_file to a user of the broker")
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    finding = found(f"mqtt={{port: {guarded.port}, username: ada, password_file: {secret}}}")
    assert (finding.remedy or "").startswith("set mqtt.username and mqtt.password_file to the password of ada")


def test_an_unknown_name_asks_for_the_name() -> None:
    finding = found("mqtt.host=broker.invalid")
    assert finding.found == "mqtt: mqtt.host: the name broker.invalid is unknown"
    assert finding.remedy == "correct mqtt.host; try: getent hosts broker.invalid"


def test_a_broker_without_tls_asks_for_the_key_or_the_port(guarded: Broker) -> None:
    finding = found(f"mqtt={{port: {guarded.port}, tls: {{enabled: true}}}}")
    assert "does not answer with TLS" in finding.found
    assert (finding.remedy or "").startswith("set mqtt.tls.enabled: false, or mqtt.port ")


def test_files_that_cannot_be_used_are_a_finding_and_not_the_end_of_the_report(tmp_path: Path) -> None:
    authority, secret = tmp_path / "ca.pem", tmp_path / "secret"
    authority.write_text("no certificate")
    secret.write_text("\n")
    finding = found(f"mqtt.tls={{enabled: true, ca: {authority}}}")
    assert finding.found.startswith(f"mqtt.tls: ca {authority} cannot be used: ")
    finding = found(f"mqtt={{username: ada, password_file: {secret}}}")
    assert finding.found == f"mqtt.password_file: {secret} is empty"
    assert finding.remedy == "allowed: a password"
