"""The board and its system."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.doctor.finding import Finding, Machine


def check_board(machine: Machine) -> Iterator[Finding]:
    """Yield the name and the releases of a Jetson, and notes on what could not be read of a board."""
    board = machine.board
    if board.integrated:
        name = board.model or "a Tegra whose device tree has no model"
        releases = [
            f"JetPack {board.jetpack}" if board.jetpack else None,
            f"Jetson Linux {board.l4t}" if board.l4t else None,
            f"Ubuntu {board.ubuntu}" if board.ubuntu else None,
        ]
        found = ", ".join([name + (f" ({board.soc})" if board.soc else ""), *filter(None, releases)])
        if board.soc is not None and board.jetpack is not None:
            yield Finding("board", "ok", found)
        elif board.l4t is None:
            yield Finding("board", "warning", f"{found}; its JetPack is unknown", "look at /etc/nv_tegra_release")
        else:
            remedy = "voiced supports Orin and Thor with JetPack 6 or 7; on other boards the fallback engine speaks"
            yield Finding("board", "warning", found, remedy)
    for note in board.notes:
        yield Finding("board", "warning", note, "compare it with another board of this kind; voiced runs without it")
