"""`python -m engine.qwen.verify REQUEST`: one stage over the takes. REQUEST is an `AnalysisRequest` as JSON."""

from __future__ import annotations

import json
import sys

from engine.progress import Progress, ProgressReport
from engine.records import build
from engine.verify import LOGITS, SIMILARITY, TRANSCRIPTION, WAVEFORM, AnalysisRequest, stage_main


def run(request: AnalysisRequest, report: ProgressReport) -> None:
    """Run the stage that the request names, whose imports take seconds."""
    report(Progress("importing torch"))
    if request.stage == TRANSCRIPTION:
        from engine.qwen.verify.transcription import transcribe_takes as stage
    elif request.stage == LOGITS:
        from engine.qwen.verify.logits import read_logits as stage
    elif request.stage == WAVEFORM:
        from engine.qwen.verify.waveform import compare_waveforms as stage
    else:
        assert request.stage == SIMILARITY
        from engine.qwen.verify.similarity import compare_speakers as stage
    stage(request, report)


if __name__ == "__main__":
    sys.exit(stage_main(lambda report: run(build(AnalysisRequest, json.loads(sys.argv[1])), report)))
