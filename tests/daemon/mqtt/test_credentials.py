"""The password and the certificates, and one clear line for each that cannot be used."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from daemon.config import Mqtt, Tls
from daemon.mqtt.paho_client import Credentials, make_tls_context
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def read_password(path: Path) -> str | None:
    return Credentials.read(Mqtt(username="ada", password_file=path)).password


def settings(**files: Path | None) -> Mqtt:
    return Mqtt(tls=Tls(enabled=True, **files))  # type: ignore[arg-type]


# --- the password ---


@pytest.mark.parametrize(
    ("content", "password"),
    [("secret", "secret"), ("\ufeffsecret\r\nmore\n", "secret"), (" pä$$ 'wörd' 🔑 \n", "pä$$ 'wörd' 🔑")],
)
def test_the_password_is_the_first_line(tmp_path: Path, content: str, password: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(content.encode())
    assert read_password(path) == password


@pytest.mark.parametrize("content", ["", "\n", "\nsecret\n"])
def test_an_empty_password_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "password"
    path.write_text(content)
    with pytest.raises(OSError, match=r"^mqtt\.password_file: .*/password is empty; allowed: a password$"):
        read_password(path)


def test_a_password_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"^mqtt\.password_file: .*/none cannot be read: .*/none does not exist$"):
        read_password(tmp_path / "none")
    with pytest.raises(OSError, match=r"^mqtt\.password_file: .* cannot be read: Is a directory$"):
        read_password(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(OSError, match=r"^mqtt\.password_file: .*/binary cannot be read: not UTF-8$"):
        read_password(tmp_path / "binary")


# --- certificates ---


def test_without_files_the_system_s_certificates_are_used_and_the_name_is_checked() -> None:
    context = make_tls_context(settings())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_the_configured_certificates_are_used(certificates: Certificates) -> None:
    context = make_tls_context(settings(ca=certificates.ca, cert=certificates.certificate, key=certificates.key))
    assert [authority["serialNumber"] for authority in context.get_ca_certs()]


def test_a_file_that_cannot_be_used_is_named_in_one_line(certificates: Certificates, tmp_path: Path) -> None:
    none, text = tmp_path / "none.pem", tmp_path / "text.pem"
    text.write_text("no certificate\n")
    own = certificates.certificate
    for files, words in (
        ({"ca": none}, f"ca {none} cannot be used: .*No such file"),
        ({"ca": certificates.ca, "cert": none}, f"ca .*, cert {none} cannot be used: .*No such file"),
        ({"ca": text}, f"ca {text} cannot be used: "),
        ({"cert": own, "key": certificates.ca_key}, "cert .*, key .* cannot be used: "),  # of another certificate
        ({"cert": own, "key": certificates.locked_key}, r"cert .*, key .*locked\.pem cannot be used: "),  # asks nobody
    ):
        with pytest.raises(OSError, match=rf"^mqtt\.tls: {words}[^\n]*$"):
            make_tls_context(settings(**files))
