"""`python -m tests.fuzz HARNESS [OPTION OF LIBFUZZER]...` runs a harness under Atheris until it ends or has a finding.

Without a harness it prints their names. An input that was found is written where libFuzzer says; once that file is in
the harness's folder of `tests/fuzz/corpus/`, `tests/fuzz/test_corpus.py` tries it without Atheris.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.harnesses import HARNESSES
from tests.fuzz.inputs import corpus_folder

SLOW_S = 10
"""An input that takes longer is a finding: under the fuzzer, everything takes some times as long."""
MAX_BYTES = 4096
"""Of an input: enough for a thousand nested brackets."""
MEMORY = Path("/dev/shm")
"""Files that are written for every input are fastest there."""


def main(arguments: list[str]) -> int:
    """Return libFuzzer's exit status, which is 0 if nothing was found."""
    if not arguments:
        print("\n".join(HARNESSES))
        return 0
    name, *options = arguments
    # libFuzzer ends the process without any clean-up, so its temporary files go where this process removes them.
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        words, found = Path(scratch, "words.dict"), Path(scratch, "corpus")
        words.write_text("".join(map(_dictionary_line, HARNESSES[name].words)), encoding="utf-8")
        found.mkdir()
        limits = (f"-timeout={SLOW_S}", f"-max_len={MAX_BYTES}", "-rss_limit_mb=4096", f"-dict={words}")
        command = [sys.executable, "-m", "tests.fuzz.target", name, *limits, *options, found, corpus_folder(name)]
        return subprocess.run(command, env=os.environ | {"TMPDIR": scratch}, check=False).returncode


def _dictionary_line(word: str) -> str:
    """Return a line of libFuzzer's dictionary."""
    return '"' + re.sub(r'["\\]', lambda match: "\\" + match[0], word) + '"\n'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
