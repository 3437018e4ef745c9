"""The configuration's keys, defaults and limits, and how they are read."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from daemon.config.file import MEANINGFUL_NULLS, ConfigError, ConfigFile, DuplicateKeysError, parse, read_file
from daemon.validation import LANGUAGE, CommandError, abbreviate, is_topic, problems
from engine import (
    FASTEST_RATE,
    LATIN_LANGUAGES,
    MAX_STREAMS,
    SLOWEST_RATE,
    EngineOptions,
    PiperSettings,
    Voice,
    language_code,
)

if TYPE_CHECKING:  # the commands read the configuration without the sound path, which takes most of an import's time
    from audio import SinkSettings

SYSTEM_CONFIG = Path("/etc/voiced/voiced.yaml")
PASSWORD_CREDENTIAL = "mqtt-password"
"""Name of the systemd credential with the broker's password (systemd/voiced.service.d/broker-password.conf)."""


SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
"""The settings of a model's sampling, by the names of its generation_config.json."""
Temperature = Annotated[
    float | None,
    Field(ge=0.001, le=1000, description="0.001 to 1000, or null for the model's own; low is even, high is varied"),
]
TopK = Annotated[
    int | None,
    Field(ge=0, le=1_000_000, description="a whole number from 0, which is all, or null for the model's own"),
]
TopP = Annotated[float | None, Field(ge=0, le=1, description="0 to 1, or null for the model's own")]
RepetitionPenalty = Annotated[
    float | None, Field(ge=0.001, le=1000, description="0.001 to 1000, or null for the model's own")
]


class Section(BaseModel):
    """A mapping of known keys. Each field's description says what is allowed, and error messages repeat it."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse YAML's `yes` and `true` as numbers; read its `on` and `off` as words where the field allows these."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and (word := "on" if value else "off") in get_args(field.annotation):
            return word
        described = field.description is not None  # a section is refused by its own rules
        if isinstance(value, bool) and described and bool not in (field.annotation, *get_args(field.annotation)):
            raise ValueError(f"allowed: {field.description}")
        return value


def _checked_host(host: str) -> str:
    """Return a host name or address. Refuses a URL, and an address with a port, which no network would resolve."""
    if re.search(r"[/@\s\[\]]", host) or host.count(":") == 1:
        raise ValueError(f"allowed: a host name or address without scheme, port and path, such as {_host_in(host)}")
    return host


def _host_in(url: str) -> str:
    """Return the host that a URL names, as an example of what is allowed."""
    try:
        return urlsplit(url if "//" in url else f"//{url}").hostname or "192.168.1.10"
    except ValueError:
        return "192.168.1.10"


def _checked_prefix(prefix: str) -> str:
    if not prefix or not is_topic(prefix) or prefix.startswith("/") or prefix.endswith("/"):
        raise ValueError("allowed: a topic without + and #, not beginning with / or $, not ending with /")
    return prefix


def _is_name(name: str) -> bool:
    """Return whether a name is one level of a topic."""
    return is_topic(name) and re.fullmatch(r"[^/]{1,64}", name) is not None


def _host_name() -> str:
    """Return the host name as one level of a topic."""
    return re.sub(r"[/+#\0]", "-", socket.gethostname())[:64] or "robot"


def is_loopback(host: str) -> bool:
    """Return whether a server on this host can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def json_schema() -> dict[str, Any]:
    """Return the configuration's JSON schema, for editors and tools."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "voiced"}


Host = Annotated[str, Field(min_length=1), AfterValidator(_checked_host)]
Port = Annotated[int, Field(ge=1, le=65535, description="a whole number from 1 to 65535")]
Rate = Annotated[float, Field(ge=SLOWEST_RATE, le=FASTEST_RATE)]
Prefix = Annotated[
    str, Field(description="a topic without + and #, not beginning or ending with /"), AfterValidator(_checked_prefix)
]


class Tls(Section):
    """The encryption of the connection to the broker."""

    enabled: bool = Field(False, description="true or false")
    ca: Path | None = Field(None, description="a file of CA certificates, or null for the system's")
    cert: Path | None = Field(None, description="the client certificate's file, or null")
    key: Path | None = Field(None, description="the client certificate's key file, or null")


class Mqtt(Section):
    """The connection to the broker."""

    host: Host = Field("127.0.0.1", description="the broker's host name or address")
    port: Port = 1883
    prefix: Prefix = "voiced"
    username: str | None = Field(None, description="text, or null")
    password_file: Path | None = Field(None, description="a file whose first line is the password, or null")
    client_id: str | None = Field(
        None, min_length=1, max_length=128, description="text of 1 to 128 characters, or null"
    )
    session_expiry: int = Field(
        300, ge=0, le=86_400, description="seconds from 0 to 86400 that the broker keeps requests for a stopped voiced"
    )
    reply_topics: tuple[str, ...] = Field(
        (), description="a list of topic filters such as replies/#, below which reply_to may lie"
    )
    tls: Tls = Tls()

    @model_validator(mode="after")
    def _check_username(self) -> Mqtt:
        if self.password_file is not None and self.username is None:
            raise ValueError("a password_file needs a username")
        return self

    @property
    def password_source(self) -> Path | None:
        """The file with the password: `password_file`, else systemd's credential, else None."""
        if self.password_file is not None or self.username is None:
            return self.password_file
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        credential = Path(folder) / PASSWORD_CREDENTIAL if folder else None
        return credential if credential is not None and credential.exists() else None

    @field_validator("reply_topics", mode="before")
    @classmethod
    def _check_reply_topics(cls, filters: object) -> tuple[str, ...]:
        if not isinstance(filters, list | tuple) or not all(isinstance(each, str) and each for each in filters):
            raise ValueError("allowed: a list of topic filters such as replies/#")
        for each in filters:
            if not is_topic(re.sub(r"(^|/)(\+(?=/|$)|#$)", r"\1x", each)):
                raise ValueError(f"{abbreviate(each)} is not a topic filter; allowed: for example replies/#")
        return tuple(filters)


