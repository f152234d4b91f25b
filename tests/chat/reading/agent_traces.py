"""Made-up traces of agents, each written in five formats, and as the messages of a template.

The messages are made from the trace itself, by no code of tokmill.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

WORDS = [
    "Paris",
    "天气",
    "naïve",
    "👩‍🔬",
    'say "hi"',
    "a\nb",
    " lead",
    "<|im_end|>",
    "{x}",
    "null",
    "\\",
]
NAMES = ["weather", "search", "read_file", "now"]
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "A city."},
        "type": {"type": "string", "enum": ["STRING", "day"]},
        "days": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city"],
}


@dataclass
class Call:
    id: str
    name: str
    arguments: dict[str, Any]
    result: Any


@dataclass
class Step:
    """A question, or a reply with its calls and their results, which `order` puts into order."""

    question: str = ""
    reasoning: str = ""
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    order: list[int] = field(default_factory=list)


@dataclass
class Trace:
    system: str
    names: list[str]
    steps: list[Step]


def make_trace(seed: int) -> Trace:
    """Return a trace of several questions, each with a few rounds of calls."""
    rng = random.Random(seed)

    def text(most: int = 6) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))

    def value(depth: int = 2) -> Any:
        kinds = ["text", "number", "null"] + (["list", "object"] if depth else [])
        match rng.choice(kinds):
            case "text":
                return text(3)
            case "number":
                return rng.choice([0, -7, 12345678901234567890, 2.5, True])
            case "list":
                return [value(depth - 1) for _ in range(rng.randint(0, 3))]
            case "object":
                return {text(1): value(depth - 1) for _ in range(rng.randint(0, 3))}
        return None

    names = rng.sample(NAMES, rng.randint(1, len(NAMES)))
    steps: list[Step] = []
    n_calls = 0
    for _ in range(rng.randint(1, 3)):
        steps.append(Step(question=text()))
        for _ in range(rng.randint(0, 3)):
            calls = []
            for _ in range(rng.randint(1, 3)):
                n_calls += 1
                # A null of its own would be one that a table has put there: see `table_nulls`.
                arguments = {text(1): value() or 0 for _ in range(rng.randint(0, 3))}
                result = rng.choice([text(), {"r": value()}])
                calls.append(Call(f"call{n_calls:05}", rng.choice(names), arguments, result))
            order = rng.sample(range(len(calls)), len(calls))
            reasoning = text() if rng.random() < 0.7 else ""
            said = text() if rng.random() < 0.5 else ""
            steps.append(Step(reasoning=reasoning, text=said, calls=calls, order=order))
        steps.append(Step(reasoning=text() if rng.random() < 0.7 else "", text=text()))
    return Trace(text() if rng.random() < 0.7 else "", names, steps)


def result_text(result: Any) -> str:
    """Return what a tool returned as the text of its message."""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def as_messages(trace: Trace, *, ids: bool = True, call_texts: bool = True) -> dict[str, Any]:
    """Return the messages and tools that `apply_chat_template` expects.

    `ids`: of calls, and names of results; `call_texts`: texts beside calls.
    """
    messages: list[dict[str, Any]] = []
    if trace.system:
        messages.append({"role": "system", "content": trace.system})
    for step in trace.steps:
        if step.question:
            messages.append({"role": "user", "content": step.question})
            continue
        reply: dict[str, Any] = {"role": "assistant", "content": step.text}
        if step.calls and not call_texts:
            reply["content"] = ""
        if step.reasoning:
            reply["reasoning_content"] = step.reasoning
        if step.calls:
            reply["tool_calls"] = [
                {
                    **({"id": call.id} if ids else {}),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in step.calls
            ]
        messages.append(reply)
        for call in step.calls:
            own = {"tool_call_id": call.id, "name": call.name} if ids else {}
            messages.append({"role": "tool", "content": result_text(call.result), **own})
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": f"A {name}.", "parameters": SCHEMA},
        }
        for name in trace.names
    ]
    return {"messages": messages, "tools": tools}


def as_anthropic(trace: Trace) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for step in trace.steps:
        if step.question:
            asked = {"type": "text", "text": step.question}
            if messages and messages[-1]["role"] == "user":
                messages[-1]["content"].append(asked)
            else:
                messages.append({"role": "user", "content": [asked]})
            continue
        blocks: list[dict[str, Any]] = []
        if step.reasoning:
            blocks.append({"type": "thinking", "thinking": step.reasoning, "signature": "s"})
        if step.text:
            blocks.append({"type": "text", "text": step.text})
        blocks += [
            {"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments}
            for c in step.calls
        ]
        messages.append({"role": "assistant", "content": blocks})
        found = [
            {
                "type": "tool_result",
                "tool_use_id": step.calls[i].id,
                "content": [{"type": "text", "text": result_text(step.calls[i].result)}],
            }
            for i in step.order
        ]
        if found:
            messages.append({"role": "user", "content": found})
    tools = [
        {"name": name, "description": f"A {name}.", "input_schema": SCHEMA} for name in trace.names
    ]
    return {
        "system": [{"type": "text", "text": trace.system}],
        "messages": messages,
        "tools": tools,
    }


def as_responses(trace: Trace) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for step in trace.steps:
        if step.question:
            content: Any = [{"type": "input_text", "text": step.question}]
            items.append({"type": "message", "role": "user", "content": content})
            continue
        if step.reasoning:
            summary = [{"type": "summary_text", "text": step.reasoning}]
            items.append({"type": "reasoning", "id": "rs", "summary": summary})
        if step.text:
            content = [{"type": "output_text", "text": step.text, "annotations": []}]
            items.append({"type": "message", "role": "assistant", "content": content})
        items += [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": json.dumps(call.arguments) if call.arguments else "",
            }
            for call in step.calls
        ]
        items += [
            {
                "type": "function_call_output",
                "call_id": step.calls[i].id,
                "output": result_text(step.calls[i].result),
            }
            for i in step.order
        ]
    tools = [
        {"type": "function", "name": name, "description": f"A {name}.", "parameters": SCHEMA}
        for name in trace.names
    ]
    last = max(i for i, item in enumerate(items) if item.get("role") == "user") + 1
    return {
        "instructions": trace.system or None,
        "input": items[:last],
        "output": items[last:],
        "tools": tools,
    }


def _upper(schema: dict[str, Any]) -> dict[str, Any]:
    upper = {**schema, "type": schema["type"].upper()}
    if "properties" in schema:
        upper["properties"] = {key: _upper(value) for key, value in schema["properties"].items()}
    if "items" in schema:
        upper["items"] = _upper(schema["items"])
    return upper


def as_gemini(trace: Trace) -> dict[str, Any]:
    contents: list[dict[str, Any]] = []
    for step in trace.steps:
        if step.question:
            contents.append({"role": "user", "parts": [{"text": step.question}]})
            continue
        parts: list[dict[str, Any]] = []
        if step.reasoning:
            parts.append({"text": step.reasoning, "thought": True})
        if step.text:
            parts.append({"text": step.text, "thoughtSignature": "s"})
        parts += [
            {"functionCall": {"id": c.id, "name": c.name, "args": c.arguments}} for c in step.calls
        ]
        contents.append({"role": "model", "parts": parts})
        found = [
            {"functionResponse": {"id": c.id, "name": c.name, "response": c.result}}
            for c in (step.calls[i] for i in step.order)
        ]
        if found:
            contents.append({"role": "user", "parts": found})
    declared = [
        {"name": name, "description": f"A {name}.", "parameters": _upper(SCHEMA)}
        for name in trace.names
    ]
    return {
        "systemInstruction": {"parts": [{"text": trace.system}]} if trace.system else None,
        "contents": contents,
        "tools": [{"functionDeclarations": declared}],
    }


def as_sharegpt(trace: Trace) -> dict[str, Any]:
    """Return LLaMA-Factory's form; it has no texts beside calls, and no ids."""
    said: list[dict[str, str]] = []
    for step in trace.steps:
        if step.question:
            said.append({"from": "human", "value": step.question})
            continue
        thought = f"<think>\n{step.reasoning}\n</think>\n\n" if step.reasoning else ""
        calls = [{"name": call.name, "arguments": call.arguments} for call in step.calls]
        if not calls:
            said.append({"from": "gpt", "value": thought + step.text})
            continue
        value = thought + json.dumps(calls, ensure_ascii=False)
        said.append({"from": "function_call", "value": value})
        said += [{"from": "observation", "value": result_text(c.result)} for c in step.calls]
    tools = [
        {"name": name, "description": f"A {name}.", "parameters": SCHEMA} for name in trace.names
    ]
    return {"conversations": said, "system": trace.system, "tools": json.dumps(tools)}


def as_columns(trace: Trace) -> dict[str, Any]:
    """Return messages as an object of lists, with arguments as maps of pairs."""
    record = as_messages(trace)
    messages = record["messages"]
    keys = dict.fromkeys(key for message in messages for key in message)
    columns = {key: [message.get(key) for message in messages] for key in keys}
    for calls in columns.get("tool_calls", ()):
        for call in calls or ():
            function = call["function"]
            call["function"] = {
                **function,
                "arguments": [*map(list, function["arguments"].items())],
            }
    return {"messages": columns, "tools": record["tools"], "images": [None]}


FORMATS = {
    "anthropic": (as_anthropic, {}),
    "responses": (as_responses, {}),
    "gemini": (as_gemini, {}),
    "sharegpt": (as_sharegpt, {"ids": False, "call_texts": False}),
    "columns": (as_columns, {}),
}
"""The writer of each format, and what `as_messages` must leave out beside it."""
