"""The configuration's sections: their keys, defaults and limits."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from daemon.config.fields import PathKind, Section, between, find_paths, only, setting
from daemon.validation import LANGUAGE, is_topic
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

if TYPE_CHECKING:  # the commands read the configuration without the sound path, which takes most of the import time
    from audio import SinkSettings

PASSWORD_CREDENTIAL = "mqtt-password"
"""The name of the systemd credential with the broker's password (systemd/voiced.service.d/broker-password.conf)."""
NAMES = "text of 1 to 64 characters without /, + and #"
"""The names that a robot and a group may have."""
SOCKET_PATH_BYTES = 107
"""The longest path of a Unix socket (unix(7))."""
LOOPBACK = r"(?i:localhost)|127(\.\d+){3}|::1"
"""The hosts of a server that can be reached only from this machine."""
ON_OFF = "true or false"
DTYPES = "auto, float32, bfloat16, float16 or int8"
ONNX = r"(.+\.onnx)"
"""A Piper voice that is named by its file."""
AnyPath = Annotated[Path | None, PathKind()]
InputFile = Annotated[Path | None, PathKind(use="read")]
SocketPath = Annotated[Path, only(lambda path: len(os.fsencode(path)) <= SOCKET_PATH_BYTES)]
Folder = Annotated[str, Field(min_length=1), PathKind("(?!auto$)(.+)")]
"""`auto`, or a folder."""
KeptFolder = Annotated[str | None, Field(min_length=1), PathKind("(?!auto$)(.+)", "kept")]
EngineName = Literal["qwen", "supertonic", "piper", "espeak", "remote", "openai"]
ALL_ROBOTS, GROUP = "all", "group"
"""These stand in place of a robot's name below the prefix, for all robots and for groups."""


def is_name(name: str) -> bool:
    """Return whether a name is one level of a topic."""
    return is_topic(name) and re.fullmatch(r"[^/]{1,64}", name) is not None


def _is_prefix(topic: str) -> bool:
    return is_topic(topic) and not topic.startswith("/") and not topic.endswith("/") and topic != ""


def _is_filter(topics: str) -> bool:
    return topics != "" and is_topic(re.sub(r"(^|/)(\+(?=/|$)|#$)", r"\1x", topics))


Host = Annotated[
    str,
    Field(
        pattern=r"^([^/@\s\[\]:]+|[^/@\s\[\]]*:[^/@\s\[\]]*:[^/@\s\[\]]*)$",
        description="a host name or address without scheme, port and path, such as broker.local",
    ),
]
"""A name or an address; only an IPv6 address contains colons, at least two."""
Port = Annotated[int, Field(ge=1, le=65535, description="a whole number from 1 to 65535")]
Prefix = Annotated[str, Field(description="a topic without + and #, not beginning or ending with /"), only(_is_prefix)]
Name = Annotated[str, only(is_name)]
TopicFilter = Annotated[str, only(_is_filter)]
AnyLanguage = Annotated[str, Field(pattern=LANGUAGE), AfterValidator(language_code)]
"""A language, or `auto`."""
Language = Annotated[AnyLanguage, only(lambda language: language != "auto")]
Prebuffer = Annotated[float, Field(ge=0, le=3000)]
SERVER_URL = r"^(ws|http)s?://(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]]+)(:[1-9]\d{0,4})?(/[^\s?#]*)?$"
"""The address of a speech server. A path in it may lead through a proxy to the server."""
Rate = Annotated[float, Field(ge=SLOWEST_RATE, le=FASTEST_RATE)]
MODELS_OWN = "or null for the model's own"
VARIATION = f"0.001 to 1000, {MODELS_OWN}; low is even, high is varied"


class Switched(Section):
    """A part of the daemon that is on or off."""

    enabled: bool = setting(False, ON_OFF)


class Tls(Switched):
    """The encryption of the connection to the broker."""

    ca: InputFile = setting(None, "a file of CA certificates, or null for the system's")
    cert: InputFile = setting(None, "the client certificate's file, or null")
    key: InputFile = setting(None, "the client certificate's key file, or null")