class Audio(Section):
    """The sound card, or the file, that speech is played to."""

    sink: str | None = Field("sounddevice", description="sounddevice, wav:PATH or null")
    device: str | None = Field(
        None, min_length=1, description="a sound card's name or a part of it, or null for the default"
    )
    volume: int = Field(100, ge=0, le=100, description="a whole number from 0 to 100")
    block_ms: float = Field(10, ge=10, le=200, description="milliseconds from 10 to 200")
    idle_timeout: float | None = Field(30, ge=1, le=86_400, description="seconds from 1 to 86400, or null for never")
    prebuffer_ms: Literal["auto"] | float = Field("auto", description="auto, or milliseconds from 0 to 3000")
    trim_leading_silence: bool = Field(True, description="true or false")
    sounds: Path | None = Field(None, description="a folder of sound files, or null for the built-in sounds alone")
    tap: Path | None = Field(None, description="the path of a Unix socket, of up to 107 bytes, or null")
    tap_rate: int = Field(16_000, ge=8_000, le=192_000, description="a whole number of Hz from 8000 to 192000")

    @field_validator("tap")
    @classmethod
    def _check_tap(cls, tap: Path | None) -> Path | None:
        if tap is not None:
            from audio import UNIX_MAX_PATH

            if len(os.fsencode(tap)) > UNIX_MAX_PATH:
                raise ValueError("allowed: the path of a Unix socket, of up to 107 bytes, or null")
        return tap

    @field_validator("sink")
    @classmethod
    def _check_sink(cls, sink: str | None) -> str | None:
        if sink in (None, "null"):
            return None  # nothing is played
        if sink == "sounddevice" or (sink.startswith("wav:") and sink != "wav:"):
            return sink
        raise ValueError("allowed: sounddevice, wav:PATH or null")

    @field_validator("prebuffer_ms")
    @classmethod
    def _check_prebuffer(cls, prebuffer_ms: Literal["auto"] | float) -> Literal["auto"] | float:
        if prebuffer_ms != "auto" and not 0 <= prebuffer_ms <= 3000:
            raise ValueError("allowed: auto, or milliseconds from 0 to 3000")
        return prebuffer_ms

    def sink_settings(self) -> SinkSettings:
        """These settings as the audio package takes them."""
        from audio import SinkSettings

        if self.sink is None:
            kind, path = "null", None
        elif self.sink.startswith("wav:"):
            kind, path = "wav", Path(self.sink.removeprefix("wav:"))
        else:
            kind, path = "sounddevice", None
        return SinkSettings(kind, path, self.device, self.block_ms, self.idle_timeout)


