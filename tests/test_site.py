"""The documentation as a site: it builds strictly, is complete, and asks nobody for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dbq

pytest.importorskip("material", reason="mkdocs-material is not installed")
pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_and_every_public_name_is_there(site: Path) -> None:
    for page in ROOT.glob("docs/*.md"):
        assert (site / f"{page.stem}.html").exists(), page
    reference = (site / "reference.html").read_text()
    for name in set(dbq.__all__) - {"__version__"}:
        assert f">{name}<" in reference, name
    assert "dbq quantize" in (site / "commands.html").read_text()


def test_links_and_pictures_lead_to_files_of_the_site(site: Path) -> None:
    for page in site.glob("*.html"):
        if page.name == "404.html":  # written for a server
            continue
        for link in re.findall(r'(?:src|href)="([^"#?]+)', page.read_text()):
            assert "://" in link or link.startswith("mailto:") or (site / link).exists(), (
                page,
                link,
            )


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(https?:[^"]*)"', text)
        assert [url for url in loaded if 'rel="canonical"' not in url] == [], page
