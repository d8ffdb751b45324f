"""Do the tests notice small changes of the code? A sample of mutations, each tested in a fork.

    python -m scripts.checks.mutations keyframes/samplers --number 20 --seed 1
    python -m scripts.checks.mutations keyframes/samplers --number 20 --seed 1 --only 3 17 --tests tests/lab

A mutation flips a comparison or a sign, moves an integer by one, swaps two arguments, negates a condition or drops a
branch. It is made in a git worktree that is thrown away, so code and tests are those of the last commit. The tests are
collected once; for every mutation the file is written anew and a fork replaces the code of the function, so processes
that a test starts run the change, too. First the tests of `make test` run, up to the first that fails; if none fails,
the slow ones. The CSV says number, mutation, killed by (fast, slow, none, not tested) and the test that failed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import functools
import importlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "focus_eval"
MIN_CPU_SECONDS = 60.0
MORE_TESTS = {
    "bench/report": ["tests/bench/commands/test_report_commands.py"],
    "keyframes/video": ["tests/keyframes/test_select_keyframes.py", "tests/keyframes/test_skip_damaged.py"],
}
OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutation:
    """A change of one node in one function of a file."""

    path: Path
    index: int  # among those of the file
    names: tuple[str, ...]  # of classes and the outermost function
    line: int
    old_text: str
    new_text: str

    def __str__(self) -> str:
        return (
            f"{self.path.relative_to(PACKAGE)}:{self.line} {'.'.join(self.names)}: {self.old_text} -> {self.new_text}"
        )

    def is_imported_by(self, test: Path) -> bool:
        """True if a file of tests is named after the changed one or imports it."""
        return self.path.stem in test.stem or f".{self.path.stem} import" in test.read_text(encoding="utf-8")

    def tree(self) -> ast.Module:
        """Return the changed file."""
        source = ast.parse(self.path.read_text(encoding="utf-8"))
        _, place, _, twin = next(islice(changes(source), self.index, None))
        if place.index is None:
            setattr(place.parent, place.field, twin)
        else:
            getattr(place.parent, place.field)[place.index] = twin
        return ast.fix_missing_locations(source)


@dataclass(frozen=True)
class Place:
    """Where a node hangs in a tree."""

    parent: ast.AST
    field: str
    index: int | None  # in a list


def mutated_copy(node: ast.AST) -> ast.AST | None:
    """Return a changed copy of `node`; None if no rule applies."""
    twin = copy.deepcopy(node)
    if isinstance(twin, ast.Compare):
        twin.ops = [OPPOSITES[type(twin.ops[0])](), *twin.ops[1:]]  # type: ignore[list-item]
    elif isinstance(twin, ast.BinOp | ast.BoolOp) and type(twin.op) in OPPOSITES:
        twin.op = OPPOSITES[type(twin.op)]()  # type: ignore[assignment]
    elif isinstance(twin, ast.Constant) and type(twin.value) is int:
        twin.value += 1
    elif isinstance(twin, ast.Call) and len(twin.args) > 1 and not isinstance(twin.args[1], ast.Starred):
        twin.args[:2] = twin.args[1::-1]
    elif isinstance(twin, ast.IfExp):
        twin.test = ast.UnaryOp(ast.Not(), twin.test)
    elif isinstance(twin, ast.If):
        twin.body = [ast.Pass()]
    else:
        return None
    return twin


def nodes_below(parent: ast.AST) -> Iterator[tuple[Place, ast.AST]]:
    """Yield every node with its place, but those of annotations, decorators, messages and errors."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list") or isinstance(parent, ast.JoinedStr | ast.Raise):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                yield Place(parent, field, index if isinstance(value, list) else None), child
                yield from nodes_below(child)


def changes(source: ast.Module) -> Iterator[tuple[tuple[str, ...], Place, ast.AST, ast.AST]]:
    """Yield (names, place, node, changed node) of everything that a rule changes in the functions of a file."""

    def functions(body: Sequence[ast.stmt], names: tuple[str, ...]) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                yield from functions(statement.body, (*names, statement.name))
            elif isinstance(statement, ast.FunctionDef):
                yield statement, (*names, statement.name)

    for function, names in functions(source.body, ()):
        for place, node in nodes_below(function):
            # Defaults belong to the definition, which is not made anew.
            twin = None if isinstance(place.parent, ast.arguments) else mutated_copy(node)
            if twin is not None:
                yield names, place, node, twin


def mutations_of(path: Path) -> Iterator[Mutation]:
    """Yield every mutation of the functions in a file."""
    source = ast.parse(path.read_text(encoding="utf-8"))
    for index, (names, _, node, twin) in enumerate(changes(source)):
        texts = [" ".join(ast.unparse(item).split())[:70] for item in (node, twin)]
        yield Mutation(path, index, names, node.lineno, *texts)  # type: ignore[attr-defined]


def patch(mutation: Mutation, tree: ast.Module) -> None:
    """Replace the code of the mutated function, in a changed file, in this process."""
    code = compile(tree, str(mutation.path), "exec")
    for name in mutation.names:
        code = next(item for item in code.co_consts if isinstance(item, CodeType) and item.co_name == name)
    module = ".".join(mutation.path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    owner: object = importlib.import_module(module)
    for name in mutation.names[:-1]:
        owner = getattr(owner, name)
    member = vars(owner)[mutation.names[-1]]
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, functools.cached_property):
        member = member.func
    while not isinstance(member, FunctionType) or hasattr(member, "__wrapped__"):
        member = member.__wrapped__ if hasattr(member, "__wrapped__") else member.__func__
    member.__code__ = code


