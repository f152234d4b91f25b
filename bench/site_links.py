"""What the site of mkdocs needs beside mkdocs.yml: pages made from code, links out of docs/.

A hook of mkdocs, see mkdocs.yml. The pages are those of `bench.pages`. A link such as
`../CONTRIBUTING.md` works on GitHub as it is; here it leads to `repository/CONTRIBUTING.md`, a
page, and a link to source code to its text.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING, Any

from bench.pages import built, settings_tables, with_block

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FOLDER = "repository"
SETTINGS = "settings.md"
FRONT = {"README.md": "index.md"}
"""Files whose place on the site is a page of docs/."""

_LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the pages made from code, the files outside of docs/ that pages link to, and theirs."""
    from mkdocs.structure.files import File

    new = [file.src_uri for file in files.documentation_pages()]
    for path, text in built().items():
        files.append(File.generated(config, path, content=text))
    seen: set[str] = set()
    while new:
        page = new.pop()
        for path in outside(page, _text(page)):
            if path in seen:
                continue
            seen.add(path)
            source = str(ROOT / path)
            files.append(File.generated(config, site_path(path), abs_src_path=source))
            if path.endswith(".md"):
                new.append(site_path(path))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with its tables, and with links to files outside of docs/ that hold."""
    if page.file.src_uri == SETTINGS:
        markdown = with_block(markdown, "settings", settings_tables())
    return rewritten(page.file.src_uri, markdown)


def on_page_content(html: str, **_: Any) -> str:
    r"""Return a page whose tables show `\|` in code as GitHub does, without the backslash."""
    return _CELL.sub(lambda cell: cell[0].replace(r"\|", "|"), html)


def site_path(path: str) -> str:
    """Return where a file of the repository is on the site."""
    if path in FRONT:
        return FRONT[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    ending = "" if path.endswith(".md") else ".txt"  # a browser shows it, and does not save it
    return f"{FOLDER}/{path}{ending}"


def outside(page: str, markdown: str) -> Iterator[str]:
    """Yield the files outside of docs/ that a page of the site links to."""
    for _, link, _ in _LINK.findall(_FENCE.sub("", markdown)):
        path = _repository_path(page, link)
        if site_path(path).startswith(FOLDER) and (ROOT / path).is_file():
            yield path


def rewritten(page: str, markdown: str) -> str:
    """Return a page of the site with links that hold there."""

    def link(found: re.Match[str]) -> str:
        path = _repository_path(page, found[2])
        if not (ROOT / path).is_file():
            return found[0]
        here = PurePosixPath(page).parent.as_posix()
        return f"{found[1]}{relpath(site_path(path), here)}{found[3]}"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def _repository_path(page: str, link: str) -> str:
    """Return what a link of a page of the site leads to, relative to the repository."""
    return normpath(PurePosixPath(_source(page)).parent.joinpath(link).as_posix())


def _source(page: str) -> str:
    inside = page.removeprefix(f"{FOLDER}/")
    return inside if inside != page else f"docs/{page}"


def _text(page: str) -> str:
    return (ROOT / _source(page)).read_text(encoding="utf-8")
