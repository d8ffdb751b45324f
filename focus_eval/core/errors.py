"""The errors that focus-eval raises on purpose.

>>> issubclass(errors.UnknownName, errors.FocusEvalError)
True
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

# `errno` of the OSError of a place where this user may write nothing, now or later.
NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
# Control characters, unusual line ends, bidirectional marks and lone surrogates.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class FocusEvalError(Exception):
    """Base class of all errors meant for the user; the command line prints the message and exits with code 2."""


class InvalidInput(FocusEvalError, ValueError):
    """A value outside its range or of the wrong kind."""


class DamagedFile(InvalidInput):
    """A stored file that was altered after it was written; the message names the file and the remedy."""


class RowsChanged(InvalidInput):
    """A run wrote to the rows while they were read; reading them again succeeds.

    Args:
        change: text that names the file or folder and says what happened to it.
    """

    def __init__(self, change: str) -> None:
        self.what = f"{change} while it was read: a run is writing here"
        super().__init__(f"{self.what}; run the command again")


class UnknownName(InvalidInput):
    """An unknown name or option."""


class MissingDependency(FocusEvalError, ImportError):
    """An extra that is not installed; the message names the install command."""


class PluginError(FocusEvalError):
    """A plugin that cannot be loaded, is not of the kind it is registered as, or uses a name that is taken."""


class MissingWeights(FocusEvalError):
    """A checkpoint that is not on this machine; the message says which, how large and how to fetch it."""


class VideoError(FocusEvalError):
    """A video file that cannot be read as requested; the message starts with its path."""


class DamagedFrame(VideoError):
    """One frame cannot be decoded; other frames of the same file may still be decodable."""


class EncoderError(FocusEvalError):
    """An encoder that returned no usable relevance, or cannot provide the requested output."""


class SamplerError(FocusEvalError):
    """A sampler that broke its contract."""


class BrokenContract(SamplerError):
    """A sampler that violated the sampler contract; `promise` names the violated rule in one word."""

    promise: str = ""


class SelectionMismatch(FocusEvalError):
    """A published or stored selection that does not fit the question or the video."""


class AnswerError(FocusEvalError):
    """A model or an API that returned no usable answer to one question; `usage` is what the attempt cost, if known."""

    usage: Mapping[str, float] = MappingProxyType({})


class RunError(FocusEvalError):
    """A run that cannot continue (locked folder, too many failed questions)."""


# A message that suggests a similar name also lists all names if there are at most this many of them.
MAX_LISTED = 8


def is_device_failure(error: BaseException) -> bool:
    """Return True if `error` says that the GPU failed and that all later GPU calls of this process will fail too."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def unknown_name(kind: str, name: str, names: Iterable[str]) -> UnknownName:
    """Return, without raising it, the error for a `name` that is not one of `names`.

    The message suggests the most similar of `names`. It lists all `names` if there are at most `MAX_LISTED`, or if
    none is similar.
    """
    options = sorted(names)
    hint = nearest(name, options)
    if not hint or len(options) <= MAX_LISTED:
        hint = f"{hint or ';'} known: {', '.join(options) or 'none'}"
    return UnknownName(f"unknown {kind} {name!r}{hint}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint such as "; did you mean 'focus'?" with the most similar of `names`; "" if none is similar."""
    # Compare the first word only: users append options after a space.
    matches = difflib.get_close_matches(name.split(" ")[0], list(names), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def printable(text: str) -> str:
    """Return `text` with each control character, which could rewrite a terminal, replaced by U+FFFD."""
    return _CONTROL.sub("\ufffd", text)
