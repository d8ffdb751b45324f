"""Builds the documentation: `make docs`. Every page is Markdown that also reads well without Sphinx."""

from __future__ import annotations

from importlib.metadata import version as installed_version

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
exclude_patterns = ["_build", "*.ipynb"]
napoleon_custom_sections = [("Class attributes", "params_style")]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "focus-eval"
