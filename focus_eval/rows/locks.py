"""Lock files among processes, with an error that names a folder whose file system has no locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from focus_eval.core.errors import RunError

__all__ = ["FolderLock", "Timeout"]


class FolderLock(FileLock):
    """A lock of the operating system on a file, which ends with the process, also after a kill.

    Raises:
        Timeout: another process holds it for longer than `timeout` seconds.
        RunError: the folder's file system gives no locks, or has no room for the file.
    """

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        """Take the lock, as `FileLock.acquire`; Timeout passes, other errors of the system become RunError."""
        try:
            return super().acquire(*args, **kwargs)
        except Timeout:
            raise
        except OSError as error:
            folder = Path(self.lock_file).parent
            raise RunError(
                f"{folder}: cannot be locked ({error.strerror or error}); use a folder on a local disk, or mount it "
                "with locks"
            ) from error
