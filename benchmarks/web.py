"""dbq.wasm against onnxruntime-web in one page of a real browser, one thread: writes results/web.json.

    python benchmarks/web.py --ort node_modules/onnxruntime-web/dist [--files DIR] [--rounds N]

Contenders take turns in one page; milliseconds are medians over rounds, ratios medians over rounds of
(the fastest correct form of onnxruntime-web / ours). A form is correct if its logits on the image agree
with those of float32 as benchmarks/engine.py demands it. Start-up is from an empty page to the first
result, with files from this machine: what a page load costs beside its download. Two workers run a
network each: their images a second against those of one worker.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import statistics
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from engine_files import NETWORKS, make
from machine import options, save
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results" / "web.json"
MEASURED = ("mobilenet_v1-1.0", "mobilenet_v1-0.25", "mobilenet_v2-1.0", "resnet20")
TURN = 250  # milliseconds
PLAIN = "#plain"  # without relaxed dot products
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu"]
FOLDERS = {"web": ROOT / "web", "wasm": ROOT / "build" / "wasm", "page": ROOT / "benchmarks"}


class Handler(SimpleHTTPRequestHandler):
    """Serves /FOLDER/FILE for the folders of `places`."""

    extensions_map = {  # noqa: RUF012
        ".js": "text/javascript", ".mjs": "text/javascript", ".html": "text/html",
        ".wasm": "application/wasm", "": "application/octet-stream",
    }  # fmt: skip

    def __init__(self, places: dict[str, Path], *rest: Any) -> None:
        self.places = places
        super().__init__(*rest)

    def translate_path(self, path: str) -> str:
        _, folder, *name = path.split("?")[0].split("/")
        return str(self.places[folder] / name[-1]) if folder in self.places else "/nowhere"

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(places: dict[str, Path]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, places))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    settings = webdriver.ChromeOptions()
    settings.binary_location = shutil.which("chromium") or "chromium"
    for flag in FLAGS:
        settings.add_argument(flag)
    browser = webdriver.Chrome(options=settings, service=Service(shutil.which("chromedriver")))
    browser.set_script_timeout(120)
    yield browser
    browser.quit()


def call(browser: Any, function: str, *values: Any) -> Any:
    script = """const done = arguments[arguments.length - 1], values = [...arguments].slice(0, -1);
        window[values.shift()](...values).then(done, (error) => done({ error: String(error) }))"""
    result = browser.execute_async_script(script, function, *values)
    if isinstance(result, dict) and "error" in result:
        raise SystemExit(f"{function}{values}: {result['error']}")
    return result


def fresh(browser: Any, address: str) -> None:
    browser.get(f"{address}/page/web.html")
    while not browser.execute_script("return window.loaded === true"):
        pass


def zipped(*paths: Path) -> int:
    return sum(len(gzip.compress(path.read_bytes())) for path in paths)


def measure(browser: Any, address: str, name: str, places: dict[str, Path], rounds: int) -> Any:
    network = NETWORKS[name]
    files = [f"{plan}.dbq" for plan in network.plans[:2]]
    forms = [*files, *[f"{file}{PLAIN}" for file in files], "float32.onnx", "int8.onnx"]
    urls = {form: f"{address}/files/{name}-{form}" for form in forms}
    start_up = {}
    for form, url in urls.items():
        fresh(browser, address)
        start_up[form] = call(browser, "start", url, network.pixels)["milliseconds"]
    fresh(browser, address)
    first = {form: call(browser, "start", url, network.pixels) for form, url in urls.items()}
    logits = {form: found["logits"] for form, found in first.items()}
    for file in files:
        if logits[file] != logits[f"{file}{PLAIN}"]:
            raise SystemExit(f"{name}-{file}: relaxed dot products give other logits")
    times: dict[str, list[float]] = {form: [] for form in forms}
    for i in range(rounds):
        for form in forms[i % len(forms) :] + forms[: i % len(forms)]:
            times[form].append(call(browser, "turn", urls[form], TURN))
    agreement = float(np.corrcoef(logits["float32.onnx"], logits["int8.onnx"])[0, 1])
    peers = ["float32.onnx"] + ["int8.onnx"] * (agreement >= network.least_correlation)
    best = min(peers, key=lambda form: statistics.median(times[form]))
    ort = places["ort"]
    ours = zipped(places["wasm"] / "dbq.wasm", places["web"] / "dbq.js")
    theirs = zipped(ort / "ort-wasm-simd-threaded.wasm", ort / "ort.wasm.min.mjs",
                    ort / "ort-wasm-simd-threaded.mjs")  # fmt: skip
    rows = {}
    for form in forms:
        ratios = [peer / own for peer, own in zip(times[best], times[form], strict=True)]
        rows[form] = {
            "milliseconds": round(statistics.median(times[form]), 3),
            "times_best_peer": round(statistics.median(ratios), 2),
            "start_up_milliseconds": round(start_up[form], 1),
            "download_bytes": (ours if ".dbq" in form else theirs)
            + zipped(places["files"] / f"{name}-{form.removesuffix(PLAIN)}"),
            "kernels": first[form]["isa"],
        }
    for file in files:
        rates = [[call(browser, "workers", urls[file], network.pixels, count, 4 * TURN)
                  for count in (1, 2)] for _ in range(3)]  # fmt: skip
        rows[file]["two_workers"] = round(statistics.median(two / one for one, two in rates), 2)
    return {"forms": rows, "best_peer": best, "int8_correlation": round(agreement, 3)}


def main() -> None:
    parser = options(__doc__, files=ROOT / "build" / "engine", rounds=7)
    parser.add_argument("--ort", type=Path, required=True, help="dist/ of npm's onnxruntime-web")
    parser.add_argument("--networks", nargs="+", choices=MEASURED, default=list(MEASURED))
    arguments = parser.parse_args()
    for name in arguments.networks:
        make(name, arguments.files, ("dbq", "onnx"))
    places = {**FOLDERS, "ort": arguments.ort, "files": arguments.files}
    package = json.loads((arguments.ort.parent / "package.json").read_text())
    before = json.loads(OUT.read_text())["networks"] if OUT.exists() else {}
    with served(places) as address, chromium() as browser:
        versions = {
            "onnxruntime-web": package["version"],
            "chromium": browser.capabilities["browserVersion"],
        }
        for name in arguments.networks:
            before[name] = measure(browser, address, name, places, arguments.rounds)
            print(name, json.dumps(before[name]), flush=True)
    ordered = {name: before[name] for name in MEASURED if name in before}
    print(save("web", "python benchmarks/web.py --ort DIST", versions=versions, networks=ordered))


if __name__ == "__main__":
    main()