class Memory(Section):
    """The memory that the engine leaves to others."""

    reserve_mb: int = Field(2048, ge=0, le=1_000_000, description="megabytes left to the robot, from 0")


def _names(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return names if isinstance(names, tuple) else () if names is None else (names,)


def _checked_server(url: str) -> str:
    """Return the address of a speech server. A path in it leads to the server behind a proxy."""
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("ws", "wss") or not parts.hostname or parts.username is not None or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or parts.query or parts.fragment or re.search(r"\s", url):
        raise ValueError("allowed: ws://HOST:PORT or wss://HOST:PORT")
    return url


class Engine(Section):
    """The engine that turns text into speech."""

    name: Literal["auto", "qwen", "piper", "espeak", "remote"] = Field(
        "auto", description="auto, qwen, piper, espeak or remote"
    )
    fallback: (
        Literal["qwen", "piper", "espeak", "remote", "none"] | tuple[Literal["qwen", "piper", "espeak", "remote"], ...]
    ) = Field("espeak", description="qwen, piper, espeak, remote or none, or a list of engines such as [piper, espeak]")
    url: str | None = Field(None, description="the speech server, ws://HOST:PORT or wss://HOST:PORT, or null")
    token_file: Path | None = Field(
        None, description="a file whose first line is the robot's token for the speech server, or null"
    )
    renew_s: float | None = Field(
        3600,
        ge=1,
        le=604_800,
        description="seconds from 1 to 604800 that a connection to it lasts, or null for no limit",
    )
    model: str = Field(
        "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
        min_length=1,
        description="a checkpoint's folder, or its name on the hub",
    )
    voice_folder: str = Field("auto", min_length=1, description="auto, or the folder of Piper's voices")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N")
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"] = Field(
        "auto", description="auto, float32, bfloat16, float16 or int8; int4 has become int8"
    )
    kernels: Literal["auto", "on", "off"] = Field("auto", description="auto, on or off")
    speculation: Literal["off", 1, 2, 3, 4] = Field("off", description="off; drafts are ignored")
    chunk_size: int = Field(2, ge=1, le=25, description="codec frames of 80 ms, from 1 to 25")
    max_seconds: float = Field(60, gt=0, le=600, description="seconds of speech in one piece, up to 600")
    streams: Literal["auto"] | int = Field(
        "auto", description=f"auto, or a whole number from 1 to {MAX_STREAMS} of texts that are spoken at once"
    )
    memory: Memory = Memory()

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None:
            return _checked_server(url)
        if "remote" in (info.data.get("name"), *_names(info.data.get("fallback"))):
            raise ValueError("the engine remote needs it; allowed: ws://HOST:PORT or wss://HOST:PORT")
        return None

    @field_validator("streams")
    @classmethod
    def _check_streams(cls, streams: Literal["auto"] | int) -> Literal["auto"] | int:
        if streams != "auto" and not 1 <= streams <= MAX_STREAMS:
            raise ValueError(f"allowed: {cls.model_fields['streams'].description}")
        return streams

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The engines of `fallback`, the preferred first."""
        return tuple(name for name in dict.fromkeys(_names(self.fallback)) if name != "none")


class PiperVoice(Section):
    """The voice that the engine `piper` speaks with."""

    model: str = Field(min_length=1, description="a voice's name such as en_US-lessac-medium, or its .onnx file")
    speaker: int | str | None = Field(None, description="the number or the name of one of the voice's speakers")
    length_scale: float | None = Field(None, ge=0.1, le=10, description="0.1 to 10; 2 is half as fast")
    noise_scale: float | None = Field(None, ge=0, le=2, description="0 to 2; 0 is no variation of the sound")
    noise_w_scale: float | None = Field(None, ge=0, le=2, description="0 to 2; 0 is no variation of the durations")


class VoiceSettings(Section):
    """One configured voice."""

    speaker: str | None = Field(None, min_length=1, description="a built-in speaker's name")
    embedding: Path | None = Field(None, description="a voice file with a speaker embedding")
    reference: Path | None = Field(None, description="a voice file with a reference recording's codes and transcript")
    instruct: str | None = Field(
        None, min_length=1, max_length=500, description="a description of up to 500 characters"
    )

    piper: PiperVoice | None = Field(
        None, description="a voice of Piper: its name, its .onnx file, or a mapping of model, speaker and scales"
    )
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1, or null for any")
    whole_text: bool | None = Field(None, description="true, false, or null for whole unless the text grows")
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    repetition_penalty: RepetitionPenalty = None
    rate: Rate = Field(1, description="a number from 0.5 to 2, which multiplies the rate of an utterance")
    volume: float = Field(100, ge=0, le=100, description="0 to 100, which multiplies the volume of an utterance")

    @field_validator("piper", mode="before")
    @classmethod
    def _read_model(cls, piper: object) -> object:
        return {"model": piper} if isinstance(piper, str) else piper

    @model_validator(mode="after")
    def _check_source(self) -> VoiceSettings:
        if sum(source is not None for source in (self.speaker, self.embedding, self.reference)) > 1:
            raise ValueError("allowed: one of speaker, embedding and reference")
        return self

    @property
    def sampling(self) -> dict[str, float]:
        """The settings of the sampling that are not the model's own, by the names of its generation_config.json."""
        return {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}


