"""Markdown pages as tests read them: fenced blocks, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n\n?|^<!-- needs: (?P<package>\w+) -->\n\n?"
    r"|^`(?P<file>[\w./-]+)`:?\n\n?)?"
    r"^```(?P<language>\w*) ?(?P<needs>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"^(?:tokmill|make|pip|python3?|[A-Z_]+=\S+) ")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    `reason`: of the comment `<!-- not run: REASON -->` before it. `package`: of the comment
    `<!-- needs: PACKAGE -->` before a block that uses what this package has made. `file`: the name
    in backticks on a line of its own before it: the block is the content of this file. `line`: of
    the page.
    """

    language: str
    needs: str
    text: str
    reason: str
    package: str
    file: str
    line: int

    def commands(self) -> list[str]:
        """Return the shell commands of a block without a language, continued lines joined."""
        if self.language not in ("", "console", "sh", "bash"):
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.split("  #")[0].strip() for line in lines if _COMMAND.match(line)]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    return blocks_of(read(page))


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            found["language"],
            found["needs"],
            found["text"],
            found["reason"] or "",
            found["package"] or "",
            found["file"] or "",
            text.count("\n", 0, found.start("language")) + 1,
        )
        for found in _BLOCK.finditer(text)
    ]


def links(page: str) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", read(page)))


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = _HEADING.findall(_BLOCK.sub("", text))
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {text.replace(" ", "-") for text in words}
