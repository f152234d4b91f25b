"""A renderer of one's own: a function that turns a record into text, or leaves it out."""

from typing import Any

import tokmill


def article(record: dict[str, Any]) -> str | None:
    """Return an article as Markdown; None leaves a record without sections out."""
    sections = record.get("sections") or []
    if not sections:
        return None
    parts = [f"# {record.get('title') or 'Untitled'}", record.get("summary") or ""]
    for section in sections:
        parts += [f"## {section.get('title') or ''}", section.get("content") or ""]
    return "\n\n".join(part for part in parts if part)


dataset = tokmill.pretrain(
    "data_samples/records.jsonl",
    tokenizer="data_samples/tokenizer",
    output="out/examples/markdown",
    renderer=article,
    workers=1,
)
print(dataset)
print(dataset.text(3))
