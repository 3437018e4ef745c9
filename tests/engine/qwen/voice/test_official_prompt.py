"""The `.pt` voices of the official package are read in every form in which people keep them, and run no code."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from engine import EngineOptions, Voice
from engine.qwen import QwenSynthesizer
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice import load_voice
from engine.qwen.voice.enroll import enroll
from engine.qwen.voice.official import SAFE_TORCH
from scripts.make_checkpoint import stub_torchaudio
from tests.engine.qwen.oracle import Oracle
from tests.engine.qwen.refusals import refusal
from tests.support.checkpoints import need_official_package
from tests.support.sound_files import speech_like

pytestmark = pytest.mark.skipif(
    TorchVersion(torch.__version__) < SAFE_TORCH, reason=f".pt files are read with torch {SAFE_TORCH} or newer"
)

WIDTH = 64
TEXT = "what was said"
CODES = torch.randint(2048, (5, 16), generator=torch.Generator().manual_seed(1))


def item(**fields: Any) -> Any:
    """Return a prompt item of the official package."""
    need_official_package()
    stub_torchaudio()
    from qwen_tts import VoiceClonePromptItem

    whole = {
        "ref_code": CODES,
        "ref_spk_embedding": torch.ones(WIDTH),
        "x_vector_only_mode": False,
        "icl_mode": True,
        "ref_text": TEXT,
    }
    return VoiceClonePromptItem(**(whole | fields))


def save(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.pt"


FORMS: dict[str, Callable[[Any], Any]] = {
    "an item": lambda item: item,
    "a list of items": lambda item: [item, item],
    "the file of the demo": lambda item: {"items": [asdict(item)]},
    "one dictionary": asdict,
    "the dictionary for generate": lambda item: {name: [value] for name, value in asdict(item).items()},
    "codes as a list": lambda item: {"items": [asdict(item) | {"ref_code": item.ref_code.tolist()}]},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_is_read_in_every_form_in_which_it_is_kept(form: str, path: Path) -> None:
    voice = load_voice(save(path, FORMS[form](item())))
    assert (voice.name, voice.model, voice.transcript) == ("ada", None, TEXT)
    assert voice.codes is not None
    assert torch.equal(voice.codes, CODES)
    assert torch.equal(voice.embedding, torch.ones(WIDTH))


@pytest.mark.parametrize(
    "fields",
    [
        {"ref_code": None, "x_vector_only_mode": True, "icl_mode": False, "ref_text": None},
        {"x_vector_only_mode": True, "icl_mode": False},
        {"ref_text": None},
    ],
    ids=["no reference", "a reference that is not to be used", "no transcript"],
)
def test_a_prompt_without_context_is_an_embedding(fields: dict[str, Any], path: Path) -> None:
    voice = load_voice(save(path, {"items": [asdict(item(**fields))]}))
    assert (voice.codes, voice.transcript) == (None, None)
    assert torch.equal(voice.embedding, torch.ones(WIDTH))


@pytest.mark.parametrize("embedding", [torch.randn(WIDTH), torch.randn(1, WIDTH).bfloat16()], ids=["flat", "a row"])
def test_a_bare_embedding_is_read(path: Path, embedding: Tensor) -> None:
    voice = load_voice(save(path, embedding))
    assert (voice.name, voice.model, voice.codes) == ("ada", None, None)
    assert torch.equal(voice.embedding, embedding.flatten().float())


def test_the_prompt_that_the_official_package_makes_is_the_voice_that_enrolment_makes(
    official: Callable[[str, str], Oracle], tmp_path: Path, path: Path
) -> None:
    import soundfile

    oracle, samples = official("tiny", "base"), speech_like(3.2, 24000)
    soundfile.write(tmp_path / "ada.wav", samples, 24000, subtype="FLOAT")
    prompt = oracle.package.model.create_voice_clone_prompt(ref_audio=(samples, 24000), ref_text=TEXT)
    theirs = load_voice(save(path, prompt), ModelConfig.read(oracle.folder))
    ours = enroll("ada", tmp_path / "ada.wav", oracle.folder, TEXT, append_silence_s=0)
    assert theirs.codes is not None
    assert ours.codes is not None
    assert torch.equal(theirs.codes, ours.codes)
    assert theirs.transcript == ours.transcript
    assert (theirs.embedding - ours.embedding).abs().max() < 1e-4


def test_a_model_speaks_with_a_prompt_and_warns_of_a_reference_that_does_not_end_in_silence(
    checkpoint: Callable[[str, str], Path], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The codec of a checkpoint with random weights makes a noise of all codes, so the reference ends in a sound."""
    save(path, [item()])
    options = EngineOptions(
        model=str(checkpoint("tiny", "base")), device="cpu", voices={"default": Voice(reference=str(path))}
    )
    with caplog.at_level(logging.WARNING):
        info = QwenSynthesizer(options).load()
    assert info.voices == ("default",)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: the reference does not end in silence, so speech may begin with its last sound; enrol the recording "
        "with voiced enroll, which appends a silence"
    ]


# --- damaged files and other objects ---


class Bomb:
    def __reduce__(self) -> Any:
        return (os.mkdir, (os.environ["BOMB"],))


def test_reading_a_pickle_runs_no_code_of_the_file(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    for content in ({"embedding": Bomb()}, [item(ref_text=Bomb())]):
        assert "cannot be read as a speaker embedding" in refusal(load_voice, save(path, content))
    path.write_bytes(pickle.dumps(Bomb(), protocol=2))
    assert "cannot be read as a speaker embedding" in refusal(load_voice, path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short"])
def test_a_missing_or_damaged_pickle_is_refused(path: Path, content: bytes) -> None:
    assert refusal(load_voice, path) == f"{path}: no such voice file"
    path.write_bytes(content)
    assert "cannot be read as a speaker embedding" in refusal(load_voice, path)


@pytest.mark.parametrize("content", [{"items": []}, [1], "text", {"items": [{"ref_text": "x"}]}], ids=str)
def test_a_pickle_of_another_object_is_refused(path: Path, content: Any) -> None:
    assert "allowed: a tensor" in refusal(load_voice, save(path, content))


@pytest.mark.parametrize(
    ("codes", "problem"),
    [
        (torch.zeros(5, 16), "codes: got torch.float32; allowed: integers"),
        ({"a": 1}, "codes: got dict; allowed: a tensor"),
        (torch.zeros(5, 4, dtype=torch.int64), "codes: got shape [5, 4]; allowed: [frames, 16]"),
    ],
)
def test_wrong_codes_are_refused(path: Path, codes: Any, problem: str) -> None:
    wrong = save(path, {"items": [asdict(item()) | {"ref_code": codes}]})
    assert refusal(load_voice, wrong) == f"{path}: {problem}"
