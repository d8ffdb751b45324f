"""What the pages tell a reader to type or open exists, and is read as it stands there."""

from __future__ import annotations

import pytest

import tests.test_pages as of_the_tool
from research.tests.test_figures import PAGES
from tests.pages import inline_lines, shell_lines

SHELL = sorted({line for page in PAGES for line in shell_lines(page)})
INLINE = sorted({line for page in PAGES for line in inline_lines(page)})


@pytest.mark.parametrize("line", [line for line in SHELL if line.program == "focus-eval"], ids=str)
def test_the_command_line_reads_a_command_of_a_page(line):
    of_the_tool.test_the_command_line_reads_a_command_of_a_page(line)


@pytest.mark.parametrize("line", [line for line in (*SHELL, *INLINE) if line.program == "python"], ids=str)
def test_a_script_exists_and_knows_the_options_of_a_page(line):
    of_the_tool.test_a_script_exists_and_knows_the_options_of_a_page(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_or_links_to_exists(page):
    of_the_tool.test_what_a_page_names_or_links_to_exists(page)
