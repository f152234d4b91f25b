"""GPUs by name: the memory that a program can use, peak speeds, and whether a bill fits.

Memory is `torch.cuda.get_device_properties(0).total_memory` of recent drivers, as torch prints it
("total capacity of 79.18 GiB"). It is less than the advertised size, because ECC and the driver
keep a part, and differs by up to 0.2 GiB between drivers. Speed is the makers' dense 16-bit peak
with fp32 accumulation, on GeForce cards half the advertised one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tokmill.bill.formula import Bill
from tokmill.errors import UsageError

FITS = "fits"
BARELY = "fits by the estimate, not by the upper bound"
DOES_NOT_FIT = "does not fit"
AT_LEAST = "at least"
"""A part of the need is not known, and the rest fits."""

_GIB = 1 << 30
_UNITS = {
    "mb": 10**6, "mib": 1 << 20, "gb": 10**9, "gib": _GIB, "tb": 10**12, "tib": 1 << 40
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: memory in bytes, and speeds (0: not known).

    `flops` is the dense 16-bit peak in FLOP/s, `matrix_type` its type: fp16 where the GPU has no
    bf16 matrix units. `fp32_flops` is the peak in fp32 without TF32 (torch's default).
    """

    name: str
    memory_bytes: int
    flops: float = 0.0
    matrix_type: str = "bf16"
    fp32_flops: float = 0.0

    def peak(self, n_bytes: int) -> float:
        """Return the peak FLOP/s of matrix products of elements of so many bytes."""
        return self.fp32_flops if n_bytes == 4 else self.flops


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are needed: expected, upper bound, and the part in /dev/shm.

    `missing` names what is not known: the amounts are then only a part. `kept_free` bytes must be
    there in addition, and stay free.
    """

    n_bytes: int
    high_bytes: int
    shm_bytes: int = 0
    missing: str = ""
    kept_free: int = 0

    @classmethod
    def of(cls, bill: Bill) -> Need:
        """Return the need of a bill."""
        return cls(bill.n_bytes, bill.high_bytes, missing=bill.missing, kept_free=bill.kept_free)


def verdict(need: Need, n_bytes: int, shm_bytes: int = 0) -> str:
    """Return FITS, BARELY, DOES_NOT_FIT, or AT_LEAST if a part of what fits is not known.

    `n_bytes` are available; `shm_bytes` is the size of /dev/shm, 0 if it is not limited.
    """
    n_bytes -= need.kept_free
    if need.n_bytes > n_bytes or 0 < shm_bytes < need.shm_bytes:
        return DOES_NOT_FIT
    if need.missing:
        return AT_LEAST
    return BARELY if need.high_bytes > n_bytes else FITS


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst of some verdicts."""
    return max(verdicts, key=(FITS, BARELY, AT_LEAST, DOES_NOT_FIT).index)


def gpu_verdict(bill: Bill, gpu: Gpu) -> str:
    """Return whether a bill fits on a GPU, by its upper bound over all moments."""
    return verdict(Need.of(bill), gpu.memory_bytes)


def find_gpu(text: str) -> Gpu:
    """Return a GPU by its name ("a100-80", "NVIDIA L40S", "4090") or its memory ("80GiB").

    GB is 10^9 bytes, GiB 2^30. Of a name with several sizes it is the smallest.

    Raises:
        UsageError: neither a size with its unit nor a known name.
    """
    if size := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([mgt]i?b)\s*", text.lower()):
        return _of_size(float(size[1]), size[2], text)
    gpu = _by_key().get(_key(text))
    if gpu is None:
        _refuse_several(text)
        names = ", ".join(gpu.name for gpu in known_gpus())
        raise UsageError(
            f"gpu: {text!r} is not known: expected its memory (24GiB) or one of: {names}"
        )
    return gpu


def _refuse_several(text: str) -> None:
    """Refuse a number of GPUs with a name, such as 8xA100 or A100:8."""
    several = re.fullmatch(r"(?:(\d+)\s*[x*]\s*)?(.+?)(?:\s*[x*:]\s*(\d+))?", text.strip().lower())
    if several and (number := several[1] or several[3]) and _key(several[2]) in _by_key():
        name = _by_key()[_key(several[2])].name
        raise UsageError(
            f"gpu: expected one GPU, found {text!r}; use --gpu='{name}' --gpus={number}"
        )


@cache
def known_gpus() -> tuple[Gpu, ...]:
    """Return the built-in GPUs, by maker and age."""
    return tuple(
        Gpu(name, round(gib * _GIB), tera * 1e12, kind, fp32 * 1e12)
        for name, gib, tera, kind, fp32, _ in _ROWS
    )


def _of_size(number: float, unit: str, text: str) -> Gpu:
    n_bytes = number * _UNITS[unit]
    if not 1 << 28 <= n_bytes <= 1 << 50:
        raise UsageError(f"gpu: expected the memory of one (24GiB, 256MiB or more), found {text!r}")
    return Gpu(text.strip(), round(n_bytes))


