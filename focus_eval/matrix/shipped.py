"""The matrices that travel with the package, found by name."""

from __future__ import annotations

import shutil
from pathlib import Path

from focus_eval.errors import InvalidInput, unknown_name
from focus_eval.matrix.yaml_source import load_yaml
from focus_eval.resources import resource_path

# Beside the matrices, but read by another command.
NO_MATRICES = ("simulation.yaml",)


def shipped_matrices() -> dict[str, Path]:
    """Return the shipped matrix files by name: the paper's tables, then the ablations, then the demo."""
    configs = resource_path("configs")
    files = [file for folder in ("paper", "ablations", "") for file in sorted((configs / folder).glob("*.yaml"))]
    return {file.stem: file for file in files if file.name not in NO_MATRICES}


def find_matrix(name: str | Path) -> Path:
    """Return the matrix file that `name` means: a file, or the name of a shipped one ("alpha", "paper/alpha.yaml").

    Raises:
        UnknownName: neither; the message has the nearest name.
    """
    file = Path(name)
    if file.is_file():
        return file
    # A path from the repository works from an installed package too.
    tail = Path(*file.parts[1:]) if file.parts[:1] == ("configs",) else file
    inside = resource_path("configs") / tail
    if inside.suffix == ".yaml" and inside.is_file():
        return inside
    shipped = shipped_matrices()
    if file.name not in shipped:
        if file.suffix or len(file.parts) > 1:
            raise InvalidInput(f"{file}: no such file; shipped matrices: {', '.join(shipped)}")
        raise unknown_name("matrix", str(name), shipped)
    return shipped[file.name]


def title_of(file: Path) -> str:
    """Return the first sentence of the comment that a matrix file begins with; "" where it has none."""
    first = file.read_text(encoding="utf-8").splitlines()[0]
    return first.lstrip("# ").partition(". ")[0].rstrip(".") if first.startswith("#") else ""


def copy_configs(folder: Path) -> list[Path]:
    """Copy all shipped configs to `folder`, with the parts they name, and return the copies.

    Raises:
        InvalidInput: a file that is there already; none is overwritten, and none is written then.
    """
    source = resource_path("configs")
    files = sorted(path.relative_to(source) for path in source.rglob("*.yaml"))
    there = [folder / file for file in files if (folder / file).exists()]
    # All are looked at before the first is copied: nothing is left half done.
    if there:
        raise InvalidInput(f"{there[0]}: already exists and is not overwritten; name a folder without configs")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, folder / file)
    return [folder / file for file in files]


def table_of(file: Path) -> str:
    """Return which of the paper's tables a matrix file is about; "" for none."""
    return str(load_yaml(file).get("table", ""))
