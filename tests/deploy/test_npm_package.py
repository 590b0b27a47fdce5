"""The npm package: what `npm pack` makes runs in Node and in workers of a browser; its types hold."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dbq.deploy.engine import load
from dbq.deploy.tensors import Shape
from tests.browser import NEEDS_BROWSER, chromium
from tests.deploy.test_page import classifier, images
from tests.native.programs import BUILD

WEB = BUILD.parent / "web"
WASM = BUILD / "wasm" / "dbq.wasm"
LARGEST = 150_000  # bytes, compressed: what a page loads before a network
SIDE = 24
pytestmark = pytest.mark.skipif(
    not WASM.exists(), reason=f"{WASM} is not built: `make native` builds it with ziglang"
)

USE = """
import { load, DbqError, type Class, type Layer } from "dbq-web";

const net = await load(new URL("net.dbq", "https://example.org"), { relaxed: false });
const logits: Float32Array = net.run(new Uint8Array(net.input.height * net.input.width));
const best: Class[] = net.best(logits, 3);
const kernels: string[] = net.layers().map((layer: Layer) => layer.kernel);
// TypeScript before 5.0 has no OffscreenCanvas; the package must work with both.
type Known<C> = { OffscreenCanvas: new (...size: any[]) => C };
type Canvas = typeof globalThis extends Known<infer C> ? C : HTMLCanvasElement;
declare const canvas: Canvas;
const seen: Promise<Class[]> = net.classify(canvas);
// @ts-expect-error: a string is no image
net.classify("cat.png");
console.log(best[0]?.name, kernels, seen, new DbqError("text").message, net.outputs[0]?.shape[2]);
// @ts-expect-error: numbers are not bytes
net.run([1, 2, 3]);
// @ts-expect-error: networks come from load
net.name = "another";
"""
WORKER = """
import { load } from "/package/dbq.js";

onmessage = async ({ data: { relaxed, pixels, side } }) => {
  const net = await load("/net.dbq", { relaxed });
  const rgba = new ImageData(side, side);
  for (let i = 0; i < side * side; ++i) rgba.data.set([...pixels.slice(3 * i, 3 * i + 3), 255], 4 * i);
  const best = await net.classify(await createImageBitmap(rgba));
  const logits = Array.from(net.run(Uint8Array.from(pixels)));
  postMessage({ isa: net.isa, logits, best: best[0].index });
};
"""
ASK = """
const [relaxed, pixels, side, done] = arguments;
const worker = new Worker("/worker.js", { type: "module" });
worker.onmessage = ({ data }) => (worker.terminate(), done(data));
worker.onerror = (event) => done({ error: event.message ?? "the worker did not start" });
worker.postMessage({ relaxed, pixels, side });
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `npm pack` made, installed as node_modules/dbq-web, and a network."""
    npm = shutil.which("npm")
    if not npm:
        pytest.skip("npm is not installed")
    here = tmp_path_factory.mktemp("npm")
    shutil.copytree(WEB, here / "web", ignore=shutil.ignore_patterns("dbq.wasm"))
    (here / "build" / "wasm").mkdir(parents=True)
    shutil.copy(WASM, here / "build" / "wasm")
    subprocess.run([npm, "pack", "--offline"], cwd=here / "web", check=True, capture_output=True)
    (archive,) = (here / "web").glob("dbq-web-*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(here, filter="data")
    (here / "node_modules").mkdir()
    (here / "node_modules" / "dbq-web").symlink_to(here / "package")
    (here / "net.dbq").write_bytes(classifier(Shape(3, SIDE, SIDE), list("abcdefghij")))
    return here


def expected(package: Path) -> tuple[list[int], list[float]]:
    """The bytes of an image, and its logits by libdbq."""
    image = images(1, (SIDE, SIDE, 3))[0]
    with load(package / "net.dbq") as net:
        return image.ravel().tolist(), net(image)[0].tolist()


def test_what_is_packed(package: Path) -> None:
    names = {path.name for path in (package / "package").iterdir()}
    assert names == {"dbq.js", "dbq.d.ts", "dbq.wasm", "package.json"}


def test_a_page_loads_little(package: Path) -> None:
    loaded = [package / "package" / name for name in ("dbq.js", "dbq.wasm")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in loaded) <= LARGEST


def test_it_is_imported_by_its_name_in_node(package: Path) -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not installed")
    pixels, logits = expected(package)
    script = f"""
        import {{ load }} from "dbq-web";
        import {{ readFile }} from "node:fs/promises";
        const net = await load(await readFile("net.dbq"));
        console.log(JSON.stringify(Array.from(net.run(Uint8Array.from({pixels})))));"""
    (package / "run.mjs").write_text(script)
    said = subprocess.run([node, "run.mjs"], cwd=package, check=True, capture_output=True).stdout
    np.testing.assert_array_equal(
        np.array(json.loads(said), np.float32), np.array(logits, np.float32)
    )


def test_types_are_what_typescript_takes(package: Path) -> None:
    tsc = shutil.which("tsc")
    if not tsc:
        pytest.skip("tsc is not installed: Debian's node-typescript, or npm install -g typescript")
    (package / "package.json").write_text('{"type": "module"}')
    (package / "use.ts").write_text(USE)
    command = [tsc, "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext",
               "--lib", "es2022,dom", "--moduleResolution", "nodenext", "use.ts"]  # fmt: skip
    result = subprocess.run(command, cwd=package, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


class Handler(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        ".js": "text/javascript", ".html": "text/html", "": "application/octet-stream",
    }  # fmt: skip

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def browser(package: Path) -> Iterator[Any]:
    (package / "worker.js").write_text(WORKER)
    (package / "index.html").write_text("<!doctype html><link rel=icon href=data:,>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(package)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with chromium() as driver:
        driver.set_script_timeout(60)
        driver.get(f"http://127.0.0.1:{server.server_port}/index.html")
        yield driver
    server.shutdown()
    server.server_close()


@NEEDS_BROWSER[0]
@NEEDS_BROWSER[1]
@pytest.mark.parametrize("relaxed", [False, True])
def test_a_worker_of_a_browser(relaxed: bool, package: Path, browser: Any) -> None:
    pixels, logits = expected(package)
    found = browser.execute_async_script(ASK, relaxed, pixels, SIDE)
    assert "error" not in found, found
    np.testing.assert_array_equal(
        np.array(found["logits"], np.float32), np.array(logits, np.float32)
    )
    assert found["best"] == int(np.argmax(logits))
    # With relaxed dot products, kernels are named after what the processor makes of them.
    kinds = {"wasm", "wasm-relaxed", "wasm-dot"} if relaxed else {"wasm"}
    assert found["isa"] in kinds
    assert browser.get_log("browser") == []