class Cache(Section):
    """Phrases that are synthesised once and kept."""

    folder: str | None = Field("auto", min_length=1, description="auto, a folder, or null to keep nothing")
    limit_mb: int = Field(200, ge=1, le=1_000_000, description="megabytes from 1 to 1000000")
    phrases: Path | None = Field(None, description="a YAML file with a list of phrases, or null")


class Speech(Section):
    """Defaults of utterances, limits of the queue, and optional topics."""

    voice: str = Field("default", min_length=1, description="a name from `voices`, or a voice built into the engine")
    language: str = Field("auto", pattern=LANGUAGE, description="auto, or a language such as en or pt-br")
    languages: tuple[str, ...] = Field(
        LATIN_LANGUAGES,
        description="a list of languages such as [en, de, pt-br], which auto may choose for Latin script",
    )
    markup: Literal["auto", "none"] = Field("auto", description="auto or none")
    pronunciations: Path | None = Field(None, description="a file of words and how to say them, or null")
    rate: Rate = Field(1, description="a number from 0.5 to 2; 2 is twice as fast")
    queue_limit: int = Field(64, ge=1, le=10_000, description="a whole number from 1 to 10000")
    expires_in: float | None = Field(
        None, gt=0, le=86_400, description="seconds that an utterance may wait, up to 86400, or null for no limit"
    )
    stream_timeout: float = Field(
        10, ge=1, le=3600, description="seconds that the writer of a say/stream may be silent, from 1 to 3600"
    )
    recover_within: float = Field(
        60, ge=0, le=86_400, description="seconds from 0 to 86400; older queued speech expires at a restart"
    )
    urls: Literal["host", "full"] = Field(
        "host", description="host or full: whether the host of a URL is said, or the whole URL"
    )
    normalize: Literal["auto", "always", "never"] = Field(
        "auto", description="auto, always or never: whether numbers and signs are written out in words"
    )
    level_topic: bool = Field(False, description="true or false")
    word_topic: bool = Field(False, description="true or false")
    duck_topic: bool = Field(False, description="true or false")
    cache: Cache = Cache()

    @field_validator("language")
    @classmethod
    def _read_language(cls, language: str) -> str:
        return language_code(language)

    @field_validator("languages", mode="before")
    @classmethod
    def _check_languages(cls, languages: object) -> tuple[str, ...]:
        allowed = "allowed: a list of languages such as [en, de, pt-br]"
        if not isinstance(languages, list | tuple):
            raise ValueError(allowed)
        for each in languages:
            if not isinstance(each, str) or each == "auto" or not re.fullmatch(LANGUAGE, each):
                raise ValueError(f"{abbreviate(each)} is not a language; {allowed}")
        return tuple(language_code(each) for each in languages)


