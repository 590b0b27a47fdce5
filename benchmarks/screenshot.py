"""docs/report.png: a screenshot of the report that `make demo` writes.

python benchmarks/screenshot.py [PAGE]

Needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait
from tabular import ROOT

WIDTH, HEIGHT = 1100, 1500
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync"
)


def main() -> None:
    page = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "runs" / "demo" / "report.html")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (page.exists() and browser and driver):
        sys.exit(f"needs {page} (make demo), chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS.split(), f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=Service(driver)) as chrome:
        chrome.get(page.resolve().as_uri())
        ready = "return document.body.dataset.ready === 'yes'"
        WebDriverWait(chrome, 30).until(lambda c: c.execute_script(ready))
        chrome.save_screenshot(str(ROOT / "docs" / "report.png"))


if __name__ == "__main__":
    main()
