"""A model hub on this machine, so that `hf download`, datasets and lmms-eval fetch as they do from the real one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.keyframes.local_server import Handler, LocalServer


@dataclass(frozen=True, kw_only=True)
class HubRepository:
    """One repository at one commit.

    Args:
        name: "owner/name".
        kind: "model" or "dataset".
        folder: its files.
        commit: 40 hexadecimal digits.
        refs: other names of that commit, besides "main".
        is_gated: whether a token is needed.
    """

    name: str
    kind: str
    folder: Path
    commit: str
    refs: tuple[str, ...] = ()
    is_gated: bool = False

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files by their path in the repository."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in paths}

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 by path: what the hub calls an etag."""
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self.files.items()}

    def has(self, revision: str) -> bool:
        """Return whether `revision` names this commit."""
        return revision in ("main", self.commit, *self.refs)


@dataclass
class LocalHub(LocalServer):
    """Serves repositories on a free port of this machine; a context manager.

    Its `url` is for HF_ENDPOINT. It knows what the hub's own clients ask: a repository's commit, its tree, paths, and
    files with their etags.
    """

    repositories: tuple[HubRepository, ...]
    requests: list[str] = field(default_factory=list)

    def find(self, kind: str, name: str) -> HubRepository | None:
        """Return the repository of that name."""
        return next(
            (repository for repository in self.repositories if (repository.kind, repository.name) == (kind, name)), None
        )


class _Handler(Handler):
    """Answers one connection as the hub does: its API, and the files of its repositories."""

    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        """Note the request and answer it, from the API or with a file."""
        body = self.read_body()
        hub: LocalHub = self.owner
        path = urlsplit(self.path).path
        hub.requests.append(f"{self.command} {path}")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) > 3 and parts[1] in ("models", "datasets"):
            return self._api(hub.find(parts[1][:-1], "/".join(parts[2:4])), parts[4:], body)
        kind = "dataset" if parts[0] == "datasets" else "model"
        parts = parts[1:] if kind == "dataset" else parts
        if len(parts) > 4 and parts[2] == "resolve":
            return self._resolve(hub.find(kind, "/".join(parts[:2])), parts[3], "/".join(parts[4:]))
        return self._error(404, "EntryNotFound")

    do_GET = do_HEAD = do_POST = _serve

    def _api(self, repository: HubRepository | None, parts: list[str], body: bytes) -> None:
        """Send what the hub's API says of a repository: its revision, its tree, or some of its paths."""
        if repository is None:
            return self._error(401, "RepoNotFound")
        action, revision, *path_parts = [*parts, "main"] if len(parts) == 1 else (parts or ["revision", "main"])
        if not repository.has(revision):
            return self._error(404, "RevisionNotFound")
        if action == "revision":
            siblings = [{"rfilename": name} for name in repository.files]
            return self.send_json({"id": repository.name, "sha": repository.commit, "siblings": siblings, "tags": []})
        if action == "tree":
            return self.send_json(_entries(repository, "/".join(path_parts)))
        if action == "paths-info":
            return self.send_json(_paths(repository, _asked_paths(body, self.headers.get("Content-Type", ""))))
        return self._error(404, "EntryNotFound")

    def _resolve(self, repository: HubRepository | None, revision: str, name: str) -> None:
        """Send a file of a revision, or the error that the hub would send."""
        if repository is None:
            return self._error(401, "RepoNotFound")
        if repository.is_gated and not self.headers.get("Authorization"):
            return self._error(401, "GatedRepo", f"Access to dataset {repository.name} is restricted")
        if not repository.has(revision):
            return self._error(404, "RevisionNotFound")
        if name not in repository.files:
            return self._error(404, "EntryNotFound", commit=repository.commit)
        return self._file(repository, name)

    def _file(self, repository: HubRepository, name: str) -> None:
        """Send a file from the first byte that the request's range names; without its content for HEAD."""
        data = repository.files[name].read_bytes()
        first = 0
        if self.headers.get("Range"):
            first = int(self.headers["Range"].partition("=")[2].partition("-")[0])
        self.send_response(206 if first else 200)
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("ETag", f'"{repository.digests[name]}"')
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[first:])

    def _error(self, status: int, code: str, message: str = "", *, commit: str = "") -> None:
        """Send an error as the hub does, with its code and message in headers and no content."""
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message or code)
        if commit:
            self.send_header("X-Repo-Commit", commit)
        self.send_header("Content-Length", "0")
        self.end_headers()


LocalHub.handler = _Handler


def _entries(repository: HubRepository, prefix: str) -> list[dict[str, Any]]:
    """Return every file and folder below a folder of the repository ("" is all of it)."""
    prefix = f"{prefix}/" if prefix else ""
    folders = {str(parent) for name in repository.files for parent in Path(name).parents if str(parent) != "."}
    files = [_file(repository, name) for name in repository.files if name.startswith(prefix)]
    return [*({"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in sorted(folders)), *files]


def _paths(repository: HubRepository, paths: list[str]) -> list[dict[str, Any]]:
    """Return the hub's entries of those of the paths that the repository has."""
    entry_by_path = {entry["path"]: entry for entry in _entries(repository, "")}
    return [entry_by_path[path] for path in paths if path in entry_by_path]


def _file(repository: HubRepository, name: str) -> dict[str, Any]:
    """Return the hub's entry of a file."""
    digest, size = repository.digests[name], repository.files[name].stat().st_size
    return {"type": "file", "path": name, "size": size, "oid": digest[:40]}


def _asked_paths(body: bytes, content_type: str) -> list[str]:
    """Return the paths that a request's JSON or form names; none if it names none."""
    if "json" in content_type:
        paths = json.loads(body)["paths"]
        return [paths] if isinstance(paths, str) else list(paths)
    from urllib.parse import parse_qs

    return parse_qs(body.decode()).get("paths", [])
