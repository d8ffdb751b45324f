"""Reads README, CONTRIBUTING and docs: the commands, code blocks and paths that stand in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^ *```([\w{}-]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
FOLDERS = "configs|docs|focus_eval|research|results/paper|results/published|scripts|tasks|tests"


class Line(NamedTuple):
    """A command of a page, as a shell splits it."""

    page: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The program that it starts."""
        return self.words[0]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def text_of(page: Path) -> str:
    """Return a page with folded command lines unfolded."""
    return page.read_text(encoding="utf-8").replace("\\\n", " ")


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", text_of(page))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return [body for kind, body in FENCE.findall(text_of(page)) if kind == language]


def shell_lines(page: Path) -> list[Line]:
    """Return the commands of the indented and `sh` blocks: everything in such a block is a command or a comment."""
    indented = re.findall(r"^ {4}(?! )(\S.*)$", prose_of(page), re.MULTILINE)
    fenced = [line for block in blocks(page, "sh") for line in block.splitlines()]
    texts = [re.split(r"(?:^| +)#", line.removeprefix(".venv/bin/"))[0] for line in (*indented, *fenced)]
    return [Line(page.name, words) for text in texts for words in commands_in(text)]


def inline_lines(page: Path) -> list[Line]:
    """Return the commands that a sentence names between backticks."""
    commands = re.findall(r"`((?:focus-eval|python (?:research/)?scripts/|make) ?[^`]+)`", prose_of(page))
    return [Line(page.name, words) for text in commands for words in commands_in(text)]


def commands_in(text: str) -> list[tuple[str, ...]]:
    """Split a line at `&&`, `;` and `|`; what follows `>` is a file of the shell's."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|>")
    lexer.whitespace_split, lexer.commenters = True, ""
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in (";", "&&", "|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [tuple(words[: words.index(">")] if ">" in words else words) for words in commands if words]


def paths_named(page: Path) -> set[str]:
    """Return the paths of the repository that a page names in backticks; a part in capitals is the reader's."""
    paths = re.findall(rf"`((?:{FOLDERS})/[\w./*-]*)", text_of(page))
    return {path for path in paths if not re.search(r"/[A-Z]+\b(?!\.)", path)}
