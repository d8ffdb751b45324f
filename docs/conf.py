"""Builds the documentation: `make docs`. Every page is Markdown that also reads well without Sphinx."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

project = "focus-eval"
author = "The focus-eval authors"
version = release = installed_version("focus-eval")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
# Pages link to files of the repository as GitHub shows them; those links are no pages here.
suppress_warnings = ["myst.xref_missing"]
exclude_patterns = ["_build"]
GENERATED = Path(__file__).parent / "_generated"
napoleon_custom_sections = [("Class attributes", "params_style")]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "focus-eval"


def write_cli_reference(app: object) -> None:
    """Write the command line's reference from its own help texts."""
    GENERATED.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "typer", "focus_eval.cli", "utils", "docs", "--name", "focus-eval"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    text = text.replace("# `focus-eval`", "# Command line", 1)
    # typer cuts the list's descriptions at 45 characters; the whole ones begin each command's section.
    whole = dict(re.findall(r"^## `focus-eval ([\w-]+)`\n\n(.+)$", text, flags=re.MULTILINE))
    text = re.sub(r"^\* `([a-z][\w-]*)`: .*$", lambda m: f"* `{m[1]}`: {whole.get(m[1], '')}", text, flags=re.MULTILINE)
    (GENERATED / "cli.md").write_text(text, encoding="utf-8")


def setup(app: object) -> None:
    app.connect("builder-inited", write_cli_reference)  # type: ignore[attr-defined]
