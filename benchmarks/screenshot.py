"""docs/report.png and docs/page.png: the report and the drawing page that `make demo` writes.

python benchmarks/screenshot.py [DIRECTORY]

Needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait
from tabular import ROOT

from dbq.experiments.demo import PAGE, REPORT

WIDTH, HEIGHT, PAGE_HEIGHT = 1100, 1500, 960
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync"
)
# A three, in pixels of the pad from its middle: two bows.
THREE = [
    (-50, -80),
    (20, -95),
    (55, -60),
    (25, -15),
    (-15, -5),
    (30, 10),
    (60, 50),
    (20, 95),
    (-55, 80),
]


def report(chrome: Any, page: Path) -> None:
    chrome.set_window_size(WIDTH, HEIGHT)
    chrome.get(page.resolve().as_uri())
    ready = "return document.body.dataset.ready === 'yes'"
    WebDriverWait(chrome, 30).until(lambda c: c.execute_script(ready))


def drawing(chrome: Any, page: Path) -> None:
    chrome.set_window_size(WIDTH, PAGE_HEIGHT)
    chrome.get(page.resolve().as_uri())
    chrome.execute_async_script("dbqPage.ready.then(arguments[0])")
    pen = ActionChains(chrome, duration=20)
    pad = chrome.find_element("id", "pad")
    pen.move_to_element_with_offset(pad, *THREE[0]).click_and_hold()
    for point in THREE[1:]:
        pen.move_to_element_with_offset(pad, *point)
    pen.release().perform()
    named = "return document.querySelectorAll('#classes .what').length > 0"
    WebDriverWait(chrome, 30).until(lambda c: c.execute_script(named))


def main() -> None:
    demo = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "runs" / "demo")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not ((demo / PAGE).exists() and browser and driver):
        sys.exit(f"needs {demo / PAGE} (make native demo), chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS.split():
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=Service(driver)) as chrome:
        report(chrome, demo / REPORT)
        chrome.save_screenshot(str(ROOT / "docs" / "report.png"))
        drawing(chrome, demo / PAGE)
        chrome.save_screenshot(str(ROOT / "docs" / "page.png"))


if __name__ == "__main__":
    main()
