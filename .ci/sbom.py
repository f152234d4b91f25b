"""Print what an environment has besides a wheel that is installed there, as CycloneDX 1.6.

    VENV/bin/python .ci/sbom.py dist/tokmill-0.1.0-py3-none-any.whl

The environment was made for the wheel alone, so these are its dependencies at that time.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

INSTALLERS = {"pip", "setuptools", "wheel"}


def component(found: Distribution, kind: str) -> dict[str, Any]:
    """Return the entry of an installed package."""
    name = re.sub(r"[-_.]+", "-", found.name).lower()
    purl = f"pkg:pypi/{name}@{found.version}"
    entry: dict[str, Any] = {"type": kind, "bom-ref": purl, "name": name, "version": found.version}
    if expression := found.metadata.get("License-Expression"):
        entry["licenses"] = [{"expression": expression}]
    elif text := found.metadata.get("License", "").strip():
        entry["licenses"] = [{"license": {"name": text.splitlines()[0]}}]
    return entry | {"purl": purl}


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """Return the whole document; the sum of the wheel stands with it."""
    name, version = wheel.name.split("-")[:2]
    packages = {found.name.lower(): found for found in distributions()}
    own = component(packages.pop(name), "application")
    if own["version"] != version:
        raise SystemExit(f"{wheel}: installed is version {own['version']}")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    parts = [component(one, "library") for key, one in packages.items() if key not in INSTALLERS]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"hashes": [{"alg": "SHA-256", "content": digest}]}},
        "components": sorted(parts, key=lambda part: str(part["name"])),
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": sorted(part["bom-ref"] for part in parts)}
        ],
    }


if __name__ == "__main__":
    print(json.dumps(bill_of_materials(Path(sys.argv[1])), indent=1))