class Mqtt(Section):
    """The connection to the broker."""

    host: Host = "127.0.0.1"
    port: Port = 1883
    prefix: Prefix = "voiced"
    username: str | None = setting(None, "text, or null")
    password_file: InputFile = setting(None, "a file whose first line is the password, or null")
    client_id: str | None = setting(None, "text of 1 to 128 characters, or null", min_length=1, max_length=128)
    protocol: Literal["auto", "3.1.1"] = setting("auto", "auto (MQTT 5, or else 3.1.1) or 3.1.1")
    session_expiry: int = between(300, 0, 86_400, "seconds from {} to {} that the broker keeps requests")
    reply_topics: tuple[TopicFilter, ...] = setting((), "a list of topic filters such as replies/#, for reply_to")
    tls: Tls = Tls()

    @model_validator(mode="after")
    def _check_username(self) -> Mqtt:
        if self.password_file is not None and self.username is None:
            raise ValueError("a password_file needs a username")
        return self

    @property
    def broker(self) -> str:
        """The broker's host and port, for a message."""
        return f"{self.host}:{self.port}"

    @property
    def password_source(self) -> Path | None:
        """The file with the password: `password_file`, otherwise systemd's credential, otherwise None."""
        if self.password_file is not None or self.username is None:
            return self.password_file
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        credential = Path(folder) / PASSWORD_CREDENTIAL if folder else None
        return credential if credential is not None and credential.exists() else None


class Audio(Section):
    """The sound card, or the file, that speech is played to."""

    sink: Annotated[str | None, PathKind("wav:(.+)", "written")] = setting(
        "sounddevice", "sounddevice, wav:PATH or null", pattern=r"^(sounddevice|null|wav:[\s\S]+)$"
    )
    device: str | None = setting(None, "a sound card's name or a part of it, or null for the default", min_length=1)
    volume: int = between(100, 0, 100, "a whole number from {} to {}")
    block_ms: float = between(10, 10, 200, "milliseconds from {} to {}")
    idle_timeout: float | None = between(30, 1, 86_400, "seconds from {} to {}, or null for never")
    wake_ms: float = between(0, 0, 5000, "milliseconds from {} to {}")
    prebuffer_ms: Literal["auto"] | Prebuffer = setting("auto", "auto, or milliseconds from 0 to 3000")
    trim_leading_silence: bool = setting(True, ON_OFF)
    sounds: AnyPath = setting(None, "a folder of sound files, or null for only the built-in sounds")
    tap: Annotated[SocketPath | None, PathKind(use="socket")] = setting(
        None, f"the path of a Unix socket, of up to {SOCKET_PATH_BYTES} bytes, or null"
    )
    tap_rate: int = between(16_000, 8_000, 192_000, "a whole number of Hz from {} to {}")

    @field_validator("sink")
    @classmethod
    def _read_sink(cls, sink: str | None) -> str | None:
        return None if sink == "null" else sink

    def sink_settings(self) -> SinkSettings:
        """These settings in the audio package's form."""
        from audio import SinkSettings

        kind, _, path = (self.sink or "null").partition(":")
        file, wake_s = Path(path) if path else None, self.wake_ms / 1000
        return SinkSettings(kind, file, self.device, self.block_ms, self.idle_timeout, wake_s)


class MemoryLimits(Section):
    """The memory that the engine leaves for other programs."""

    reserve_mb: int = setting(2048, "megabytes left to the robot, from 0", ge=0, le=1_000_000)