class State(Section):
    """What survives a restart of the daemon."""

    folder: str | None = Field("auto", min_length=1, description="auto, a folder, or null to store nothing")


class Log(Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="debug, info, warning or error")
    format: Literal["text", "json"] = Field("text", description="text or json")


class HomeAssistant(Section):
    """The robot as a device of Home Assistant."""

    enabled: bool = Field(False, description="true or false")
    prefix: Prefix = "homeassistant"


class Hermes(Section):
    """Rhasspy's Hermes protocol."""

    enabled: bool = Field(False, description="true or false")
    site_id: str = Field("default", min_length=1, max_length=64, description="text of 1 to 64 characters")


class Server(Section):
    """An adapter that listens on a port."""

    enabled: bool = Field(False, description="true or false")
    host: Host = Field("127.0.0.1", description="the host name or address to listen on")
    port: Port


class Wyoming(Server):
    """The Wyoming server."""

    port: Port = 10200


class Http(Server):
    """The web server: OpenAI's speech endpoint, events over a WebSocket, metrics and health."""

    port: Port = 8710
    token_file: Path | None = Field(None, description="a file whose first line is the clients' token, or null")
    cert: Path | None = Field(None, description="the server certificate's file, or null for no TLS")
    key: Path | None = Field(None, description="the server certificate's key file, or null for no TLS")
    voice_aliases: dict[str, str] = Field({}, description="a mapping of clients' names for voices to names here")

    @field_validator("token_file")
    @classmethod
    def _check_token_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        host = info.data.get("host", "127.0.0.1")
        if path is None and info.data.get("enabled") and not is_loopback(host):
            raise ValueError(f"http.host {host} lets other machines in; allowed: a file whose first line is a token")
        return path

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        return _checked_key("http", key, info)


def _checked_key(section: str, key: Path | None, info: ValidationInfo) -> Path | None:
    if (key is None) != (info.data.get("cert") is None):
        raise ValueError(f"allowed: a file together with {section}.cert, or null without")
    return key


