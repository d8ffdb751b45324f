#!/usr/bin/env python3
"""Print the size of the package and the share of its names that say nothing.

    python -m scripts.checks.house_figures [--json] [FOLDER ...]

For each folder: files, lines, lines of code (without docstrings, comments, blanks and imports), of docstrings and of
imports, functions, classes, and the share of bindings whose name is a pronoun, an adverb or a bare participle; private
helpers of at most four lines with one caller; lines that are comments.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Names that say what happened to an object, never what the object is.
EMPTY_NAMES = frozenset(
    """
    said says mine theirs ours yours here there where when who whose whom which what how why about beside besides apart
    aside again once twice made given taken asked told found kept held left shown seen known looked chosen wanted needed
    needs put gone done gives takes goes comes stands means meant other others another one ones both each every none
    some any own alone together away along within without before after ahead behind above below beyond near far much
    many more most less least few fewer such same different rest thing things stuff way ways those these that this it
    its itself them they their stated named called served counted fitted added fed
    """.split()  # noqa: SIM905
)
MAX_FRAGMENT_LINES = 4


@dataclass
class HouseFigures:
    """Sizes of one folder of Python files, all counted from the syntax tree."""

    files: int = 0
    lines: int = 0
    code: int = 0
    docstrings: int = 0
    imports: int = 0
    functions: int = 0
    classes: int = 0
    bindings: int = 0
    empty_names: int = 0
    fragments: int = 0
    comments: int = 0


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source text, the module first: going through a tree again takes longer than parsing."""
    return tuple(ast.walk(ast.parse(text)))


def bindings(text: str) -> Iterator[tuple[str, int]]:
    """Yield name and line of every assignment target, parameter and annotated field of a source text."""
    for node in nodes_of(text):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg, node.lineno


def untyped_annotations(text: str) -> list[int]:
    """Return the line of every `Any` in the annotations of parameters, returned values and variables."""
    nodes = nodes_of(text)
    annotations = [node.annotation for node in nodes if isinstance(node, (ast.arg, ast.AnnAssign))]
    annotations += [node.returns for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [
        node.lineno
        for annotation in filter(None, annotations)
        for node in ast.walk(annotation)
        if (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.Attribute) and node.attr == "Any")
    ]


def is_empty_name(name: str) -> bool:
    """Return True for a name that is a pronoun, an adverb or a bare participle."""
    return name.strip("_").lower() in EMPTY_NAMES


def source_files(folder: Path) -> list[Path]:
    """Return the Python files below `folder`, without those in hidden folders (.venv, .git)."""
    files = sorted(folder.rglob("*.py"))
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def class_names(folder: Path) -> Counter[str]:
    """Count the classes of each name below `folder`; leading underscores are ignored."""
    texts = (path.read_text(encoding="utf-8") for path in source_files(folder))
    return Counter(node.name.lstrip("_") for text in texts for node in nodes_of(text) if isinstance(node, ast.ClassDef))


def fragments(text: str) -> list[tuple[str, int]]:
    """Return name and line of every private helper that is called once in its file and has at most four lines of body.

    Helpers with decorators, and those that are passed on as functions, are left out: they cannot be written where they
    are used.
    """
    nodes = nodes_of(text)
    call_targets = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    references: dict[str, list[bool]] = {}
    for node in nodes:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        references.setdefault(name, []).append(id(node) in call_targets)
    helpers = []
    for node in nodes:
        if not isinstance(node, ast.FunctionDef) or not re.match(r"_[^_]", node.name) or node.decorator_list:
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        n_lines = sum((item.end_lineno or item.lineno) - item.lineno + 1 for item in body)
        if n_lines <= MAX_FRAGMENT_LINES and references.get(node.name) == [True]:
            helpers.append((node.name, node.lineno))
    return helpers


def measure(folder: Path) -> HouseFigures:
    """Return the sizes of the Python files below `folder`."""
    figures = HouseFigures()
    for path in source_files(folder):
        text = path.read_text(encoding="utf-8")
        nodes = nodes_of(text)
        docstring_lines = _docstring_lines(nodes)
        import_lines = _lines_of(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
        names = [name for name, _ in bindings(text)]
        figures.files += 1
        figures.lines += text.count("\n")
        figures.docstrings += len(docstring_lines)
        figures.imports += len(import_lines)
        figures.code += len(_token_lines(path) - docstring_lines - import_lines)
        figures.functions += sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes)
        figures.classes += sum(isinstance(node, ast.ClassDef) for node in nodes)
        figures.bindings += len(names)
        figures.empty_names += sum(map(is_empty_name, names))
        figures.fragments += len(fragments(text))
        figures.comments += sum(line.lstrip().startswith("#") for line in text.splitlines())
    return figures


def _lines_of(nodes: Iterator[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the numbers of all lines in docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = (node.body for node in nodes if isinstance(node, documented) and node.body)
    first = (body[0] for body in bodies)
    return _lines_of(
        node
        for node in first
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _token_lines(path: Path) -> set[int]:
    """Return the lines that hold more than a comment or white space."""
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    with tokenize.open(path) as file:
        tokens = [token for token in tokenize.generate_tokens(file.readline) if token.type not in layout]
    return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}


def count_commands() -> int:
    """Return how many commands `focus-eval --help` lists."""
    from typer.main import get_command

    from focus_eval.cli import app

    return sum(not command.hidden for command in getattr(get_command(app), "commands", {}).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "focus_eval"])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    measured = {str(folder): asdict(measure(folder)) for folder in arguments.folders}
    if arguments.json:
        print(json.dumps({"commands": count_commands(), "folders": measured}, indent=1))
        return
    print(f"commands: {count_commands()}")
    for folder, figures in measured.items():
        share = 100 * figures["empty_names"] / max(1, figures["bindings"])
        sizes = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in figures.items())
        print(f"{folder}: {sizes} ({share:.2f} %)")
    repeated = sorted(name for name, count in class_names(arguments.folders[0]).items() if count > 1)
    print(f"class names with more than one meaning: {len(repeated)}: {', '.join(repeated)}")


if __name__ == "__main__":
    main()