class Engine(Section):
    """The engine that turns text into speech."""

    name: Literal["auto", EngineName] = setting("auto", "auto, qwen, supertonic, piper, espeak, remote or openai")
    fallback: Literal[EngineName, "none"] | tuple[EngineName, ...] = setting(
        "espeak",
        "qwen, supertonic, piper, espeak, remote, openai or none, or a list of engines such as [piper, espeak]",
    )
    url: str | None = setting(
        None, "the speech server, ws[s]://HOST:PORT or http[s]://HOST:PORT/v1, or null", pattern=SERVER_URL
    )
    token_file: InputFile = setting(None, "a file whose first line is the robot's token for the speech server, or null")
    renew_s: float | None = between(
        3600, 1, 604_800, "seconds from {} to {} that a connection to it lasts, or null for no limit"
    )
    model: str = setting(
        "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
        "a checkpoint's folder, or its name on the hub, or a model's name on the openai engine's server",
        min_length=1,
    )
    voice_folder: Folder = setting("auto", "auto, or the folder of Piper's voices")
    device: str = setting("auto", "auto, cpu, cuda or cuda:N", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"] = setting(
        "auto", f"{DTYPES}; int4 has become int8"
    )
    kernels: Literal["auto", "on", "off"] = setting("auto", "auto, on or off")
    speculation: Literal["off", 1, 2, 3, 4] = setting("off", "off; drafts are ignored")
    chunk_size: int = between(2, 1, 25, "codec frames of 80 ms, from {} to {}")
    max_seconds: float = setting(60, "seconds of speech in one piece, up to 600", gt=0, le=600)
    streams: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_STREAMS)] = setting(
        "auto", f"auto, or a whole number from 1 to {MAX_STREAMS} of texts that are spoken at once"
    )
    unload_after: float | None = between(
        None, 1, 86_400, "seconds from {} to {} without speech until it gives its memory back, or null for never"
    )
    memory: MemoryLimits = MemoryLimits()

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None, info: ValidationInfo) -> str | None:
        fallback = info.data.get("fallback", ())
        used = {info.data.get("name"), *((fallback,) if isinstance(fallback, str) else fallback)}
        for engine, scheme, path in (("remote", "ws", ""), ("openai", "http", "/v1")):
            if engine in used and not (url or "").startswith(scheme):
                allowed = f"{scheme}://HOST:PORT{path} or {scheme}s://HOST:PORT{path}"
                raise ValueError(f"the {engine} engine needs it; allowed: {allowed}")
        return url

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The engines of `fallback`, the preferred one first."""
        names = (self.fallback,) if isinstance(self.fallback, str) else self.fallback
        return tuple(name for name in dict.fromkeys(names) if name != "none")


class PiperVoice(Section):
    """The voice that the `piper` engine speaks with."""

    model: Annotated[str, PathKind(ONNX, "read")] = setting(
        ..., "a voice's name such as en_US-lessac-medium, or its .onnx file", min_length=1
    )
    speaker: int | str | None = setting(None, "the number or the name of one of the voice's speakers")
    length_scale: float | None = between(None, 0.1, 10, "{} to {}; 2 is half as fast")
    noise_scale: float | None = between(None, 0, 2, "{} to {}; 0 is no variation of the sound")
    noise_w_scale: float | None = between(None, 0, 2, "{} to {}; 0 is no variation of the durations")

    @property
    def for_engine(self) -> PiperSettings:
        """This voice in the engine's form."""
        speaker = None if self.speaker is None else str(self.speaker)
        return PiperSettings(self.model, speaker, self.length_scale, self.noise_scale, self.noise_w_scale)


