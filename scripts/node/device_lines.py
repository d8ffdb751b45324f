#!/usr/bin/env python3
"""List the lines that only a GPU reaches, and which of them tests execute without and with fake CUDA.

    python scripts/node/device_lines.py [--list] [-n 2] [TESTS ...]

Two kinds of places in `encoders/`, `pipeline/` and `lmms/`: arms of conditions that ask for a GPU (statements, and arms
of expressions with `if`), with calls of `torch.cuda`; and other lines of these files that no test executes but those on
fake CUDA. Executed: by the tests of the three rooms, traced by instruction, threads included. Processes that a test
starts are not traced. Places of the first kind that nothing executes are named; `--list` names all places.
"""

from __future__ import annotations

import argparse
import ast
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "focus_eval"
ROOMS = ("encoders", "pipeline", "lmms")
FAKE_CUDA = [f"tests/{room}/test_fake_cuda.py" for room in ("encoders", "lmms")]
_FOLDER_VARIABLE = "DEVICE_LINES_OUT"
_QUESTIONS = ("is_available", "is_initialized", "device_count", "OutOfMemoryError")  # of torch.cuda, asked anywhere

Position = tuple[int, int]  # line and column
Span = tuple[Position, Position]  # start and end of an instruction's source


@dataclass(frozen=True, order=True)
class Place:
    """Statement, head of a compound statement, or arm of an expression: `[start, stop)` in a file."""

    path: str
    start: Position
    stop: Position
    text: str


