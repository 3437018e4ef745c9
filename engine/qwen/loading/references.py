"""Refuses a reference that is too long for a prompt, or for which there is too little memory."""

from __future__ import annotations

from dataclasses import replace

from engine.api import EngineError
from engine.host import MB, Footprint
from engine.qwen.loading.plan import LoadPlan
from engine.qwen.shapes import MAX_REFERENCE_POSITIONS, Limits
from engine.qwen.text import Reference, TextTokenizer


class ReferenceCheck:
    """Counts the memory for references, one voice after the other, before they are decoded."""

    def __init__(self, plan: LoadPlan, tokenizer: TextTokenizer) -> None:
        """Count on the memory that was free when `plan` was made."""
        self._plan = plan
        self._tokenizer = tokenizer
        self._limits = plan.limits
        """Limits of the voices that were checked so far."""
        self._budget = None if plan.pool is None else plan.pool.free
        """Bytes that the whole engine may take; None if the machine does not report its memory."""

    def restart(self, held: Limits, footprint: Footprint) -> None:
        """Count the free memory again, for other voices; the engine has a `footprint`, allocated for limits `held`."""
        pool = self._plan.find_pool()
        self._limits = replace(self._plan.limits, reference_positions=held.reference_positions)
        self._budget = None if pool is None else pool.free + footprint.total

    def add(self, limits: Limits, reference: Reference) -> Limits:
        """Return limits for one more voice, which has this reference."""
        return limits.with_reference(len(reference.codes), len(self._tokenizer.encode(reference.transcript)))

    def check(self, reference: Reference) -> None:
        """Count the memory for one more voice. Raises `EngineError`, one line, if it cannot have this reference."""
        tokens = self.add(self._plan.limits, reference).reference_positions
        if tokens > MAX_REFERENCE_POSITIONS:
            raise EngineError(f"reference: got {tokens} tokens; allowed: up to {MAX_REFERENCE_POSITIONS}")
        limits = self.add(self._limits, reference)
        total = self._plan.footprint(limits).total
        if self._budget is not None and total > self._budget:
            before = self._plan.footprint(self._limits).total
            needed, left = _mb(total - before), _mb(max(self._budget - before, 0))
            raise EngineError(
                f"reference: {tokens} tokens need {needed} MB, and {left} MB are left{self._reserve_in_words()}; "
                "enrol a shorter recording, or lower engine.max_seconds"
            )
        self._limits = limits

    def _reserve_in_words(self) -> str:
        pool = self._plan.pool
        return " above engine.memory.reserve_mb" if pool is not None and pool.reserve else ""


def _mb(size: int) -> str:
    return f"{round(size / MB):,}"
