"""The pages: links lead somewhere, and files they mention exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dbq.version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dbq"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
# A path starts with a folder of the repository or with a room: `runs/2t` is somebody's own directory.
FOLDERS = {"benchmarks", "docs", "examples", "native", "results", "src", "tests"}
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.S)


def links(text: str) -> list[str]:
    """Targets of the links to other files of the repository."""
    targets: list[str] = re.findall(r"\]\(([^)\s]+)\)", without_code(text))
    return [target for target in targets if "://" not in target]


def paths(text: str) -> list[str]:
    """Files and folders in backticks."""
    quoted: list[str] = re.findall(r"`([\w./*-]+)`", without_code(text))
    starts = FOLDERS | ROOMS
    return [
        path
        for path in quoted
        if path.split("/")[0] in starts and re.search(r"/([\w*-]+\.[\w.]+)?$", path)
    ]


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def missing(path: str) -> bool:
    """`NAME` stands for any name."""
    pattern = path.replace("NAME", "*").rstrip("/")
    return not any(True for base in (ROOT, SOURCE) for _ in base.glob(pattern))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page.read_text()):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    assert [path for path in paths(page.read_text()) if missing(path)] == []


def test_what_is_looked_for() -> None:
    """What the two tests above find in a page, and that they would notice a file that is gone."""
    assert links("[a](b.md#c) ![d](e.png) [f](https://g.org)") == ["b.md#c", "e.png"]
    text = (
        "`native/` `costs/rules.py` `results/*.json` `runs/a/b.py` `a / b` `src/dbq/data/NAME.py`"
    )
    assert paths(text) == ["native/", "costs/rules.py", "results/*.json", "src/dbq/data/NAME.py"]
    assert missing("costs/no_rules.py")
    assert not missing("costs/rules.py")


def test_no_page_mentions_a_path_outside_the_repository() -> None:
    for page in PAGES:
        for path in re.findall(r"(?:\.\./)+[\w./-]+", page.read_text()):
            assert (page.parent / path).resolve().is_relative_to(ROOT), (page, path)


def test_a_tag_is_the_version() -> None:
    """A commit that carries a tag of a release is that release; so do the citation and the changelog."""
    command = ["git", "tag", "--points-at", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tags = [tag for tag in done.stdout.split() if re.fullmatch(r"v\d.*", tag)]
    assert not tags or tags == [f"v{__version__}"]
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text()