@cache
def _by_key() -> dict[str, Gpu]:
    gpus: dict[str, Gpu] = {}
    for gpu, (*_, other_names) in zip(known_gpus(), _ROWS, strict=True):
        for key in (gpu.name, *other_names):
            gpus[_key(key)] = gpu
    return gpus


_NOISE = re.compile(
    r"nvidia|geforce|tesla|quadro|amd|instinct|rtx|gpu|generation|blackwell|workstation|server"
    r"|edition|grace|hopper|hbm\w*|sxm\d?|oam"
)


def _key(text: str) -> str:
    """Return the part of a name that identifies a GPU: NVIDIA A100-SXM4-80GB -> a10080."""
    name = _NOISE.sub(" ", text.lower())
    return re.sub(r"[^a-z0-9]", "", re.sub(r"(?<![a-z0-9])(\d+)\s*g(?:i?b)?\b", r"\1", name))


# Name, GiB that a program can use, dense 16-bit peak in TFLOP/s, its type, fp32 peak in TFLOP/s,
# other names. GiB: out-of-memory messages of torch in public
# repositories and issues (2022-2026). Speeds: the makers' data sheets and white papers. MI250 is
# one of two dies, which is what a process gets.
_A100_80 = ("A100 PCIe 80GB", "A100 80GB PCIe", "A800 80GB", "A800")
_Row = tuple[str, float, float, str, float, tuple[str, ...]]
_ROWS: tuple[_Row, ...] = (
    ("V100 16GB", 15.77, 125, "fp16", 15.7, ("V100", "V100 PCIe 16GB")),
    ("V100 32GB", 31.73, 125, "fp16", 15.7, ("V100 PCIe 32GB", "V100S PCIe 32GB")),
    ("T4", 14.57, 65, "fp16", 8.1, ()),
    ("A10", 22.05, 125, "bf16", 31.2, ()),
    ("A10G", 22.05, 70, "bf16", 31.5, ()),
    ("A40", 44.34, 149.7, "bf16", 37.4, ()),
    ("A100 40GB", 39.38, 312, "bf16", 19.5, ("A100", "A100 PCIe 40GB")),
    ("A100 80GB", 79.14, 312, "bf16", 19.5, _A100_80),
    ("A6000", 47.40, 154.8, "bf16", 38.7, ("A6000 48GB",)),
    ("L4", 22.03, 121, "bf16", 30.3, ()),
    ("L40S", 44.39, 362, "bf16", 91.6, ("L40S 48GB",)),
    ("H100 SXM", 79.18, 989.4, "bf16", 66.9, ("H100", "H100 80GB", "H800")),
    ("H100 PCIe", 79.18, 756, "bf16", 51.2, ("H100 PCIe 80GB", "H100 80GB PCIe")),
    ("H100 NVL", 93.09, 835, "bf16", 60, ("H100 NVL 94GB",)),
    ("H20", 95.00, 148, "bf16", 44, ("H20 96GB",)),
    ("H200", 139.72, 989.4, "bf16", 66.9, ("H200 141GB",)),
    ("GH200", 94.50, 989.4, "bf16", 66.9, ("GH200 96GB", "GH200 480GB")),
    ("B200", 178.35, 2250, "bf16", 80, ("B200 180GB", "B200 192GB")),
    ("B300", 267.6, 2250, "bf16", 80, ("B300 288GB", "GB300")),
    ("RTX 2080 Ti", 10.75, 56.9, "fp16", 13.4, ("2080Ti 11GB",)),
    ("RTX 3060", 11.63, 25.6, "bf16", 12.7, ("3060 12GB",)),
    ("RTX 3090", 23.56, 71.2, "bf16", 35.6, ("3090 24GB",)),
    ("RTX 4060", 7.62, 30.2, "bf16", 15.1, ("4060 8GB",)),
    ("RTX 4070", 11.62, 58.3, "bf16", 29.1, ("4070 12GB",)),
    ("RTX 4080", 15.60, 97.5, "bf16", 48.7, ("4080 16GB",)),
    ("RTX 4090", 23.52, 165.2, "bf16", 82.6, ("4090 24GB",)),
    ("RTX 5080", 15.47, 112.6, "bf16", 56.3, ("5080 16GB",)),
    ("RTX 5090", 31.36, 209.5, "bf16", 104.8, ("5090 32GB",)),
    ("RTX 6000 Ada", 47.37, 364.2, "bf16", 91.1, ("6000 Ada 48GB",)),
    ("RTX PRO 6000", 94.97, 503.8, "bf16", 125, ("PRO 6000 96GB",)),
    ("MI250", 63.98, 181, "bf16", 22.6, ("MI250X", "MI250 64GB")),
    ("MI300X", 191.69, 1307.4, "bf16", 163.4, ("MI300X 192GB",)),
)
