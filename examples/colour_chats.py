"""Chats with exact loss masks; what is trained is shown in green."""

from itertools import groupby

import tokmill

GREEN, PLAIN = "\033[32m", "\033[0m"

chats = tokmill.sft(
    "data_samples/sft/chats.jsonl",
    tokenizer="data_samples/tokenizer",
    output="out/examples/chats",
    max_tokens=2048,
    packing=2048,
)
print(chats)

for number in (4, 12):
    print(f"\nsample {number}, from {chats.origin(number)}")
    for is_trained, tokens in groupby(chats.tokens(number), key=lambda token: token.is_trained):
        text = chats.decode([token.id for token in tokens])
        print(f"{GREEN}{text}{PLAIN}" if is_trained else text, end="")
    print()

# The same in a browser, with the ids on hover. A notebook shows chats.show(5) below its cell.
chats.report("out/examples/chats.html")
print("\nin a browser: out/examples/chats.html")