class Forks:
    """A plugin of pytest: runs the collected tests once unchanged, then in forks for each mutation."""

    def __init__(self, mutations: Sequence[tuple[int, Mutation]], rows: Path, limit: int | None) -> None:
        self._mutations, self._rows, self._limit = mutations, rows, limit
        self._failures = -1  # where a fork writes which tests failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        items = list(session.items)
        stages = {
            "fast": [item for item in items if item.get_closest_marker("slow") is None],
            "slow": [item for item in items if item.get_closest_marker("slow") is not None],
        }
        if self._limit is None:
            seconds = self._unchanged()
            if seconds is None:
                return None
            self._limit = int(max(MIN_CPU_SECONDS, 3 * seconds))
        for number, mutation in self._mutations:
            verdict, failure = "not tested", ""
            for stage, stage_items in stages.items():
                if not stage_items:
                    continue
                # Tests of files that are named after the changed one, or import it, fail first.
                session.items = sorted(stage_items, key=lambda item, file=mutation: not file.is_imported_by(item.path))
                outcome = self._changed(mutation)
                if outcome is None:
                    return None
                status, failure = outcome
                verdict = "none" if status == 0 else stage
                if status in (-signal.SIGXCPU, -signal.SIGALRM):
                    failure = f"over {self._limit} seconds"
                elif status != 0:
                    failure = failure or f"status {status}"
                if status != 0:
                    break
            print(f"{number:3} killed by {verdict}: {mutation} ({failure})", flush=True)
            with self._rows.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerow([number, str(mutation), verdict, failure])
        os._exit(0)

    def _changed(self, mutation: Mutation) -> tuple[int, str] | None:
        """Run the tests of this stage with a mutation; return (status, the test that failed), or None in the fork."""
        original = mutation.path.read_bytes()
        tree = mutation.tree()
        # Processes that a test starts read the file; this process has read it before.
        mutation.path.write_text(ast.unparse(tree) + "\n", encoding="utf-8")
        reader, self._failures = os.pipe()
        sys.stdout.flush()
        if os.fork() == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (self._limit, self._limit))  # type: ignore[arg-type]
            patch(mutation, tree)
            return None
        os.close(self._failures)
        _, status = os.wait()
        mutation.path.write_bytes(original)
        with os.fdopen(reader, encoding="utf-8") as file:
            return os.waitstatus_to_exitcode(status), file.readline().strip()

    def _unchanged(self) -> float | None:
        """Run all tests in a fork; return their processor seconds, or None in the fork."""
        first_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if os.fork() == 0:
            return None
        _, status = os.wait()
        last_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = last_usage.ru_utime + last_usage.ru_stime - first_usage.ru_utime - first_usage.ru_stime
        print(f"\nunchanged: {seconds:.0f} processor seconds, exit {os.waitstatus_to_exitcode(status)}", flush=True)
        return seconds

    def pytest_runtest_logstart(self) -> None:
        if self._failures >= 0:  # a change may let a test wait forever
            signal.alarm(self._limit or 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failures >= 0:
            os.write(self._failures, f"{report.nodeid}\n".encode())

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """End a fork before its summary."""
        sys.stdout.flush()
        os._exit(int(exitstatus))


def run_in_worktree(arguments: argparse.Namespace) -> None:
    """Run this script in a worktree that is thrown away, with the package as committed there first on the path."""
    checkout = PACKAGE.parent
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "checkout"
        (Path(folder) / "shared").symlink_to(checkout.parent / "shared")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree], cwd=checkout, check=True)
        try:
            command = [sys.executable, "-m", "scripts.checks.mutations", *sys.argv[1:]]
            command += ["--in-place", "--rows", str(arguments.rows.resolve())]
            subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=checkout, check=True)


def main() -> None:
    """Sample mutations of a folder of the package and print which tests notice each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="of the package, e.g. keyframes/samplers")
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutations of this sample")
    parser.add_argument("--tests", nargs="+", help="tests to run; by default those of the area")
    parser.add_argument("--limit", type=int, help="processor seconds of a stage, and seconds of a test")
    parser.add_argument("--rows", type=Path, default=Path("mutations.csv"), help="CSV to which each result is added")
    parser.add_argument("--in-place", action="store_true", help="change files of this checkout, not of a worktree")
    arguments = parser.parse_args()
    if not arguments.in_place:
        run_in_worktree(arguments)
        return
    paths = sorted((PACKAGE / arguments.folder).rglob("*.py"))
    mutations = [mutation for path in paths for mutation in mutations_of(path)]
    sample = list(enumerate(random.Random(arguments.seed).sample(mutations, arguments.number)))
    print(f"{len(mutations)} mutations in {len(paths)} files; {arguments.number} of them, seed {arguments.seed}")
    wanted = sample if arguments.only is None else [sample[number] for number in arguments.only]
    tests = arguments.tests or [f"tests/{arguments.folder}", *MORE_TESTS.get(arguments.folder, [])]
    pytest.main(
        ["-x", "-q", "--no-header", "--tb=no", *tests], plugins=[Forks(wanted, arguments.rows, arguments.limit)]
    )


if __name__ == "__main__":
    main()