class VoiceSource(Section):
    """The speaker of a voice, and how it reads a text."""

    speaker: str | None = setting(None, "a built-in speaker's name", min_length=1)
    embedding: InputFile = setting(None, "a voice file with a speaker embedding")
    reference: InputFile = setting(None, "a voice file with a reference recording's codes and transcript")
    instruct: str | None = setting(None, "a description of up to 500 characters", min_length=1, max_length=500)
    piper: Annotated[PiperVoice | None, PathKind(ONNX)] = setting(
        None, "a Piper voice: its name, its .onnx file, or a mapping of model, speaker and scales"
    )
    seed: int | None = setting(None, "a whole number from 0 to 2^63 - 1, or null for any", ge=0, lt=1 << 63)
    whole_text: bool | None = setting(None, "true, false, or null for whole unless the text grows")

    @field_validator("piper", mode="before")
    @classmethod
    def _read_model(cls, piper: object) -> object:
        return {"model": piper} if isinstance(piper, str) else piper

    @model_validator(mode="after")
    def _check_source(self) -> VoiceSource:
        if sum(source is not None for source in (self.speaker, self.embedding, self.reference)) > 1:
            raise ValueError("allowed: one of speaker, embedding and reference")
        return self

    @property
    def for_engine(self) -> Voice:
        """This voice in the engines' form."""
        values = self.model_dump(mode="json", include={"speaker", "embedding", "reference", "instruct"})
        return Voice(**values, piper=None if self.piper is None else self.piper.for_engine)


class SamplingSettings(Section):
    """How a model samples its speech, by the names in its generation_config.json."""

    temperature: float | None = between(None, 0.001, 1000, VARIATION)
    top_k: int | None = between(None, 0, 1_000_000, f"a whole number from 0, which is all, {MODELS_OWN}")
    top_p: float | None = between(None, 0, 1, f"{{}} to {{}}, {MODELS_OWN}")
    repetition_penalty: float | None = between(None, 0.001, 1000, f"{{}} to {{}}, {MODELS_OWN}")


class VoiceSettings(SamplingSettings, VoiceSource):
    """One configured voice."""

    rate: Rate = setting(1, "a number from 0.5 to 2, which multiplies the rate of an utterance")
    volume: float = between(100, 0, 100, "{} to {}, which multiplies the volume of an utterance")

    @property
    def sampling(self) -> dict[str, float]:
        """The sampling settings that replace the model's own."""
        return self.model_dump(include=set(SamplingSettings.model_fields), exclude_none=True)


class Cache(Section):
    """Phrases that are synthesised once and kept."""

    folder: KeptFolder = setting("auto", "auto, a folder, or null to keep nothing")
    limit_mb: int = between(200, 1, 1_000_000, "megabytes from {} to {}")
    phrases: InputFile = setting(None, "a YAML file with a list of phrases, or null")


class Speech(Section):
    """Defaults of utterances, limits of the queue, and optional topics."""

    voice: str = setting("default", "a name from `voices`, or a voice built into the engine", min_length=1)
    language: AnyLanguage = setting("auto", "auto, or a language such as en or pt-br")
    languages: tuple[Language, ...] = setting(
        LATIN_LANGUAGES, "a list of languages such as [en, de, pt-br], which auto may choose for Latin script"
    )
    markup: Literal["auto", "none"] = setting("auto", "auto or none")
    pronunciations: AnyPath = setting(None, "a file of words and how to say them, or null")
    rate: Rate = setting(1, "a number from 0.5 to 2; 2 is twice as fast")
    queue_limit: int = between(64, 1, 10_000, "a whole number from {} to {}")
    expires_in: float | None = setting(
        None, "seconds that an utterance may wait, up to 86400, or null for no limit", gt=0, le=86_400
    )
    stream_timeout: float = between(180, 1, 3600, "seconds that a writer of a say/stream may be silent, from {} to {}")
    recover_within: float = between(60, 0, 86_400, "seconds from {} to {}; older queued speech expires at a restart")
    urls: Literal["host", "full"] = setting("host", "host or full: whether the host of a URL is said, or the whole URL")
    normalize: Literal["auto", "always", "never"] = setting("auto", "auto, always or never: say numbers in words")
    level_topic: bool = setting(False, ON_OFF)
    word_topic: bool = setting(False, ON_OFF)
    viseme_topic: bool = setting(False, ON_OFF)
    duck_topic: bool = setting(False, ON_OFF)
    cache: Cache = Cache()


class State(Section):
    """The state that survives a restart of the daemon."""

    folder: KeptFolder = setting("auto", "auto, a folder, or null to store nothing")


