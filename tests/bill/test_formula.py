from __future__ import annotations

import json

from tokmill.bill.formula import Bill, Formula

WEIGHTS = Formula("weights", "q * P", "arithmetic")
CONTEXT = Formula("context", "500 * 2 ** 20", "measured")
BILL = Bill(
    "GPU memory, step",
    (
        WEIGHTS.line({"q": 2, "P": 100}),
        CONTEXT.line({}, low_bytes=300 << 20, high_bytes=1 << 30, note="outside the allocator"),
    ),
    ("fp8",),
)


def test_totals_are_the_sums_of_the_lines():
    assert BILL.n_bytes == 200 + (500 << 20)
    assert BILL.low_bytes == 200 + (300 << 20)
    assert BILL.high_bytes == 200 + (1 << 30)


def test_a_bill_is_plain_values():
    plain = BILL.as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["bytes"] == sum(line["bytes"] for line in plain["lines"])
    assert plain["lines"][0] == {
        "name": "weights",
        "bytes": 200,
        "low_bytes": 200,
        "high_bytes": 200,
        "formula": "q * P",
        "symbols": {"q": 2, "P": 100},
        "note": "",
        "source": "arithmetic",
        "error": "",
    }
    assert plain["leaves_out"] == ["fp8"]


def test_an_empty_bill_is_zero():
    assert Bill("nothing", ()).n_bytes == 0
