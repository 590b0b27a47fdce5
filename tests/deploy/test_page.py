"""The page of a network in a real browser: what it computes, every way in, and what it survives."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import write_program
from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.page.page import page_of, write_page
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Window
from dbq.errors import DataError, FileFormatError
from tests.browser import HOSTILE, NEEDS_BROWSER, chromium
from tests.native.handmade import Dice
from tests.native.programs import BUILD

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

WASM = BUILD / "wasm" / "dbq.wasm"
pytestmark = [
    *NEEDS_BROWSER,
    pytest.mark.skipif(
        not WASM.exists(), reason=f"{WASM} is not built: `make native` builds it with ziglang"
    ),
]
CAMERA = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
SIDE = 24


def classifier(image: Shape, classes: list[str]) -> bytes:
    """A file: one joined layer, one of 8 bits, and the mean of all pixels; random weights."""
    dice = Dice(3, image)
    window = Window((3, 3), (1, 1), (1, 1))
    wide = image._replace(channels=32)
    first = dice.result("u8", wide, 1, 2000)
    codes = dice.codes(2, 32, image.channels, window, None)
    factors = np.array([[3, 2]] * 32, np.uint8)
    dice.operations.append(Convolution("first", (first,), 0, window, 1, codes, None, factors))
    second = dice.result("i8", image._replace(channels=len(classes)), 1, 10_000)
    codes = dice.codes(1, len(classes), 32, Window((1, 1)), 8)
    dice.operations.append(Convolution("second", (second,), 1, Window((1, 1)), 1, codes, 8))
    logits = dice.result("f32", Shape(len(classes), 1, 1), 1, 1000)
    whole = Window((image.height, image.width))
    dice.operations.append(AveragePool("mean", (logits,), second.tensor, whole))
    program = Program(
        "a network", tuple(dice.tensors), tuple(dice.operations), (Output(logits.tensor),)
    )
    return write_program(program.with_facts(classes=classes))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium(*CAMERA) as driver:
        yield driver


@pytest.fixture(scope="module")
def colour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network for colour images, with hostile class names."""
    path = tmp_path_factory.mktemp("colour") / "net.dbq"
    path.write_bytes(classifier(Shape(3, SIDE, SIDE), [HOSTILE, *"abcdefghi"]))
    return path


@pytest.fixture(scope="module")
def grey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grey") / "net.dbq"
    path.write_bytes(classifier(Shape(1, 16, 16), list("0123456789")))
    return path


def opened(browser: Any, network: Path, labels: Path | None = None) -> Any:
    page = network.with_suffix(".html")
    write_page(network, page, labels)
    return opened_file(browser, page)


def opened_file(browser: Any, page: Path) -> Any:
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(page.as_uri())
    browser.execute_async_script("dbqPage.ready.then(arguments[0])")
    return browser


def check_silence(browser: Any, page: Path) -> None:
    """Nothing was printed, and nothing but the page itself was asked for."""
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    local = ("data:", "blob:")
    assert [url for url in asked if not url.startswith(local)] == [page.as_uri()]


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    return file.getvalue()