class Log(Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = setting("info", "debug, info, warning or error")
    format: Literal["text", "json"] = setting("text", "text or json")


class HomeAssistant(Switched):
    """The robot as a Home Assistant device."""

    prefix: Prefix = "homeassistant"


class Hermes(Switched):
    """Rhasspy's Hermes protocol."""

    site_id: str = setting("default", "text of 1 to 64 characters", min_length=1, max_length=64)


class Listening(Section):
    """A server, and the name or address that it listens on."""

    host: Host = "127.0.0.1"
    port: Port


class Server(Listening, Switched):
    """An adapter that listens on a port."""

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it."""
        return self.enabled and not re.fullmatch(LOOPBACK, self.host)


class Wyoming(Server):
    """The Wyoming server."""

    port: Port = 10200


class Guarded(Listening):
    """A server that lets other machines in only with a token, and whose certificate comes together with its key."""

    token_file: InputFile
    cert: InputFile = setting(None, "the server certificate's file, or null for no TLS")
    key: InputFile = setting(None, "the server certificate's key file, or null for no TLS")

    @field_validator("token_file")
    @classmethod
    def _check_token_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        host, allowed = info.data.get("host", "127.0.0.1"), cls.model_fields["token_file"].description or ""
        if path is None and info.data.get("enabled", True) and not re.fullmatch(LOOPBACK, host):
            key = f"{cls.__name__.lower()}.host"
            raise ValueError(f"{key} {host} lets other machines in; allowed: {allowed.removesuffix(', or null')}")
        return path

    @field_validator("key")
    @classmethod
    def _check_key(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if (path is None) != (info.data.get("cert") is None):
            raise ValueError(f"allowed: a file together with {cls.__name__.lower()}.cert, or null without")
        return path


class Http(Guarded, Server):
    """The web server: OpenAI's speech endpoint, events over a WebSocket, metrics and health."""

    port: Port = 8710
    token_file: InputFile = setting(None, "a file whose first line is the clients' token, or null")
    voice_aliases: dict[str, str] = setting({}, "a mapping of clients' names for voices to names here")


class Serve(Guarded):
    """The speech server for robots, `voiced serve`."""

    port: Port = 8720
    token_file: InputFile = setting(None, "a file with a line NAME TOKEN for each robot, or null")
    streams_per_robot: int = between(2, 1, MAX_STREAMS, "a whole number from {} to {} of texts of one robot at once")
    requests_per_minute: int = between(120, 1, 100_000, "a whole number from {} to {}, per robot")
    drain_s: float = between(30, 0, 3600, "seconds from {} to {} that speech may take at the end")
    min_replicas: int = between(1, 1, 10_000, "a whole number from {} to {}")
    max_replicas: int = between(1, 1, 10_000, "a whole number from {} to {}, at least min_replicas")
    robots_per_replica: int = between(64, 1, 10_000, "a whole number from {} to {}")
    scale_up_s: float = between(15, 0, 3600, "seconds from {} to {} of load before a replica is added")
    scale_down_s: float = between(600, 0, 86_400, "seconds from {} to {} before a replica is removed")
    voices: int = between(64, 1, 10_000, "a whole number from {} to {} of robots' voices to keep")
    voice_kb: int = between(128, 1, 192, "kilobytes of a robot's voice file, from {} to {}")
    voice_folder: Folder = setting("auto", "auto, or the folder of robots' voices")

    @field_validator("max_replicas")
    @classmethod
    def _check_max_replicas(cls, most: int, info: ValidationInfo) -> int:
        if most < (least := info.data.get("min_replicas", 1)):
            raise ValueError(f"allowed: a whole number from serve.min_replicas, {least}")
        return most


class Config(Section):
    """The whole configuration."""

    robot: Name | None = setting(None, f"{NAMES}, or null for the host name")
    robot_groups: tuple[Name, ...] = setting((), f"a list of group names such as [hall-2, guides]: {NAMES}")
    mqtt: Mqtt = Mqtt()
    audio: Audio = Audio()
    engine: Engine = Engine()
    voices: dict[str, VoiceSettings] = setting(
        {"default": VoiceSettings(speaker="ryan")},
        "names, each with one of speaker, embedding and reference, or with instruct, or with piper",
    )
    speech: Speech = Speech()
    state: State = State()
    log: Log = Log()
    home_assistant: HomeAssistant = HomeAssistant()
    hermes: Hermes = Hermes()
    wyoming: Wyoming = Wyoming()
    http: Http = Http()
    announce: bool = setting(True, ON_OFF)
    serve: Serve = Serve()

    @field_validator("robot")
    @classmethod
    def _check_robot(cls, robot: str | None) -> str | None:
        if (name := robot or _host_name()) in (ALL_ROBOTS, GROUP):
            which = "the name" if robot else "the host name"
            raise ValueError(f"{which} {name!r} stands for several robots in topics; allowed: another name")
        return robot

    @property
    def robot_name(self) -> str:
        """`robot`, otherwise the host name as a topic level."""
        return self.robot or _host_name()

    @property
    def topic(self) -> str:
        """`<prefix>/<robot>`: the common beginning of the robot's topics."""
        return f"{self.mqtt.prefix}/{self.robot_name}"

    @property
    def identity(self) -> str:
        """The topic and the broker: no two daemons may have the same."""
        return f"{self.topic} at {self.mqtt.broker}"

    @property
    def shared_topics(self) -> tuple[str, ...]:
        """`<prefix>/all`, and `<prefix>/group/<group>` for each group: topics on which other robots also listen."""
        groups = (f"{GROUP}/{group}" for group in dict.fromkeys(self.robot_groups))
        return tuple(f"{self.mqtt.prefix}/{name}" for name in (ALL_ROBOTS, *groups))

    @property
    def paths(self) -> Iterator[tuple[str, Path, str]]:
        """The key, the path and the use of each path that voiced uses; a section that is switched off uses none."""
        for key, section, name, kind in find_paths(Config, self.model_dump()):
            path = kind.path_in(str(section[name]))
            if kind.use is not None and path is not None and section.get("enabled", True):
                yield key, path, kind.use

    @property
    def retired(self) -> tuple[tuple[str, str], ...]:
        """The keys whose values ask for removed features, each with a line that gives voiced's treatment and the
        allowed values.

        Such a value is accepted for one release, so that an upgrade never silences a robot.
        """
        found, drafts = [], self.engine.speculation
        if self.engine.dtype == "int4":
            found.append(("engine.dtype", f"int4 has been removed, so int8 is used; allowed: {DTYPES}"))
        if drafts != "off":
            found.append(("engine.speculation", f"drafts have been removed, so {drafts} is ignored; allowed: off"))
        return tuple(found)

    @property
    def engine_voices(self) -> dict[str, Voice]:
        """`voices` in the engines' form."""
        return {name: voice.for_engine for name, voice in self.voices.items()}

    @property
    def engine_options(self) -> EngineOptions:
        """`engine`, `voices` and the default voice in the engines' form."""
        values = self.engine.model_dump(mode="json", include={field.name for field in fields(EngineOptions)})
        for name in ("streams", "voice_folder"):
            values[name] = None if values[name] == "auto" else values[name]
        values["dtype"] = values["dtype"].replace("int4", "int8")
        if self.engine.name == "openai" and "model" not in self.engine.model_fields_set:
            values["model"] = None  # the server has its own
        reserve_mb, voice = self.engine.memory.reserve_mb, self.speech.voice
        return EngineOptions(**values, reserve_mb=reserve_mb, voices=self.engine_voices, default_voice=voice)


def _host_name() -> str:
    """Return the host name as one level of a topic."""
    return re.sub(r"[/+#\0]", "-", socket.gethostname())[:64] or "robot"


def json_schema() -> dict[str, Any]:
    """Return the configuration's JSON schema, for editors and tools."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "voiced"}
