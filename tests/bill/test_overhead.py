from tokmill.bill.overhead import MIB, overhead_lines


def test_the_reserve_is_a_share_of_the_tensors_and_the_context_stands_beside_it():
    reserve, context = overhead_lines(1000, 2000)
    assert (reserve.low_bytes, reserve.n_bytes, reserve.high_bytes) == (0, 40, 600)
    assert (context.low_bytes, context.n_bytes, context.high_bytes) == (
        300 * MIB, 500 * MIB, 1000 * MIB
    )  # fmt: skip