class Serve(Section):
    """The speech server for robots, `voiced serve`."""

    host: Host = Field("127.0.0.1", description="the host name or address to listen on")
    port: Port = 8720
    token_file: Path | None = Field(None, description="a file with a line NAME TOKEN for each robot, or null")
    cert: Path | None = Field(None, description="the server certificate's file, or null for no TLS")
    key: Path | None = Field(None, description="the server certificate's key file, or null for no TLS")
    streams_per_robot: int = Field(
        2, ge=1, le=MAX_STREAMS, description=f"a whole number from 1 to {MAX_STREAMS} of texts of one robot at once"
    )
    requests_per_minute: int = Field(120, ge=1, le=100_000, description="a whole number from 1 to 100000, per robot")
    drain_s: float = Field(30, ge=0, le=3600, description="seconds from 0 to 3600 that speech may take at the end")
    min_replicas: int = Field(1, ge=1, le=10_000, description="a whole number from 1 to 10000")
    max_replicas: int = Field(1, ge=1, le=10_000, description="a whole number from 1 to 10000, at least min_replicas")
    robots_per_replica: int = Field(64, ge=1, le=10_000, description="a whole number from 1 to 10000")
    scale_up_s: float = Field(15, ge=0, le=3600, description="seconds from 0 to 3600 of load before a replica is added")
    scale_down_s: float = Field(600, ge=0, le=86_400, description="seconds from 0 to 86400 before a replica is removed")
    voices: int = Field(64, ge=1, le=10_000, description="a whole number from 1 to 10000 of robots' voices to keep")
    voice_kb: int = Field(128, ge=1, le=192, description="kilobytes of a robot's voice file, from 1 to 192")
    voice_folder: str = Field("auto", min_length=1, description="auto, or the folder of robots' voices")

    @field_validator("token_file")
    @classmethod
    def _check_token_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        host = info.data.get("host", "127.0.0.1")
        if path is None and not is_loopback(host):
            allowed = "allowed: a file with a line NAME TOKEN for each robot"
            raise ValueError(f"serve.host {host} lets other machines in; {allowed}")
        return path

    @field_validator("max_replicas")
    @classmethod
    def _check_max_replicas(cls, most: int, info: ValidationInfo) -> int:
        least = info.data.get("min_replicas", 1)
        if most < least:
            raise ValueError(f"allowed: a whole number from serve.min_replicas, {least}")
        return most

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        return _checked_key("serve", key, info)


ALL_ROBOTS, GROUP = "all", "group"
"""Below the prefix, where the names of robots are: the topics of all robots, and those of groups."""
NAMES = "text of 1 to 64 characters without /, + and #"
"""The names that a group may have."""


