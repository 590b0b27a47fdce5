"""The tables of docs/web.md and the sentence of README.md, from results/web.json."""

from __future__ import annotations

from collections.abc import Callable

from tabular import Row, result, table

PLAIN = "#plain"


def web() -> str:
    heads = ["network", "plan", "dbq, ms", "without relaxed dot products", "onnxruntime-web, ms",
             "times as fast", "start-up, ms: dbq / peer", "download, MB: dbq / peer",
             "two workers"]  # fmt: skip
    rows = []
    for name, network in result("web")["networks"].items():
        peer = network["forms"][network["best_peer"]]
        for form, found in network["forms"].items():
            if form.endswith(".dbq"):
                rows.append(_cells(name, form, found, network, peer))
    return table(heads, rows)


def _cells(name: str, form: str, found: Row, network: Row, peer: Row) -> list[str]:
    plain = network["forms"].get(form + PLAIN)  # a file of before relaxed dot products has neither
    megabytes = (row["download_bytes"] / 1e6 for row in (found, peer))
    start_ups = (row["start_up_milliseconds"] for row in (found, peer))
    return [
        name,
        f"`{form.removesuffix('.dbq')}`",
        f"{found['milliseconds']:.2f}",
        f"{plain['milliseconds']:.2f}" if plain else "",
        f"{peer['milliseconds']:.2f} ({network['best_peer'].removesuffix('.onnx')})",
        f"**{found['times_best_peer']:.2f}**",
        " / ".join(f"{time:.0f}" for time in start_ups),
        " / ".join(f"{size:.2f}" for size in megabytes),
        f"{found['two_workers']:.2f}x" if plain else "",
    ]


def web_summary() -> str:
    found = result("web")["networks"]["mobilenet_v1-1.0"]["forms"]["dbq-2t-4.dbq"]
    return (
        "In a [browser](docs/web.md), MobileNetV1 1.0 with two branches takes "
        f"{found['milliseconds']:.1f} ms, {found['times_best_peer']:.1f} times less than in "
        "onnxruntime-web\n([web.json](results/web.json))."
    )


TABLES: dict[str, Callable[[], str]] = {"web": web, "web-summary": web_summary}
