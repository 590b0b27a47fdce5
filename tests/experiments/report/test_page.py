"""The page in a real browser: nothing asked of the network, no error, what can be picked works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbq.experiments.report.facts import read_run
from dbq.experiments.report.page import page
from dbq.support.atomic import write_atomically
from tests.browser import HOSTILE, NEEDS_BROWSER, chromium

pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def report(
    two_branches: Path, float_baseline: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    runs = [read_run(two_branches, "two")[0], read_run(float_baseline, HOSTILE)[0]]
    layers = [
        {"name": "blocks.0", "kernel": "table", "microseconds": 12.5, "gmac_per_second": 80.0}
    ]
    bench = {"isa": "avx2", "threads": 1, "milliseconds": 1.25, "layers": layers}
    runs[0] = replace(runs[0], bench=bench)
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_atomically(out, page(runs, "A title with <tags> & more").encode())
    return out


def opened(browser: Any, report: Path, scheme: str = "light", width: int = 1200) -> Any:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(report.as_uri())
    wait(browser, "return document.body.dataset.ready === 'yes'")
    return browser


def wait(browser: Any, script: str) -> None:
    WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(script))


def drawn(browser: Any, place: str) -> int:
    return int(browser.find_element("id", place).get_attribute("data-drawn") or 0)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_it_loads_without_errors_and_without_a_network(
    browser: Any, report: Path, scheme: str, width: int
) -> None:
    browser.get_log("browser"), browser.get_log("performance")  # of pages before
    page = opened(browser, report, scheme, width)
    assert [entry["message"] for entry in page.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events
             if event["method"] == "Network.requestWillBeSent"]  # fmt: skip
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
    for place in ("curves", "temperature", "rate", "costs", "kernels", "ratios", "times"):
        assert drawn(page, place) >= 1, place
        assert page.find_elements("css selector", f"#{place} svg"), place
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, "the page itself does not scroll sideways"


def test_hostile_names_come_out_as_text(browser: Any, report: Path) -> None:
    page = opened(browser, report)
    assert page.title == "A title with <tags> & more"
    names = [e.text for e in page.find_elements("css selector", "#headline th[scope=row]")]
    assert names == ["two", HOSTILE]
    options = [o.get_attribute("value") for o in Select(page.find_element("id", "run")).options]
    assert options == ["two", HOSTILE]
    assert not page.find_elements("css selector", "main img, main b")


def test_the_quantized_run_comes_first(
    browser: Any, two_branches: Path, float_baseline: Path, tmp_path: Path
) -> None:
    """Whatever the order in which runs are given."""
    runs = [read_run(float_baseline, "float")[0], read_run(two_branches, "two")[0]]
    write_atomically(tmp_path / "report.html", page(runs, "title").encode())
    shown = opened(browser, tmp_path / "report.html")
    assert Select(shown.find_element("id", "run")).first_selected_option.text == "two"
    large = [e.text for e in shown.find_elements("css selector", ".tiles .large")]
    assert large[0] == f"{runs[1].result.top1:.2f} %"
    assert len(large) == 3, "nothing was exported, so nothing has a latency"


def test_the_pickers_change_what_is_shown(browser: Any, report: Path) -> None:
    page = opened(browser, report)

    def first_layer() -> str:
        found: str = page.find_element("css selector", "#layers tbody th").text
        return found

    kernels = drawn(page, "kernels")
    layers = Select(page.find_element("id", "layer"))
    layers.select_by_index(2)
    wait(page, f"return Number(document.getElementById('kernels').dataset.drawn) > {kernels}")
    Select(page.find_element("id", "kernel")).select_by_index(1)
    wait(page, f"return Number(document.getElementById('kernels').dataset.drawn) > {kernels + 1}")
    costs = drawn(page, "costs")
    Select(page.find_element("id", "metric")).select_by_value("C_M")
    wait(page, f"return Number(document.getElementById('costs').dataset.drawn) > {costs}")
    assert "C_M" in page.find_element("id", "costs").text

    assert first_layer() == "stem.conv"
    Select(page.find_element("id", "run")).select_by_index(1)
    precisions = {
        e.text for e in page.find_elements("css selector", "#layers tbody td:nth-child(4)")
    }
    assert precisions == {"32b"}
    assert not page.find_element("id", "s-kernels").is_displayed(), "a float network has no levels"
    assert not page.find_element("id", "s-times").is_displayed(), "nor was it benchmarked"


def test_pointing_at_a_run_fades_the_others(browser: Any, report: Path) -> None:
    page = opened(browser, report)
    dots = page.find_elements("css selector", "#curves .mark-symbol.dots_marks path")
    assert {dot.get_attribute("opacity") for dot in dots} == {"1"}
    ActionChains(page).move_to_element(dots[0]).perform()
    wait(page, "return document.querySelectorAll('#curves path[opacity=\"0.1\"]').length > 0")
    assert {dot.get_attribute("opacity") for dot in dots} == {"1", "0.1"}
    shown = page.find_element("id", "vg-tooltip-element").text
    assert "two" in shown, "the tooltip says which run it is"
    assert "undefined" not in shown


def test_the_layer_table_sorts_by_keyboard(browser: Any, report: Path) -> None:
    page = opened(browser, report)

    def shares() -> list[float]:
        cells = page.find_elements("css selector", "#layers tbody td:nth-child(8)")
        return [float(cell.text.rstrip(" %")) for cell in cells]

    assert shares() != sorted(shares(), reverse=True)
    head = page.find_element("css selector", "#layers th[data-key=C_C]")
    head.find_element("css selector", "button").send_keys(Keys.ENTER)
    assert shares() == sorted(shares(), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.find_element("css selector", "button").send_keys(Keys.ENTER)
    assert shares() == sorted(shares())


def test_on_paper_nothing_is_cut_off(browser: Any, report: Path) -> None:
    page = opened(browser, report, width=1200)  # printed after it was drawn for a screen
    size = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    widest = page.execute_script(
        "return Math.max(...[...document.querySelectorAll('.chart svg, table')]"
        ".map((part) => part.getBoundingClientRect().right))"
    )
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert widest <= 720


def test_controls_have_labels_and_text_has_contrast(browser: Any, report: Path) -> None:
    for scheme in ("light", "dark"):
        page = opened(browser, report, scheme)
        for control in page.find_elements("css selector", "select"):
            name = control.get_attribute("id")
            assert page.find_elements("css selector", f"label[for={name}]"), name
        for chart in page.find_elements("css selector", ".chart svg"):
            assert chart.get_attribute("aria-label") or chart.find_elements(
                "css selector", "[aria-label]"
            )
        for selector in ("body", ".note", "#layers td", "#layers th button"):
            ratio = page.execute_script(CONTRAST, selector)
            assert ratio >= 4.5, f"{selector} in {scheme}: {ratio:.2f}, WCAG AA wants 4.5"


# WCAG's relative luminance of the text and of the first background behind it that is not transparent.
CONTRAST = """
const element = document.querySelector(arguments[0]);
const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
let behind = element, paper = [0, 0, 0, 0];
while (behind && paper[3] === 0) {
  paper = numbers(getComputedStyle(behind).backgroundColor);
  if (paper.length === 3) paper.push(1);
  behind = behind.parentElement;
}
const [a, b] = [luminance(numbers(getComputedStyle(element).color)), luminance(paper)];
return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""