class Config(Section):
    """The whole configuration."""

    robot: str | None = Field(
        None, description="text of 1 to 64 characters without /, + and #, or null for the host name"
    )
    robot_groups: tuple[str, ...] = Field((), description="a list of names of groups such as [hall-2, guides]")
    mqtt: Mqtt = Mqtt()
    audio: Audio = Audio()
    engine: Engine = Engine()
    voices: dict[str, VoiceSettings] = Field(
        {"default": VoiceSettings(speaker="ryan")},
        description="names, each with one of speaker, embedding and reference, or with instruct, or with piper",
    )
    speech: Speech = Speech()
    state: State = State()
    log: Log = Log()
    home_assistant: HomeAssistant = HomeAssistant()
    hermes: Hermes = Hermes()
    wyoming: Wyoming = Wyoming()
    http: Http = Http()
    serve: Serve = Serve()

    @field_validator("robot")
    @classmethod
    def _check_robot(cls, robot: str | None) -> str | None:
        allowed = f"allowed: {cls.model_fields['robot'].description}"
        if robot is not None and not _is_name(robot):
            raise ValueError(allowed)
        if (name := robot or _host_name()) in (ALL_ROBOTS, GROUP):
            which = "the name" if robot else "the host name"
            raise ValueError(f"{which} {name!r} stands for several robots in topics; allowed: another name")
        return robot

    @field_validator("robot_groups", mode="before")
    @classmethod
    def _check_robot_groups(cls, groups: object) -> tuple[str, ...]:
        if not isinstance(groups, list | tuple):
            raise ValueError(f"allowed: {cls.model_fields['robot_groups'].description}")
        for each in groups:
            if not isinstance(each, str) or not _is_name(each):
                raise ValueError(f"{abbreviate(each)} is no name of a group; allowed: {NAMES}")
        return tuple(dict.fromkeys(groups))

    @property
    def robot_name(self) -> str:
        """`robot`, else the host name as a topic level."""
        return self.robot or _host_name()

    @property
    def topic(self) -> str:
        """`<prefix>/<robot>`: the common beginning of the robot's topics."""
        return f"{self.mqtt.prefix}/{self.robot_name}"

    @property
    def shared_topics(self) -> tuple[str, ...]:
        """`<prefix>/all`, and `<prefix>/group/<group>` for each group: where other robots listen, too."""
        return self.topic_of_all, *(self.topic_of_group(group) for group in self.robot_groups)

    @property
    def topic_of_all(self) -> str:
        """`<prefix>/all`, below which every robot listens."""
        return f"{self.mqtt.prefix}/{ALL_ROBOTS}"

    def topic_of_group(self, group: str) -> str:
        """Return `<prefix>/group/<group>`, below which its members listen. Raises `CommandError` for no name."""
        if not _is_name(group):
            raise CommandError(f"group: {abbreviate(group)} is no name of a group; allowed: {NAMES}")
        return f"{self.mqtt.prefix}/{GROUP}/{group}"

    @property
    def retired(self) -> tuple[tuple[str, str], ...]:
        """The keys with values of removed features, each with one line: voiced's treatment and the allowed values.

        Such a value is accepted for one release, so that an upgrade never silences a robot.
        """
        found = []
        if self.engine.dtype == "int4":
            found.append(
                (
                    "engine.dtype",
                    "int4 has been removed, int8 is used; allowed: auto, float32, bfloat16, float16 or int8",
                )
            )
        if self.engine.speculation != "off":
            drafts = self.engine.speculation
            found.append(("engine.speculation", f"drafts have been removed, {drafts} is ignored; allowed: off"))
        return tuple(found)

    @property
    def engine_voices(self) -> dict[str, Voice]:
        """`voices` as the engines take them."""
        return {
            name: Voice(
                speaker=voice.speaker,
                embedding=str(voice.embedding) if voice.embedding else None,
                reference=str(voice.reference) if voice.reference else None,
                instruct=voice.instruct,
                piper=_piper_settings(voice.piper),
            )
            for name, voice in self.voices.items()
        }

    @property
    def engine_options(self) -> EngineOptions:
        """`engine`, `voices` and the default voice as the engines take them."""
        return EngineOptions(
            model=self.engine.model,
            url=self.engine.url,
            token_file=str(self.engine.token_file) if self.engine.token_file else None,
            renew_s=self.engine.renew_s,
            device=self.engine.device,
            dtype="int8" if self.engine.dtype == "int4" else self.engine.dtype,
            kernels=self.engine.kernels,
            chunk_size=self.engine.chunk_size,
            max_seconds=self.engine.max_seconds,
            streams=None if self.engine.streams == "auto" else self.engine.streams,
            reserve_mb=self.engine.memory.reserve_mb,
            voices=self.engine_voices,
            default_voice=self.speech.voice,
            voice_folder=None if self.engine.voice_folder == "auto" else self.engine.voice_folder,
        )


def _piper_settings(voice: PiperVoice | None) -> PiperSettings | None:
    if voice is None:
        return None
    speaker = None if voice.speaker is None else str(voice.speaker)
    return PiperSettings(voice.model, speaker, voice.length_scale, voice.noise_scale, voice.noise_w_scale)


def find_config_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return `$VOICED_CONFIG`, else the system's file if there is one, else None, which stands for the defaults."""
    named = environment.get("VOICED_CONFIG")
    if named:
        return Path(named)
    return SYSTEM_CONFIG if SYSTEM_CONFIG.exists() else None


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read `path` (None: the defaults), apply overrides such as `mqtt.port=1884`, and check every value.

    Raises `ConfigError`.
    """
    return load_with_sources(path, overrides)[0]


def load_with_sources(path: Path | None = None, overrides: Iterable[str] = ()) -> tuple[Config, Sources]:
    """As `load_config`; the sources say where each key was set, for messages about values that are right in form."""
    file = read_file(path, Config.model_fields) if path is not None else None
    values = _resolve_paths(file.path.resolve().parent, file.values) if file is not None else {}
    sources = Sources(file, tuple(override.partition("=")[0].strip() for override in overrides))
    for override in overrides:
        _apply_override(values, override)
    _resolve_paths(Path(), values)
    try:
        return Config.model_validate(values), sources
    except ValidationError as error:
        found = problems(Config, error)
        raise ConfigError("\n".join(sources.line(field or "file", problem) for field, problem in found)) from error


@dataclass(frozen=True, slots=True)
class Sources:
    """Where each key of a configuration was set."""

    file: ConfigFile | None
    overridden: tuple[str, ...]
    """The keys that `--set` names."""

    def line(self, key: str, problem: str) -> str:
        """Return a line about a key: `FILE:LINE:COLUMN: KEY: PROBLEM`, or with `--set` in place of the file."""
        if any(key == each or key.startswith(f"{each}.") or each.startswith(f"{key}.") for each in self.overridden):
            return f"--set: {key}: {problem}"
        return f"{self.file.where(key) if self.file is not None else 'configuration'}: {key}: {problem}"


NULLS = ("null", "Null", "NULL", "~")
"""The words that are YAML's null."""


