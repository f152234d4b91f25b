"""gzip of text made of digits, commas and line ends: four bits a character, from NumPy alone.

zlib takes 110 ns for a line of two numbers of ten digits, four times as long as writing the line.
Its Huffman codes for such text have three or four bits. Here all have four, so that a character is
half a byte, and packing is a look-up and a shift. Any gzip reader reads it: RFC 1951, section
3.2.7, and RFC 1952.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache

import numpy as np

_START = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Magic, deflate, no flags, no time, no extra flags, unknown system."""

_CHARACTERS = b"\n,0123456789:;<"
"""The characters that have a code, ascending. The last three are never written: with the end of the
block there are 16 codes of four bits, as a complete Huffman code needs."""

_END_OF_BLOCK = 15


def member(text: bytes) -> bytes:
    """Return one gzip member of text; members one after the other are one file.

    `text`: digits, commas and line ends only. The bytes depend on the text alone.
    """
    opening, half_bytes = _tables()
    n = len(opening) + len(text) + 1
    halves = np.zeros(n + n % 2, np.uint8)
    halves[: len(opening)] = opening
    np.take(half_bytes, np.frombuffer(text, np.uint8), out=halves[len(opening) : n - 1])
    halves[n - 1] = _reversed(_END_OF_BLOCK, 4)
    packed = halves[0::2] | (halves[1::2] << 4)
    return _START + packed.tobytes() + struct.pack("<II", zlib.crc32(text), len(text) % (1 << 32))


@cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Return the half bytes that open a member, and the half byte of each character."""
    bits = _opening()
    weights = np.array([1, 2, 4, 8])
    opening = (np.array(bits).reshape(-1, 4) @ weights).astype(np.uint8)
    half_bytes = np.zeros(256, np.uint8)
    for code, character in enumerate(_CHARACTERS):
        half_bytes[character] = _reversed(code, 4)
    return opening, half_bytes


def _opening() -> list[int]:
    """Return the bits before the text: an empty block, and the code lengths of the last block.

    The empty block has ten bits, which makes the number of all bits a multiple of four.
    """
    lengths = {4: 3, 18: 2, 17: 2, 16: 3, 0: 2}  # of the codes of code lengths and of repetitions
    codes, code = {}, 0
    for symbol in sorted(lengths, key=lambda symbol: (lengths[symbol], symbol)):
        width = lengths[symbol]
        codes[symbol] = _reversed(code >> (3 - width), width)
        code += 1 << (3 - width)
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4)  # of RFC 1951; the rest has no code
    fields = [(0, 1), (1, 2), (0, 7)]  # not the last block; fixed codes; its end
    fields += [(1, 1), (2, 2), (0, 5), (0, 5), (len(order) - 4, 4)]  # 257 literals, 1 distance
    fields += [(lengths.get(symbol, 0), 3) for symbol in order]
    repeats = {16: (3, 2), 17: (3, 3), 18: (11, 7)}  # least number, bits for those above it
    for symbol, count in _CODE_LENGTHS:
        fields.append((codes[symbol], lengths[symbol]))
        if symbol in repeats:
            least, width = repeats[symbol]
            fields.append((count - least, width))
    return [value >> bit & 1 for value, width in fields for bit in range(width)]


_CODE_LENGTHS = (
    (17, 10), (4, 1),  # to the line end, 10
    (18, 33), (4, 1),  # to the comma, 44
    (17, 3), (4, 1), (16, 6), (16, 6),  # to the digits from 48 on, and the three behind them
    (18, 138), (18, 57), (4, 1),  # to the end of the block, 256
    (0, 1),  # no distances
)  # fmt: skip
"""Code lengths of the literals 0 to 256 and of one distance; 17 and 18 repeat 0, 16 the last."""


def _reversed(code: int, width: int) -> int:
    """Return the bits of a Huffman code from its last to its first: deflate stores them so."""
    return int(f"{code:0{width}b}"[::-1], 2)
