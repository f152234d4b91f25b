"""Writes the tables of docs/settings.md: every setting with its default and its help.

    python -m bench.settings_page

The text between `<!-- settings: begin -->` and `<!-- settings: end -->` is replaced. A test
compares it with the code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokmill.cli.options import default_text
from tokmill.settings.names import Setting, schema

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
_BEGIN, _END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
_COMMANDS = {
    "render": "pretrain",
    "sft": "sft",
    "model": "bill",
    "training": "bill",
    "inference": "bill",
}


def main() -> int:
    """Write the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def rewritten(page: str) -> str:
    """Return the page with the tables as the code has them."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{_tables()}{_END}{after}"


def _tables() -> str:
    lines = []
    for section, settings in schema().items():
        of = _COMMANDS.get(section, "pretrain and sft")
        lines += [
            f"### [{section}], of {of}",
            "",
            "| key | option | default | meaning |",
            "|---|---|---|---|",
        ]
        for setting in settings.values():
            option = "INPUT" if setting.name == "paths" else setting.option
            option = "" if setting.metadata.get("is_hidden") else f"`{option}`"
            meaning = " ".join(_help(setting).split())
            cells = (f"`{setting.name}`", option, default_text(setting), meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _help(setting: Setting) -> str:
    """Return the help of a setting and its choices; what looks like HTML is code."""
    text: str = setting.metadata["help"].replace("<", "&lt;").replace("*", "\\*")
    choices = [choice for choice in setting.metadata.get("choices", ()) if choice]
    return f"{text} One of {', '.join(choices)}." if choices else text


if __name__ == "__main__":
    sys.exit(main())
