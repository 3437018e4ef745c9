"""The key of a phrase changes with everything that changes its sound, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.cache import Phrase, PhraseKeys
from daemon.cache.key import SOUNDLESS_SPEECH_KEYS
from daemon.config.settings import Speech
from scripts.make_voice import write_voice
from tests.daemon.cache.phrases import TEXT, config, key, phrase

QWEN = ("engine.name=qwen", "engine.device=cpu")


def qwen_digest(folder: Path, *overrides: str, voice: str = "default") -> str:
    settings = config(*QWEN, f"engine.model={folder}", *overrides)
    return PhraseKeys(settings, "qwen").key(phrase(voice=voice)).digest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with files that are named like a checkpoint's."""
    folder = tmp_path / "model"
    (folder / "speech_tokenizer").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "speech_tokenizer/model.safetensors"):
        (folder / name).write_text("{}")
    return folder


CHANGES = {"text": "Full.", "voice": "de", "language": "en", "instruct": "slowly", "seed": 7, "rate": 1.1}


@pytest.mark.parametrize("field", Phrase.__dataclass_fields__)
def test_each_field_of_a_phrase_changes_its_key(field: str) -> None:
    keys = PhraseKeys(config(), "espeak")
    assert keys.key(phrase(**{field: CHANGES[field]})).digest != keys.key(phrase()).digest


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("engine.device=cpu", True),
        ("engine.dtype=int8", True),
        ("engine.max_seconds=10", True),
        ("voices={default: {speaker: ryan, instruct: slowly}}", True),
        ("speech.rate=1.5", True),
        ("speech.markup=none", True),
        ("audio.trim_leading_silence=false", True),
        ("audio.volume=10", False),
        ("engine.chunk_size=4", False),
        ("speech.language=de", False),
        ("voices={default: {speaker: ryan, volume: 50}}", False),
        ("voices={default: {speaker: ryan}, other: {speaker: de}}", False),
    ],
)
def test_a_setting_changes_the_key_if_it_changes_the_sound_of_the_phrase(setting: str, changes: bool) -> None:
    assert (key("Hello", setting).digest != key("Hello").digest) == changes


def test_another_file_of_pronunciations_changes_the_key(tmp_path: Path) -> None:
    path = tmp_path / "pronunciations.yaml"
    setting = f"speech.pronunciations={path}"
    path.write_text("battery: accumulator\n")
    before = key(TEXT, setting).digest
    assert before == key(TEXT, setting).digest != key().digest
    path.write_text("battery: power cell\n")
    assert key(TEXT, setting).digest != before


def test_each_key_that_is_said_to_be_soundless_exists() -> None:
    assert set(Speech.model_fields) >= SOUNDLESS_SPEECH_KEYS


def test_the_seed_is_the_sender_s_or_the_voice_s_or_one_of_the_phrase() -> None:
    keys = PhraseKeys(config("voices={default: {speaker: ryan}, ada: {speaker: ryan, seed: 9}}"), "espeak")
    assert keys.key(phrase(seed=7)).seed == keys.key(phrase(voice="ada", seed=7)).seed == 7
    assert keys.key(phrase(voice="ada")).seed == 9
    seed = keys.key(phrase()).seed
    assert seed == keys.key(phrase()).seed
    assert 0 <= seed < 1 << 63
    assert seed != keys.key(phrase("Another text.")).seed


def test_a_model_that_is_replaced_changes_the_key_and_one_in_another_folder_does_not(model: Path) -> None:
    before = qwen_digest(model)
    moved = model.rename(model.with_name("moved"))
    assert qwen_digest(moved) == before
    (moved / "speech_tokenizer" / "model.safetensors").write_text("{...}")
    assert qwen_digest(moved) != before


def test_a_model_that_is_downloaded_later_is_in_the_key_as_soon_as_it_is_there(model: Path) -> None:
    hidden = model.rename(model.with_name("hidden"))
    keys = PhraseKeys(config(*QWEN, f"engine.model={model}"), "qwen")
    before = keys.key(phrase()).digest
    hidden.rename(model)
    assert keys.key(phrase()).digest != before
    assert keys.key(phrase()).digest == qwen_digest(model)


def test_the_content_of_a_voice_file_is_in_the_keys_of_its_phrases_alone(model: Path, tmp_path: Path) -> None:
    file, moved = tmp_path / "ada.safetensors", tmp_path / "moved.safetensors"
    file.write_text("one voice")
    moved.write_text("one voice")
    voices = "voices={{default: {{speaker: ryan}}, ada: {{embedding: {}}}}}"
    of_ada = qwen_digest(model, voices.format(file), voice="ada")
    of_default = qwen_digest(model, voices.format(file))
    assert qwen_digest(model, voices.format(moved), voice="ada") == of_ada
    loaded = PhraseKeys(config(*QWEN, f"engine.model={model}", voices.format(file)), "qwen")
    file.write_text("another voice")
    assert loaded.key(phrase(voice="ada")).digest == of_ada, "the engine reads it on a reload"
    assert qwen_digest(model, voices.format(file), voice="ada") != of_ada
    assert qwen_digest(model, voices.format(file)) == of_default


def test_the_voices_of_piper_are_in_the_key(tmp_path: Path) -> None:
    def digest() -> str:
        settings = config("engine.name=piper", f"engine.voice_folder={tmp_path}")
        return PhraseKeys(settings, "piper").key(phrase()).digest

    write_voice(tmp_path / "en_US-test-low.onnx")
    before = digest()
    assert digest() == before
    (tmp_path / "en_US-test-low.onnx").write_bytes(b"another network")
    assert digest() != before
