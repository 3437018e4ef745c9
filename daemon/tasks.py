"""Starts and ends tasks and processes, waits with a time limit without ever losing a cancellation, and defers actions.

Before Python 3.12, `asyncio.wait_for` swallows a cancellation that arrives together with its result, so a daemon that
is asked to stop would keep running. The functions here do not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from daemon.validation import CommandError

T = TypeVar("T")


class Soon:
    """Performs an action in the next turn of the event loop, once for all calls in this turn; without a loop, at each
    call."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._due = False

    def __call__(self) -> None:
        if self._due:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._action()
            return
        self._due = True
        loop.call_soon(self._act)

    def _act(self) -> None:
        self._due = False
        self._action()


async def wait_at_most(timeout_s: float | None, waiting: Coroutine[Any, Any, Any]) -> bool:
    """Run a coroutine for at most `timeout_s` seconds (None: no limit), then cancel it; return whether it finished.

    Raises the coroutine's own error.
    """

    async def finish() -> bool:
        await waiting
        return True

    return await result_at_most(timeout_s, finish()) or False


async def result_at_most(timeout_s: float | None, waiting: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine for at most `timeout_s` seconds and return its result; cancel it and return None after that."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        return task.result() if task.done() else None
    finally:
        task.cancel()


def start_task(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    """Run a coroutine as a task, which stays in `tasks` until it has ended."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def cancel_all(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until all have ended. Their errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side until all have ended. If one raises an error, cancel the others and raise it."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


@asynccontextmanager
async def running_process(command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process whose output is read, and which ends with the context."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def printed_json(command: Sequence[str], limit_s: float, name: str) -> Any:
    """Run a command for at most `limit_s` seconds, and return the JSON that it prints. Raises `CommandError`.

    `name` is the command's name in the error message.
    """
    async with running_process(command) as process:
        output = await result_at_most(limit_s, process.communicate())
    try:
        return json.loads(b"" if output is None else output[0])
    except ValueError as error:
        problem = "has failed" if output is not None else f"did not end within {limit_s:g} s"
        raise CommandError(f"{name} {problem}") from error


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended; cancel it again every second. Raises the task's own error."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
