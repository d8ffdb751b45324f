"""The index of lmms-eval's own tasks, read once for all processes of a test run: thousands of files take seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
                path.write_text(json.dumps(read_folder(manager, folder)), encoding="utf-8")
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return index

    tasks.TaskManager._get_task_and_group = read_own_folder_once
