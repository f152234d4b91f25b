from __future__ import annotations

import pytest

CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role + '\n' + message.content }}<|im_end|>"
    "{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMS = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}"
    "<|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
LAST_IS_OTHER = (
    "{% for message in messages %}<|im_start|>{{ message.role + '\n' }}"
    "{% if message.role == 'assistant' %}{% set content = message.content %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{% generation %}{% if loop.last %}{{ '<think>\n\n</think>\n\n' + content.lstrip('\n') }}"
    "{% else %}{{ content }}{% endif %}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN_TEXT = (
    "{% for message in messages %}{% if message.role == 'user' %}USER: {{ message.content }} "
    "ASSISTANT:{% elif message.role == 'assistant' %} {{ message.content }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)
ALTERNATES = (
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<|user_start|>' if message.role == 'user' else '<|assistant_start|>' }}"
    "{{ message.content.strip() }}"
    "{{ '<|user_end|>' if message.role == 'user' else '<|assistant_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant_start|>{% endif %}"
)
SOURCES = {
    "chatml": CHATML,
    "trims": TRIMS,
    "last is other": LAST_IS_OTHER,
    "plain text": PLAIN_TEXT,
    "alternates": ALTERNATES,
}


@pytest.fixture(scope="session", params=sorted(SOURCES))
def source(request: pytest.FixtureRequest) -> str:
    """Give the source of one of several templates."""
    found: str = SOURCES[request.param]
    return found


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """Give the sources of several templates by name."""
    return SOURCES
