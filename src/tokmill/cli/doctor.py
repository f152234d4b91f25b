"""`tokmill doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokmill.cli.screen import show, show_json, show_labelled, show_rows
from tokmill.errors import VerifyError
from tokmill.words.plural import plural
from tokmill.words.units import memory, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.api.doctor.findings import Disk, Findings, Gpu, Machine


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check this installation and machine; exit 1 if something essential is broken.

    Imports the packages that tokmill needs, encodes a text with every engine, and shows the cores
    and the memory that the cgroup grants, the file systems here and of temporary files, GPUs, and
    the optional packages. Needs no network, and writes only a file of 4 kB that it removes.

    \b
    Examples:
      tokmill doctor
      tokmill doctor --json
    """
    from tokmill.api.doctor.examine import examine

    findings = examine()
    if as_json:
        show_json(findings.as_json())
        ctx.exit(0 if findings.works else VerifyError.exit_code)
    show_rows(list(_rows(findings)))
    for problem in findings.problems:
        label, colour = ("broken:", "red") if problem.essential else ("advice:", "yellow")
        show_labelled(label, problem.text, colour=colour)
    show()
    if not findings.works:
        n_broken = sum(problem.essential for problem in findings.problems)
        raise VerifyError(f"tokmill cannot work here: {plural(n_broken, 'essential problem')}")
    show("tokmill works here")


def _rows(findings: Findings) -> Iterator[tuple[str, str]]:
    yield "tokmill", f"{findings.tokmill}, Python {findings.python}, {findings.platform}"
    packages = [f"{one.name} {one.version or 'missing'}" for one in findings.packages]
    yield "packages", ", ".join(packages)
    if findings.engines:
        engines = (
            f"{one.name} {one.version}: {'does not work' if one.broken else 'works'}"
            for one in findings.engines
        )
        yield "engines", ", ".join(engines)
    if findings.machine is not None:
        yield from _machine_rows(findings.machine)
    for disk in findings.disks:
        yield ("disk" if disk.use == "here" else disk.use), _disk_text(disk)
    yield "GPU", "\n".join(map(_gpu_text, findings.gpus)) or "none found"
    here = [f"{one.name} {one.version}" for one in findings.optional if one.version]
    missing = [one.name for one in findings.optional if not one.version]
    yield "optional", ", ".join(here) or "none"
    if missing:
        yield "", f"not installed: {', '.join(missing)}"
    if findings.extensions:
        yield "added", ", ".join(findings.extensions)


def _machine_rows(machine: Machine) -> Iterator[tuple[str, str]]:
    of = f" of {machine.machine_cores}" if machine.cores < machine.machine_cores else ""
    yield "cores", f"{machine.cores}{of}"
    is_limit = 0 < machine.limit_bytes < machine.memory_bytes
    limit = f" (the cgroup's limit; the machine has {memory(machine.memory_bytes)})"
    shm = f"; /dev/shm {memory(machine.shm_bytes)}" if machine.shm_bytes else ""
    free = min(machine.available_bytes, machine.usable_bytes)
    yield (
        "memory",
        f"{memory(machine.usable_bytes)}{limit if is_limit else ''}, {memory(free)} free{shm}",
    )
    yield "open files", "no limit" if machine.open_files < 0 else f"{machine.open_files:,}"


def _disk_text(disk: Disk) -> str:
    system = f", {disk.file_system}" if disk.file_system else ""
    text = f"{disk.path}{system}, {size(disk.free_bytes)} free"
    if disk.problem:
        return f"{text}; cannot be written: {disk.problem}"
    linked = "hard links" if disk.hard_links else "no hard links"
    shared = "reflinks" if disk.reflinks else "no reflinks"
    return f"{text}; {linked}, {shared}, sync {1000 * disk.sync_s:.1f} ms"


def _gpu_text(gpu: Gpu) -> str:
    amount = f", {memory(gpu.memory_bytes)}" if gpu.memory_bytes else ""
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    return f"{gpu.name}{amount}{driver}"
