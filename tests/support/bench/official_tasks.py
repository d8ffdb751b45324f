"""The index of lmms-eval's own tasks, read once for all processes of a test run: thousands of files take seconds.

`python -m tests.support.bench.official_tasks INDEX MODULE ARGUMENTS` runs a module with it, as `python -m` would.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from filelock import FileLock


def share_index(path: Path) -> None:
    """Make lmms-eval's task managers of this process read the index of its own tasks from `path`.

    The first of all processes that needs the index writes the file. Folders of tasks of others are read as ever.
    """
    from lmms_eval import tasks

    own_folder = Path(tasks.__file__).parent
    read_folder = tasks.TaskManager._get_task_and_group

    def read_own_folder_once(manager: Any, folder: str) -> dict[str, Any]:
        if Path(folder) != own_folder:
            return dict(read_folder(manager, folder))
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                with _yaml_read_by_libyaml():
                    path.write_text(json.dumps(read_folder(manager, folder)), encoding="utf-8")
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return index

    tasks.TaskManager._get_task_and_group = read_own_folder_once


@contextmanager
def _yaml_read_by_libyaml() -> Iterator[None]:
    """Let lmms-eval read files for its index with the parser in C, whose documents are the same."""
    from lmms_eval import utils

    loader = getattr(yaml, "CFullLoader", yaml.FullLoader)  # PyYAML may be built without it
    yaml.add_constructor("!function", utils.ignore_constructor, loader)
    with mock.patch.object(yaml, "full_load", partial(yaml.load, Loader=loader)):
        yield


if __name__ == "__main__":
    share_index(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
