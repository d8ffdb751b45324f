"""Writes keyframes for others to read: contact sheets, picture files and chat messages."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypedDict

from focus_eval.core.errors import InvalidInput, printable
from focus_eval.core.types import usable_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

# More keyframes would be illegible on a contact sheet.
MAX_SHOWN = 512
_EXIF_DESCRIPTION = 0x010E


class TextPart(TypedDict):
    """Text within a chat message."""

    type: Literal["text"]
    text: str


class PicturePart(TypedDict):
    """A PIL image within a chat message, as transformers' processors take it."""

    type: Literal["image"]
    image: Image


class ImageUrl(TypedDict):
    """The address of a picture: a data URL."""

    url: str


class UrlPart(TypedDict):
    """A picture by its address within a chat message, as OpenAI's interface takes it."""

    type: Literal["image_url"]
    image_url: ImageUrl


class ChatMessage(TypedDict):
    """One message of a chat: texts and pictures in order."""

    role: Literal["user"]
    content: list[TextPart | PicturePart | UrlPart]


def checked_sheet(path: str | Path) -> Path:
    """Return the path of a contact sheet; raise InvalidInput if no sheet can be written there."""
    file = usable_path(path, "a sheet")
    if file.suffix.lower() not in ("", ".png", ".pdf", ".svg") or file.is_dir():
        raise InvalidInput(f"{file}: a contact sheet is written to a .png, .pdf or .svg file")
    return file


def check_shown(n_keyframes: int) -> None:
    """Raise InvalidInput for more keyframes than a contact sheet shows."""
    if n_keyframes > MAX_SHOWN:
        raise InvalidInput(f"a contact sheet shows at most {MAX_SHOWN} keyframes, not {n_keyframes}")


def sheet_html(sheet: Figure) -> str:
    """Return a contact sheet as HTML that holds its picture."""
    from focus_eval.keyframes.figures import write_figure

    buffer = io.BytesIO()
    write_figure(sheet, buffer, dpi=100, kind="png")
    picture = base64.b64encode(buffer.getvalue()).decode()
    return f'<img style="max-width: 100%" alt="keyframes" src="data:image/png;base64,{picture}">'


def write_pictures(
    folder: str | Path, pictures: Iterable[tuple[int, float, Image]], *, video: Path, query: str, suffix: str
) -> list[Path]:
    """Write keyframes as pictures, named after video, time and frame; return their paths, sorted.

    Args:
        folder: made if needed. Either all pictures are written or none.
        pictures: frame, time in seconds and image of each keyframe.
        suffix: .jpg (quality 95) or .png.

    Raises:
        InvalidInput: another suffix, or a folder that cannot be written.
    """
    if suffix not in (".jpg", ".png"):
        raise InvalidInput(f"suffix must be .jpg or .png, got {suffix!r}")
    target = usable_path(folder, "a folder of frames")
    is_new = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target, prefix=".part") as part:
            for frame, seconds, image in pictures:
                clock = f"{int(seconds) // 3600}h{int(seconds) // 60 % 60:02d}m{seconds % 60:06.3f}s"
                exif = image.getexif()
                exif[_EXIF_DESCRIPTION] = printable(f"{video.name}, {seconds:.3f} s, frame {frame}: {query}")
                image.save(Path(part) / f"{video.stem}_{clock}_{frame}{suffix}", exif=exif, quality=95)
            return [path.replace(target / path.name) for path in sorted(Path(part).iterdir())]
    except OSError as error:
        raise InvalidInput(f"{target}: frames cannot be written ({error.strerror or error})") from error
    finally:
        if is_new:
            with suppress(OSError):  # fails if the folder has other files, which must stay
                target.rmdir()


def chat_message(
    client: Literal["openai", "transformers"], times: Sequence[float], images: Iterable[Image], *, text: str
) -> ChatMessage:
    """Return one chat message: each image after its time in seconds, then `text`.

    Raises:
        InvalidInput: another client.
    """
    if client not in ("openai", "transformers"):
        raise InvalidInput(f"client must be openai or transformers, got {client!r}")
    parts: list[TextPart | PicturePart | UrlPart] = []
    for seconds, image in zip(times, images, strict=True):
        parts.append({"type": "text", "text": f"[{seconds:.1f} s]"})
        if client == "transformers":
            parts.append({"type": "image", "image": image})
        else:
            parts.append({"type": "image_url", "image_url": {"url": _data_url(image)}})
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _data_url(image: Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