def images(count: int, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(5).integers(0, 256, (count, *shape), dtype=np.uint8)


def shown(browser: Any, before: Any = None) -> list[float]:
    """The logits that the page shows, once there are other ones than `before`."""
    script = "return window.dbqPage.logits ? Array.from(window.dbqPage.logits) : null"
    WebDriverWait(browser, 120).until(lambda b: b.execute_script(script) not in (None, before))
    return list(browser.execute_script(script))


def message(browser: Any) -> str:
    script = "return document.getElementById('message').textContent"
    WebDriverWait(browser, 60).until(lambda b: b.execute_script(script))
    return str(browser.execute_script(script))


def classes(browser: Any) -> list[str]:
    items = browser.find_elements("css selector", "#classes .what")
    return [item.get_property("textContent") for item in items]


def hand_over(browser: Any, event: str, name: str, content: bytes) -> None:
    """A file that is dropped or pasted."""
    script = """
        const [kind, name, content] = arguments, transfer = new DataTransfer();
        const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
        transfer.items.add(new File([bytes], name, { type: "image/png" }));
        const dropped = { dataTransfer: transfer, bubbles: true, cancelable: true };
        const pasted = { clipboardData: transfer, bubbles: true };
        document.getElementById("drop").dispatchEvent(
            kind === "drop" ? new DragEvent(kind, dropped) : new ClipboardEvent(kind, pasted));"""
    browser.execute_script(script, event, name, base64.b64encode(content).decode())


def test_logits_are_those_of_the_library(browser: Any, colour: Path, tmp_path: Path) -> None:
    opened(browser, colour)
    pixels = images(10, (SIDE, SIDE, 3))
    with load(colour) as net:
        expected = net(pixels)
    before = None
    for i, image in enumerate(pixels):
        (tmp_path / f"{i}.png").write_bytes(png(image))
        browser.find_element("id", "file").send_keys(str(tmp_path / f"{i}.png"))
        before = shown(browser, before)
        np.testing.assert_array_equal(np.array(before, np.float32), expected[i])
    assert len(classes(browser)) == 5
    check_silence(browser, colour.with_suffix(".html"))


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_images_that_are_dropped_or_pasted(event: str, browser: Any, colour: Path) -> None:
    opened(browser, colour)
    image = images(1, (SIDE, SIDE, 3))[0]
    hand_over(browser, event, "image.png", png(image))
    with load(colour) as net:
        np.testing.assert_array_equal(np.array(shown(browser), np.float32), net(image)[0])
    check_silence(browser, colour.with_suffix(".html"))


def test_a_drawing(browser: Any, grey: Path) -> None:
    opened(browser, grey)
    pad = browser.find_element("id", "pad")
    ActionChains(browser).move_to_element_with_offset(pad, 0, -80).click_and_hold().move_by_offset(
        0, 160
    ).release().perform()
    logits = shown(browser)
    seen = np.array(browser.execute_script("return Array.from(dbqPage.pixels)"), np.uint8)
    seen = seen.reshape(16, 16, 1)
    assert seen[8, 8] > 127 > seen[8, 0], "a line down the middle"
    with load(grey) as net:
        np.testing.assert_array_equal(np.array(logits, np.float32), net(seen)[0])
    browser.find_element("id", "clear").click()
    assert classes(browser) == []
    check_silence(browser, grey.with_suffix(".html"))


@pytest.mark.parametrize("draw", [False, True])
def test_colour_images_are_drawn_on_request(draw: bool, browser: Any, colour: Path) -> None:
    out = colour.with_name(f"draw-{draw}.html")
    write_page(colour, out, draw=draw)
    assert opened_file(browser, out).find_element("id", "pad").is_displayed() is draw


def test_the_camera(browser: Any, colour: Path) -> None:
    opened(browser, colour)
    browser.find_element("id", "camera").click()
    assert len(shown(browser)) == 10
    browser.find_element("id", "camera").click()
    assert browser.get_log("browser") == []


def test_names_of_classes_stay_text(browser: Any, colour: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join([HOSTILE] * 10))
    opened(browser, colour, labels)
    hand_over(browser, "drop", "image.png", png(images(1, (SIDE, SIDE, 3))[0]))
    shown(browser)
    assert classes(browser) == [HOSTILE] * 5
    assert browser.title != "broken"
    assert not browser.find_elements("tag name", "img")
    check_silence(browser, colour.with_suffix(".html"))


def test_a_damaged_network_is_named(browser: Any, colour: Path, tmp_path: Path) -> None:
    content = bytearray(colour.read_bytes())
    content[-1] ^= 1
    page = tmp_path / "page.html"
    page.write_text(page_of(bytes(content), "damaged"))
    opened_file(browser, page)
    assert "checksum" in message(browser)
    assert "copy or export it again" in message(browser)
    check_silence(browser, page)


def test_what_is_not_an_image_is_named(browser: Any, colour: Path) -> None:
    opened(browser, colour)
    hand_over(browser, "drop", "letter.png", b"not an image")
    assert message(browser) == "letter.png is not an image that this browser can read"


def test_an_image_of_fifty_million_pixels(browser: Any, colour: Path, tmp_path: Path) -> None:
    opened(browser, colour)
    Image.new("1", (10_000, 5_000), 1).save(tmp_path / "large.png")
    browser.find_element("id", "file").send_keys(str(tmp_path / "large.png"))
    logits = shown(browser)
    with load(colour) as net:
        white = np.full((SIDE, SIDE, 3), 255, np.uint8)
        np.testing.assert_array_equal(np.array(logits, np.float32), net(white)[0])


def test_a_page_is_refused_where_it_could_not_work(colour: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("one\ntwo\n")
    with pytest.raises(DataError, match="2 lines, expected a name for each of 10 classes"):
        write_page(colour, tmp_path / "page.html", labels)
    damaged = tmp_path / "damaged.dbq"
    damaged.write_bytes(colour.read_bytes()[:-1])
    with pytest.raises(FileFormatError):
        write_page(damaged, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
