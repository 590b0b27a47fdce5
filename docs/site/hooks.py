"""What mkdocs does beyond docs/: reference pages from docstrings, and files of the repository.

Pages link to files outside of docs/ (`../results/cifar10.json`), as GitHub shows them. The site carries
copies of these files, below `files/`, and the pages of the repository's top folder as pages.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
NAMED_BY_FILE = re.compile(r"\[(\w+\.md)\]\((\w+)\.md(#[^)\s]*)?\)")
TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
# The order of the reference. What is in no group comes last.
GROUPS = {
    "Quantize": ("quantize", "prepare", "calibrate", "read_images", "Quantization", "Summary"),
    "Train": ("param_groups", "TemperatureSchedule", "set_progress"),
    "Count": ("cost", "Cost", "branches", "Branches"),
    "Plans": ("load_plan", "search_plan", "Plan", "LayerPlan", "PLANS"),
    "Deploy": ("export", "Exported", "lower", "Program", "save", "load_program", "load", "Net",
               "export_onnx", "export_c"),
    "Networks": ("create_model", "save_pretrained", "from_pretrained"),
    "Errors": ("DbqError",),
}  # fmt: skip


def on_files(files: Any, config: Any) -> Any:
    """Add generated pages, and every file that a page links to."""
    for name in sorted({name for page in ROOT.glob("docs/*.md") for name in _outside(page)}):
        content = (ROOT / name).read_bytes()
        files.append(File.generated(config, _copy(name), content=content))
    made = {"reference.md": reference(), "commands.md": commands()}
    made |= {name.lower(): _from_top(name) for name in TOP}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links into the site; one that GitHub's readers know by the name of its file gets its title."""
    markdown = OUTSIDE.sub(lambda link: f"]({_copy(link[1])}{link[2] or ''})", markdown)
    return NAMED_BY_FILE.sub(
        lambda link: f"[{_title(link[1])}]({link[2]}.md{link[3] or ''})", markdown
    )


def _title(name: str) -> str:
    """What a page is called, up to the colon."""
    path = next((p for p in (ROOT / "docs" / name, ROOT / name) if p.exists()), None)
    heading = path.read_text(encoding="utf-8").splitlines()[0] if path else f"# {name}"
    return heading.removeprefix("# ").partition(":")[0]


def _from_top(name: str) -> str:
    """A page of the top folder, with its links as seen from docs/."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.sub(r"\]\((?:docs/)?([\w/]+\.md)", lambda link: f"]({link[1].lower()}", text)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The theme fetches from elsewhere what lets its search run from disk; ours is in the site."""
    up = "../" * page.url.count("/")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up}site/worker.js")


def on_post_template(output: str, **_: Any) -> str:
    return output.replace("https://unpkg.com/iframe-worker/shim", "site/worker.js")


def _outside(page: Path) -> Iterator[str]:
    yield from (match[1] for match in OUTSIDE.finditer(page.read_text(encoding="utf-8")))


def _copy(name: str) -> str:
    """Where a file of the repository is in the site; Markdown is shown as it is written."""
    if name in TOP:
        return name.lower()
    return f"files/{name}.txt" if name.endswith(".md") else f"files/{name}"


def reference() -> str:
    """Every public name, its signature and its docstring."""
    import dbq

    parts = ["# Python", "Every public name of `dbq`. The examples are tests."]
    grouped = {name for names in GROUPS.values() for name in names}
    others = tuple(sorted(set(dbq.__all__) - {"__version__"} - grouped))
    for group, names in {**GROUPS, **({"Others": others} if others else {})}.items():
        parts.append(f"## {group}")
        for name in names:
            value = getattr(dbq, name)
            parts.append(f"### {name}")
            if inspect.isfunction(value) or inspect.isclass(value):
                parts += [_signature(name, value), _docstring(value)]
                parts += _methods(value) if inspect.isclass(value) else []
            else:
                parts.append(f"`{name}` holds: " + ", ".join(f"`{key}`" for key in value) + ".")
    return "\n\n".join(parts)


def _methods(value: type) -> Iterator[str]:
    """The public methods that a class defines itself and documents."""
    for name, method in vars(value).items():
        if not name.startswith("_") and inspect.isfunction(method) and method.__doc__:
            yield f"#### {value.__name__}.{name}"
            yield _signature(name, method)
            yield _docstring(method)


def _signature(name: str, value: Any) -> str:
    """On one line if it fits, else a line for each parameter. Annotations are written without quotes."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception has none
        return f"```python\n{name}\n```"
    text = f"{name}{signature}"
    if len(text) > 90:
        result = str(signature.replace(parameters=[])).removeprefix("()")
        lines, starred = [], False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and not starred:
                lines.append("    *,")
            starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
            lines.append(f"    {parameter},")
        text = "\n".join([f"{name}(", *lines, f"){result}"])
    text = re.sub(r"<function (\w+) at \w+>", r"\1", text)
    return "```python\n" + re.sub(r"(: |-> )'([^'\n]+)'", r"\1\2", text) + "\n```"


def _docstring(value: Any) -> str:
    """Paragraphs as Markdown; examples, tables and indented parts as they are written."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.getdoc(value) or ""):
        if part.lstrip().startswith(">>>"):
            parts.append(f"```pycon\n{part}\n```")
        elif part.startswith("    "):
            parts.append(f"```text\n{inspect.cleandoc(part)}\n```")
        else:
            parts.append(part.replace("<", "&lt;"))
    return "\n\n".join(parts)


def commands() -> str:
    """The help text of every command."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from dbq.cli.main import app

    def shown(group: Any, path: tuple[str, ...]) -> Iterator[str]:
        for name, command in sorted(group.commands.items()):
            words = (*path, name)
            if hasattr(command, "commands"):
                yield from shown(command, words)
                continue
            text = CliRunner().invoke(app, [*words, "--help"], prog_name="dbq").stdout
            yield f"## dbq {' '.join(words)}\n\n```text\n{text.strip()}\n```"

    return "\n\n".join(["# Commands", *shown(get_command(app), ())])
