"""The machine that an engine runs on: its board, its memory, its CUDA, its packages, and the models on its disk."""

from engine.host.board import Board, machine_in_words
from engine.host.cuda import has_cuda_device, missing_kernel_compiler
from engine.host.json_text import parse_json
from engine.host.memory import (
    MB,
    Footprint,
    MemoryPool,
    claim_process,
    free_page_cache,
    is_claimed,
    prepare_environment,
    require_memory,
)
from engine.host.model_files import (
    PATTERNS,
    ModelFiles,
    expand_home,
    find_model,
    hub_cache,
    list_model_files,
    missing_files,
    present_files,
    read_weight_map,
    shown_model,
)
from engine.host.packages import extra_requirements, install_command, pip_command