def arms_of(test: ast.expr) -> tuple[bool, bool]:
    """Return whether only a GPU reaches the arm for True, and the one for False, of a condition."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return arms_of(test.operand)[::-1]
    if isinstance(test, ast.BoolOp):
        by_true, by_false = zip(*map(arms_of, test.values), strict=True)
        return (any(by_true), all(by_false)) if isinstance(test.op, ast.And) else (all(by_true), any(by_false))
    asks_for_gpu = any(word in ast.unparse(test) for word in ("cuda", "_resizes_on_device"))
    if isinstance(test, ast.Compare):
        is_equal, is_unequal = (isinstance(test.ops[0], kind) for kind in (ast.Eq, ast.NotEq))
        return asks_for_gpu and is_equal, asks_for_gpu and is_unequal
    return asks_for_gpu, False


def gpu_places(path: Path) -> list[Place]:
    """Return the places of a file that only a GPU reaches, by its conditions."""
    source = path.read_text(encoding="utf-8")
    lines, places = source.splitlines(), list[Place]()

    def add(node: ast.stmt | ast.expr) -> None:
        """Add a statement, of a compound one its head, or an expression."""
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) else None
        stop = (first.lineno, first.col_offset) if first else (node.end_lineno or 0, node.end_col_offset or 0)
        name = str(path.relative_to(PACKAGE))
        text = ast.unparse(node) if isinstance(node, ast.expr) else lines[node.lineno - 1].strip()
        places.append(Place(name, (node.lineno, node.col_offset), stop, text))

    def walk(statements: list[ast.stmt], *, on_gpu: bool) -> None:
        """Add the places among statements that run one after another; after an arm that leaves, the other goes on."""
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            if on_gpu or _calls_cuda(statement):
                add(statement)
            else:
                for node in _expressions(statement):
                    for arm, is_gpu in zip((node.body, node.orelse), arms_of(node.test), strict=True):
                        if is_gpu:
                            add(arm)
            arms = arms_of(statement.test) if isinstance(statement, (ast.If, ast.While)) else (False, False)
            walk(getattr(statement, "body", []), on_gpu=on_gpu or arms[0])
            walk(getattr(statement, "orelse", []), on_gpu=on_gpu or arms[1])
            for handler in getattr(statement, "handlers", []):
                walk(handler.body, on_gpu=on_gpu)
            walk(getattr(statement, "finalbody", []), on_gpu=on_gpu)
            is_left = isinstance(statement, ast.If) and isinstance(statement.body[-1], (ast.Return, ast.Raise))
            on_gpu |= is_left and arms[1]

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            walk(node.body, on_gpu=False)
    return sorted(set(places))


def _expressions(statement: ast.stmt) -> Iterator[ast.IfExp]:
    """Yield the expressions with `if` of a statement, those of its body left out."""
    heads = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
    yield from (node for head in heads for node in ast.walk(head) if isinstance(node, ast.IfExp))


def _calls_cuda(statement: ast.stmt) -> bool:
    """Return True for a simple statement, or the head of a `with`, that does something with `torch.cuda`."""
    heads = statement.items if isinstance(statement, ast.With) else [] if hasattr(statement, "body") else [statement]
    names = [node for head in heads for node in ast.walk(head) if isinstance(node, ast.Attribute)]
    return any(ast.unparse(node.value) == "torch.cuda" and node.attr not in _QUESTIONS for node in names)


def all_places() -> list[Place]:
    """Return the places of all files of the rooms."""
    return [place for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py")) for place in gpu_places(path)]


# A plugin of pytest, loaded into each of its processes, that notes each instruction of the files with places.
_instructions: dict[CodeType, set[int]] = defaultdict(set)
_traced_files = set[str]()


def _note_instruction(frame: FrameType, event: str, _: object) -> object:
    if event == "opcode":
        _instructions[frame.f_code].add(frame.f_lasti)
    return _note_instruction


def _enter(frame: FrameType, event: str, _: object) -> object:
    """Trace the instructions of a function if its file has places."""
    if frame.f_code.co_filename not in _traced_files:
        return None
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return _note_instruction


def pytest_configure() -> None:
    _traced_files.update(str(PACKAGE / place.path) for place in all_places())
    threading.settrace(_enter)
    sys.settrace(_enter)


def pytest_unconfigure() -> None:
    """Write the places of all instructions that were executed in this process."""
    sys.settrace(None)
    executed = defaultdict[str, set[Span]](set)
    for code, offsets in [*_instructions.items()]:
        positions = [*code.co_positions()]
        path = str(Path(code.co_filename).relative_to(PACKAGE))
        for line, last_line, column, last_column in (positions[offset // 2] for offset in [*offsets]):
            if column is not None and code.co_name != "<module>":
                executed[path].add(((line, column), (last_line, last_column)))
    out = Path(os.environ[_FOLDER_VARIABLE]) / f"{os.getpid()}.pickle"
    out.write_bytes(pickle.dumps(dict(executed)))


def executed_by(tests: list[str]) -> dict[str, set[Span]]:
    """Run tests and return the source spans of all executed instructions, by file."""
    executed = defaultdict[str, set[Span]](set)
    with tempfile.TemporaryDirectory() as folder:
        search = os.pathsep.join([str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, _FOLDER_VARIABLE: folder, "PYTHONPATH": search}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "device_lines", *tests]
        if subprocess.run(command, cwd=ROOT, env=environment).returncode:
            print("some of these tests failed: what only they execute may be missing below")
        for file in Path(folder).iterdir():
            for path, positions in pickle.loads(file.read_bytes()).items():
                executed[path] |= positions
    return executed


def is_executed(place: Place, executed: dict[str, set[Span]]) -> bool:
    """Return True if an instruction of the place ran; the jump of `a if b else c`, which starts at `a`, ends beyond."""
    return any(place.start <= start and stop <= place.stop for start, stop in executed.get(place.path, ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name all places")
    parser.add_argument("-n", type=int, default=1, help="processes of pytest")
    parser.add_argument("tests", nargs="*", help="without fake CUDA (default: all of the three rooms)")
    args = parser.parse_args()
    workers = ["-n", str(args.n)] if args.n > 1 else []
    ignored = [f"--ignore={path}" for path in FAKE_CUDA]
    before = executed_by([*workers, *(args.tests or [f"tests/{room}" for room in ROOMS]), *ignored])
    with_fakes = executed_by([*workers, *FAKE_CUDA])
    after = {path: before.get(path, set()) | with_fakes.get(path, set()) for path in {*before, *with_fakes}}
    places = all_places()
    n_before, n_after = (sum(is_executed(place, lines) for place in places) for lines in (before, after))
    for place in places:
        if args.list or not is_executed(place, after):
            marks = "".join("x" if is_executed(place, lines) else "-" for lines in (before, with_fakes))
            print(f"{marks} {place.path}:{place.start[0]}: {place.text}")
    print(f"{len(places)} places that ask for a GPU: {n_before} executed without fake CUDA, {n_after} with it")
    asked = {(place.path, place.start[0]) for place in places}
    lines = {(path, line) for path, positions in with_fakes.items() for (line, _), _ in positions}
    lines -= {(path, line) for path, positions in before.items() for (line, _), _ in positions} | asked
    print(f"{len(lines)} other lines are executed on fake CUDA alone")
    if args.list:
        print("\n".join(f"-x {path}:{line}" for path, line in sorted(lines)))


if __name__ == "__main__":
    main()
