import pytest

from tokmill.bill.gpus import find_gpu
from tokmill.errors import UsageError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a100-80", "A100 80GB"),
        ("A100", "A100 40GB"),
        ("4090", "RTX 4090"),
        ("RTX 3090 24GB", "RTX 3090"),
        ("h100_80g", "H100 SXM"),
        ("2080ti", "RTX 2080 Ti"),
        ("6000ada", "RTX 6000 Ada"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_name_is_found_as_people_write_it_and_as_torch_gives_it(text, name):
    assert find_gpu(text).name == name


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("24GiB", 24 << 30), ("24GB", 24_000_000_000), (" 79.5 gib ", 85_362_475_008)],
)
def test_a_size_is_taken_in_its_own_unit(text, n_bytes):
    gpu = find_gpu(text)

    assert (gpu.memory_bytes, gpu.flops) == (n_bytes, 0)


@pytest.mark.parametrize("text", ["voodoo 2", "", "24", "a100-60"])
def test_an_unknown_name_lists_the_known_ones(text):
    with pytest.raises(UsageError, match=r"not known: expected its memory \(24GiB\) or one of"):
        find_gpu(text)


@pytest.mark.parametrize("text", ["0GiB", "1MB", "2000TiB", "9" * 400 + "GiB"])
def test_a_size_that_no_gpu_has_is_refused(text):
    with pytest.raises(UsageError, match=r"of one \(24GiB, 256MiB or more\), found"):
        find_gpu(text)


@pytest.mark.parametrize("text", ["8xA100", "8 x a100", "A100:8", "a100x8", "8*A100"])
def test_several_gpus_are_a_setting_of_their_own(text):
    said = r"^gpu: expected one GPU, found '.*'; use --gpu='A100 40GB' --gpus=8$"
    with pytest.raises(UsageError, match=said):
        find_gpu(text)
