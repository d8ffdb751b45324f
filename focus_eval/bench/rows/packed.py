"""Packs a run's folder into a zip file with checksums, and unpacks such files without trusting them."""

from __future__ import annotations

import hashlib
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

from focus_eval.core.errors import DamagedFile, InvalidInput
from focus_eval.core.files import replace_file
from focus_eval.keyframes.rows.files import locked_at_once

# File of checksums inside the zip (sha256sum format). It is not unpacked, since it would be wrong once the run grows.
SUMS_FILE = "SHA256SUMS"
# Folders whose parts lie one level below. Parts may be links: search with `*/*`, which follows links unlike `**`.
_PARTS = ("selections", "answers")
_ROWS = ("*.json", "*.jsonl", "*.parquet")
_PACKED_FILES = (
    "*.json", "*.jsonl", "report*.*", "methods.md", "references.bib", "traces/*.jsonl",
    *(f"{kind}/{subfolder}{name}" for kind in _PARTS for subfolder in ("", "*/") for name in _ROWS),
)  # fmt: skip
_PICTURES = ("figures/*", "report_thumbnails/*")
_PACKED_ALREADY = {".parquet", ".png", ".jpg", ".pdf"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # one fixed date, so that the same rows give the same file
# Limits against zip bombs: growth factor, and bytes allowed in any case. Our rows compress to about a twentieth.
_MAX_GROWTH, _ALWAYS_BYTES = 200, 64_000_000
_BLOCK_BYTES = 1 << 20
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+")
_UNPACKED: dict[tuple[Path, int, int], tempfile.TemporaryDirectory[str]] = {}


def pack_run(folder: Path, out: Path, *, pictures: bool = False) -> list[str]:
    """Write the run in `folder` to the zip file `out`, and return its contents.

    Contains rows, costs, descriptions, prompt records, traces and the report's files; the same folder gives the same
    bytes.

    Args:
        pictures: pack figures and linked thumbnails too.

    Raises:
        InvalidInput: `folder` is no run or has a broken link, or `out` cannot be written.
            RunError: a run is writing to `folder`.
    """
    check_links(folder)
    if out.suffix != ".zip":
        raise InvalidInput(f"{out}: a packed run is a .zip file")
    if url := object_url(out):
        raise InvalidInput(f"{url}: pack to a file here, then copy it there")
    paths = {path for pattern in (*_PACKED_FILES, *(_PICTURES if pictures else ())) for path in folder.glob(pattern)}
    names = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    packed_names = sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))
    if not any(name.split("/")[0] in _PARTS for name in packed_names):
        raise InvalidInput(f"{folder}: no rows under selections/ or answers/ to pack")
    run = folder.resolve().name
    out.parent.mkdir(parents=True, exist_ok=True)
    # Only our own runs have a lock.
    lock, refusal = folder / ".lock", "another run writes here; pack it when it has ended"
    with (
        locked_at_once(lock, refusal) if lock.exists() else nullcontext(),
        replace_file(out) as part,
        zipfile.ZipFile(part, "w") as file,
    ):
        sums = [f"{_add(file, f'{run}/{name}', names[name])}  {name}\n" for name in packed_names]
        file.writestr(_entry(f"{run}/{SUMS_FILE}"), "".join(sums))
    return packed_names


def object_url(path: Path) -> str | None:
    """Return `path` as the URL of an object store ("s3://..."); None if it is a local path."""
    match = _URL.match(str(path))
    return f"{match[1]}://{str(path)[match.end() :]}" if match and not path.exists() else None


def unpack_run(file: Path, out: Path | None = None) -> Path:
    """Write the run packed in `file` to the new folder `out`, by default the run's name here, and return it.

    A failure leaves no files behind.

    Raises:
        DamagedFile: `file` is no zip file, or its content does not match the checksums.
            InvalidInput: `out` is not empty, or the zip file is no packed run: it has a path that leaves the folder, a
                link,
                a repeated name, or more data than a run of this size can hold.
    """
    with _opened(file) as packed:
        run, entries = _checked(packed, file)
        target = out if out is not None else Path(run)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidInput(f"{target}: is there already; name another folder with --out")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as unfinished:
            unpacked = Path(unfinished) / "run"
            unpacked.mkdir()
            _extract(packed, entries, unpacked, file)
            if target.exists():
                target.rmdir()
            unpacked.rename(target)
    return target


def run_folder(path: Path) -> Path:
    """Return the folder of a run: `path` itself, or, for a packed `.zip`, a temporary folder with its content.

    A process unpacks each file once, and removes the temporary folder when it ends.

    Raises:
        InvalidInput: as `unpack_run`.
    """
    if path.suffix != ".zip" or not path.is_file():
        return path
    state = path.stat()
    key = (path.resolve(), state.st_mtime_ns, state.st_size)
    if key not in _UNPACKED:
        with _opened(path) as packed:
            run, _ = _checked(packed, path)
        temporary = tempfile.TemporaryDirectory(prefix="focus-eval-")
        unpack_run(path, Path(temporary.name) / run)
        _UNPACKED[key] = temporary
    return next(Path(_UNPACKED[key].name).iterdir())


