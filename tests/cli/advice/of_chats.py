"""Chats of other shapes, and settings of SFT that do not fit."""

from __future__ import annotations

from tests.cli.advice.case import (
    CHATS,
    STORY,
    Step,
    chat,
    lines,
    sft,
)

LONG = lines(chat(("user", "Who is there?"), ("assistant", STORY * 20)), n=20)


def template(trained: str, *, before: str = "", behind: str = "") -> str:
    """Return a template of which a part of each message is trained."""
    block = f"{{% generation %}}{trained}{{% endgeneration %}}"
    return f"{{% for m in messages %}}{before}{block}{behind}{{% endfor %}}"


TOOLS = chat(("user", "Who is there?"), ("assistant", "A ferry.")) | {
    "tools": [
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}
    ]
}
CHATTED = (
    sft(
        "too long",
        {"a.jsonl": LONG},
        Step("--max-tokens", "--max-tokens 4000"),
        more=" --max-tokens 50",
    ),
    sft(
        "prompts too long",
        {"a.jsonl": CHATS},
        Step("raise --max-prompt-tokens", "--max-prompt-tokens 4000"),
        more=" --max-prompt-tokens 3",
    ),
    sft(
        "too short",
        {"a.jsonl": CHATS},
        Step("--min-tokens", "--min-tokens 2"),
        more=" --min-tokens 5000",
    ),
    sft(
        "untrained",
        {"a.jsonl": lines(chat(("user", "Hi"), ("assistant", "Ho")), n=3)},
        Step("--train", "--train content,reasoning,tool-calls --roles assistant"),
        Step("--roles", "--roles assistant"),
        Step("--turns", "--turns all --roles assistant"),
        more=" --roles system",
    ),
    sft(
        "unknown fields",
        {"a.jsonl": lines({"frage": "Who?", "antwort": STORY}, n=3)},
        Step("--fields=prompt=KEY,completion=KEY", "--fields=prompt=frage,completion=antwort"),
    ),
    sft(
        "unknown roles",
        {"a.jsonl": lines(chat(("kunde", "Who?"), ("laden", STORY)), n=3)},
        "--role-names=kunde=user,laden=assistant",
    ),
    sft(
        "system answers",
        {"a.jsonl": lines(chat(("user", "Who?"), ("system", STORY)), n=3)},
        "--role-names=system=assistant",
    ),
    sft(
        "single messages", {"a.jsonl": lines({"role": "user", "text": STORY}, n=3)}, "--schema=text"
    ),
    sft(
        "rendered",
        {
            "a.jsonl": lines(
                {
                    "text": "<|im_start|>user\nWho?<|im_end|>\n"
                    "<|im_start|>assistant\nA dog.<|im_end|>\n"
                },
                n=3,
            )
        },
        "--rendered-text=parse",
        "--rendered-text=text",
        Step(
            "tokmill pretrain --control-tokens-in-text=parse",
            "tokmill pretrain a.jsonl -t CHAT -o out --control-tokens-in-text=parse",
        ),
    ),
    sft(
        "wrong field",
        {"a.jsonl": CHATS},
        Step("--fields=messages=turns", "--fields=messages=messages"),
        more=" --fields=messages=turns",
    ),
    sft(
        "preferences",
        {"a.jsonl": lines({"prompt": "Who?", "chosen": STORY, "rejected": "None."}, n=3)},
        "--fields=completion=chosen",
    ),
    sft(
        "preferences beside",
        {
            "a.jsonl": lines(
                {"prompt": "Who?", "completion": STORY, "chosen": STORY, "rejected": "None."}, n=3
            )
        },
        "--ignore-keys=chosen,rejected",
    ),
    sft(
        "good and bad",
        {"a.jsonl": lines({"prompt": "Who?", "completion": STORY, "label": True}, n=3)},
        "--ignore-keys=label",
    ),
    sft(
        "two schemas",
        {"a.jsonl": CHATS + lines({"prompt": "Who?", "completion": STORY}, n=20)},
        "--schema mixed",
        more=" --schema messages",
    ),
    sft(
        "history",
        {"a.jsonl": lines({"prompt": "Who?", "completion": STORY, "history": "an essay"}, n=3)},
        "--ignore-keys history",
    ),
    sft(
        "one role",
        {"a.jsonl": CHATS + lines(chat(("pilot", "Who?"), ("assistant", STORY)), n=20)},
        Step("--role-names pilot=ROLE", "--role-names pilot=user"),
    ),
    sft(
        "flags of another trainer",
        {
            "a.jsonl": lines(
                {
                    "messages": [
                        {"role": "user", "content": "Who?"},
                        {"role": "assistant", "content": STORY, "trainable": True},
                        {"role": "user", "content": "No."},
                        {"role": "assistant", "content": "Yes.", "trainable": False},
                    ]
                },
                n=3,
            )
        },
        "--fields=masked=trainable",
        "--fields=weight=trainable",
        "--ignore-keys=trainable",
    ),
    sft(
        "flags of another meaning",
        {
            "a.jsonl": lines(
                {
                    "messages": [
                        {"role": "user", "content": "Who?", "edited": False},
                        {"role": "assistant", "content": STORY, "edited": True},
                    ]
                },
                n=3,
            )
        },
        Step("--fields=weight=KEY", "tokmill sft a.jsonl -t CHAT -o new --fields=weight=edited"),
    ),
    sft(
        "images",
        {
            "a.jsonl": lines(
                chat(("user", "Who?"), ("assistant", STORY)) | {"images": ["a.png"]}, n=3
            )
        },
        "--ignore-keys images",
    ),
    sft(
        "rows",
        {"a.jsonl": CHATS},
        Step("--max-tokens to 64 or less", "--max-tokens 64"),
        more=" --packing 64 --max-tokens 100",
    ),
    sft(
        "two kinds",
        {"a.jsonl": CHATS, "b.jsonl": lines({"frage": "Who?", "antwort": STORY}, n=3)},
        Step(
            '--source=\'paths = ["b.jsonl"], fields = {prompt = "KEY", completion = "KEY"}\'',
            'tokmill sft a.jsonl -t CHAT -o out --source=\'paths = ["b.jsonl"], '
            'fields = {prompt = "frage", completion = "antwort"}\'',
        ),
        more=" b.jsonl",
    ),
    sft(
        "short rows",
        {"a.jsonl": CHATS},
        Step("--min-tokens to 64 or less", "--min-tokens 4"),
        Step("--packing", "--packing 512 --min-tokens 20"),
        more=" --packing 64 --min-tokens 100",
    ),
    sft(
        "window of one",
        {"a.jsonl": CHATS},
        Step("--max-tokens", "--max-tokens 64"),
        more=" --too-long window --max-tokens 1",
    ),
    sft(
        "overlap",
        {"a.jsonl": CHATS},
        Step("--max-tokens", "--max-tokens 64"),
        Step("--window-overlap", "--window-overlap 4"),
        more=" --too-long window --max-tokens 8 --window-overlap 9",
    ),
    sft(
        "rows in files",
        {"a.jsonl": CHATS},
        Step("--packing", "--packing 512"),
        Step("--packed-rows", "tokmill sft a.jsonl -t CHAT -o out"),
        more=" --packed-rows",
    ),
    sft(
        "no ends",
        {
            "a.jsonl": CHATS,
            "t.jinja": template("{{ m.content }}", behind="\n"),
        },
        "--train=+eos",
        "--train=-eot",
        more=" --template t.jinja",
    ),
    sft(
        "tools are not written",
        {
            "a.jsonl": lines(TOOLS, n=20),
            "t.jinja": template("{{ m.content }}{{ eos_token }}", behind="\n"),
        },
        Step("--template", "--template chatml"),
        Step("--ignore-keys=tool_calls", "--ignore-keys=tools"),
        more=" --template t.jinja",
    ),
    sft(
        "a role ends a turn",
        {
            "a.jsonl": lines(
                chat(
                    ("user", "Who?"), ("assistant", STORY), ("user", "No."), ("assistant", "Yes.")
                ),
                n=20,
            ),
            "t.jinja": template("{{ m.content }}", before="<|im_start|>{{ m.role }}\n")
            + "<|im_start|>",
        },
        "--train=+next-role",
        more=" --template t.jinja",
    ),
)