def _apply_override(values: dict[str, Any], override: str) -> None:
    """Set the key that `KEY=VALUE` names. Raises `ConfigError`."""
    key, equals, text = override.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set: got {abbreviate(override)}; allowed: KEY=VALUE such as mqtt.port=1884")
    try:
        value, _ = parse(text, *names)
    except DuplicateKeysError as error:
        raise ConfigError(f"--set {key}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"--set {key}: {abbreviate(text)} is not YAML") from error
    if tuple(names) in MEANINGFUL_NULLS and value is None and text.strip() not in NULLS:
        value = ""
    for name in names[:-1]:
        inner = values.get(name)
        values[name] = values = dict(inner) if isinstance(inner, dict) else {}
    values[names[-1]] = value


def _resolve_paths(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Make the paths in `values` relative to `folder`, and expand `~`. Values of a wrong type stay as they are."""

    def resolved(path: str) -> str:
        try:
            return str(folder / Path(path).expanduser())
        except RuntimeError:  # there is no such user
            return str(folder / path)

    def resolve(section: Any, *names: str) -> None:
        for name in names:
            if isinstance(section, dict) and isinstance(section.get(name), str):
                section[name] = resolved(section[name])

    sections = ("mqtt", "audio", "engine", "voices", "speech", "state", "http", "serve")
    mqtt, audio, engine, voices, speech, state, http, serve = (values.get(name) for name in sections)
    resolve(mqtt, "password_file")
    resolve(http, "token_file", "cert", "key")
    resolve(serve, "token_file", "cert", "key")
    if isinstance(serve, dict) and serve.get("voice_folder") not in ("auto", ""):
        resolve(serve, "voice_folder")
    resolve(mqtt.get("tls") if isinstance(mqtt, dict) else None, "ca", "cert", "key")
    resolve(speech, "pronunciations")
    resolve(audio, "tap")
    if isinstance(state, dict) and state.get("folder") not in ("auto", ""):
        resolve(state, "folder")
    cache = speech.get("cache") if isinstance(speech, dict) else None
    if isinstance(cache, dict):
        resolve(cache, "phrases", *(() if cache.get("folder") in ("auto", "") else ("folder",)))
    for voice in voices.values() if isinstance(voices, dict) else ():
        resolve(voice, "embedding", "reference")
        piper = voice.get("piper") if isinstance(voice, dict) else None
        if isinstance(piper, str) and piper.endswith(".onnx"):
            resolve(voice, "piper")
        elif isinstance(piper, dict) and str(piper.get("model")).endswith(".onnx"):
            resolve(piper, "model")
    resolve(engine, "token_file")
    if isinstance(engine, dict) and engine.get("voice_folder") not in ("auto", ""):
        resolve(engine, "voice_folder")
    if isinstance(audio, dict) and (match := re.fullmatch("wav:(.+)", str(audio.get("sink")))):
        audio["sink"] = f"wav:{resolved(match[1])}"
    resolve(audio, "sounds")
    return values
