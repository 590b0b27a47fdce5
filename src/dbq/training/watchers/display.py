"""The terminal's view of a run: a bar for the epoch, a line for each one done."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dbq.support.text import printable
from dbq.training.watchers.watching import StepReport


class TerminalWatcher:
    """A context manager that shows progress on a console; bars only if that is a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
            TextColumn("{task.fields[details]}"), console=console, transient=True,
            disable=not console.is_terminal,
        )  # fmt: skip
        self.task = self.progress.add_task("starting", total=None, details="")

    def __enter__(self) -> TerminalWatcher:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def message(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def step(self, report: StepReport) -> None:
        temperature = "" if report.temperature is None else f"  T {report.temperature:.3g}"
        self.progress.update(
            self.task,
            description=f"epoch {report.epoch + 1}/{report.epochs}",
            completed=report.step,
            total=report.steps,
            details=f"loss {report.loss:.4f}  lr {report.rate:.2g}{temperature}  "
            f"{report.speed:.0f} img/s  {duration(report.seconds_left)} left",
        )

    def epoch(self, row: dict[str, Any]) -> None:
        self.message(epoch_line(row))


def epoch_line(row: dict[str, Any]) -> str:
    """An epoch in one line: soft accuracy in training, hard accuracy in the test, zeros.

    >>> print(epoch_line({"epoch": 0, "loss": 0.5, "soft_top1": 80.0, "top1": 79.126, "rate": 0.1,
    ...     "temperature": 5.0, "seconds": 61, "sparsity": {"conv": [0.5, 0.25]}, "dead_kernels": {},
    ...     "skipped": []}))
    epoch 1: loss 0.5000, soft 80.00 %, hard 79.13 %, lr 0.1, T 5, zeros 50+25 %, 1m01s in all
    """
    parts = [
        f"loss {row['loss']:.4f}",
        f"soft {row['soft_top1']:.2f} %",
        f"hard {row['top1']:.2f} %",
        f"lr {row['rate']:.2g}",
    ]
    if row["temperature"] is not None:
        parts.append(f"T {row['temperature']:.4g}")
    layers = list(row["sparsity"].values())
    if layers:
        most = max(map(len, layers))
        of_branch = [[zeros[j] for zeros in layers if j < len(zeros)] for j in range(most)]
        means = (f"{100 * sum(zeros) / len(zeros):.0f}" for zeros in of_branch)
        parts.append(f"zeros {'+'.join(means)} %")
    parts.append(f"{duration(row['seconds'])} in all")
    dead = row["dead_kernels"]
    if dead:
        worst = max(dead, key=dead.get)
        parts.append(f"{sum(dead.values())} dead kernels (most in {worst})")
    if row["skipped"]:
        parts.append(f"{len(row['skipped'])} unreadable")
    return f"epoch {row['epoch'] + 1}: " + ", ".join(parts)


def duration(seconds: float) -> str:
    """A length of time, two units at most.

    >>> duration(42), duration(3_725)
    ('42s', '1h02m')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