def check_links(folder: Path) -> None:
    """Raise InvalidInput for a missing folder or a broken link among its parts; the message says how to move a run."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder")
    parts = [path for kind in _PARTS for path in sorted(folder.glob(f"{kind}/*"))]
    lost = [path for path in parts if path.is_symlink() and not path.exists()]
    if lost:
        raise InvalidInput(
            f"{lost[0]}: its rows are not here, it is a link to {lost[0].readlink()} ({len(lost)} of {len(parts)} "
            "parts); copy a run with focus-eval pack, or together with the folder that its links name"
        )


def _entry(name: str) -> zipfile.ZipInfo:
    """The header of a zip entry: fixed date and mode, so that the same content packs to the same bytes."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    is_small = Path(name).suffix in _PACKED_ALREADY
    entry.compress_type = zipfile.ZIP_STORED if is_small else zipfile.ZIP_DEFLATED
    return entry


def _add(file: zipfile.ZipFile, name: str, path: Path) -> str:
    """Add the file at `path` to the open zip file as entry `name`; return the SHA-256 of its content.

    Raises InvalidInput for a name that `_bad_name` refuses.
    """
    if reason := _bad_name(name):
        raise InvalidInput(f"{path}: cannot be packed, its name {reason}")
    entry = _entry(name)
    entry.file_size = path.stat().st_size  # decides whether the entry needs zip64
    with open(path, "rb") as source, file.open(entry, "w") as target:
        return _copy(source, target)


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy `source` to `target` and return the content's SHA-256."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK_BYTES):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for reading; errors in the block that mean a broken file become DamagedFile."""
    try:
        with zipfile.ZipFile(file) as packed:
            yield packed
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, UnicodeError) as error:
        raise DamagedFile(f"{file}: not a whole zip file ({error}); copy it again") from error


def _checked(packed: zipfile.ZipFile, file: Path) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    """Return the run's name and its zip entries by path inside the run, checked before anything is written.

    Raises an error for names that leave the folder, links, encryption or other unexpected entries.
    """
    entries = [entry for entry in packed.infolist() if not entry.is_dir()]
    names: set[str] = set()
    for entry in entries:
        repeat = "is there twice" if entry.filename in names else ""
        if reason := repeat or _bad_name(entry.filename) or _bad_kind(entry):
            raise InvalidInput(f"{file}: {entry.filename!r} {reason}; not a packed run")
        names.add(entry.filename)
    size, grown = file.stat().st_size, sum(entry.file_size for entry in entries)
    if grown > max(_ALWAYS_BYTES, _MAX_GROWTH * size):
        raise InvalidInput(f"{file}: {size:,} bytes that would become {grown:,}; not a packed run")
    runs = {name.partition("/")[0] for name in names}
    run = min(runs, default="")
    if len(runs) != 1 or f"{run}/{SUMS_FILE}" not in names:
        raise InvalidInput(f"{file}: has no {SUMS_FILE} in one folder; not a packed run (focus-eval pack makes one)")
    return run, {entry.filename.partition("/")[2]: entry for entry in entries}


def _bad_name(name: str) -> str:
    """The reason, as the end of a sentence, why a zip entry of this path is refused; "" if it is accepted."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "leads out of its folder"
    return "has a character that no path of a run has" if re.search(r"[\x00-\x1f\\]", name) else ""


def _bad_kind(entry: zipfile.ZipInfo) -> str:
    """The reason, as the end of a sentence, why this kind of zip entry is refused; "" if it is accepted."""
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "is a link or a device"
    is_plain = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not entry.flag_bits & 1
    return "" if is_plain else "is compressed or encrypted in a way that a packed run is not"


def _extract(packed: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], folder: Path, file: Path) -> None:
    """Write `entries` below `folder` and compare each with its SHA-256 in the packed list.

    Raise DamagedFile on a difference.
    """
    # Lines `DIGEST  NAME`.
    parts = (line.partition("  ") for line in packed.read(entries.pop(SUMS_FILE)).decode().splitlines())
    sums = {name: digest for digest, _, name in parts}
    if differing := sorted(sums.keys() ^ entries.keys()):
        raise DamagedFile(f"{file}: {differing[0]!r} is not both in it and in its {SUMS_FILE}; copy it again")
    for name, entry in entries.items():
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # zipfile reads at most the stated size, and raises an error if the content has another size.
            with packed.open(entry) as source, open(target, "xb") as written:
                digest = _copy(source, written)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInput(f"{file}: {name!r} is both a file and a folder; not a packed run") from error
        if digest != sums[name]:
            raise DamagedFile(f"{file}: {name} does not match its SHA-256; copy the file again")
