"""The errors that focus-eval raises on purpose."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

# Controls, other ends of lines, marks that turn the direction of text, and halves of characters.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class FocusEvalError(Exception):
    """Base of every error meant for the user: what, where, what to do; exit code 2 on the command line."""


class InvalidInput(FocusEvalError, ValueError):
    """A value outside its range or of the wrong kind."""


class DamagedFile(InvalidInput):
    """A stored file that is not what was written; the message names it and says what a run does with it."""


class RowsChanged(InvalidInput):
    """Rows that a run wrote to while they were read; read again they are whole.

    Args:
        what: the file or folder, and what happened to it.
    """

    def __init__(self, what: str) -> None:
        self.what = f"{what} while it was read: a run is writing here"
        super().__init__(f"{self.what}; run the command again")


class UnknownName(InvalidInput):
    """An unknown name or option."""


class MissingDependency(FocusEvalError, ImportError):
    """An extra that is not installed; the message names the install command."""


class PluginError(FocusEvalError):
    """A plugin that cannot be loaded, is not what it says, or takes a name that is taken."""


class MissingWeights(FocusEvalError):
    """A checkpoint that is not on this machine; the message says which, how large and how to fetch it."""


class VideoError(FocusEvalError):
    """A video file that cannot be read as asked; the message starts with its path."""


class EncoderError(FocusEvalError):
    """A scorer that gave no usable relevance, or was asked for what it cannot give."""


class SamplerError(FocusEvalError):
    """A sampler that broke its contract."""


class BrokenContract(SamplerError):
    """A sampler that did not keep what every sampler promises; `promise` says in one word what."""

    promise: str = ""


class SelectionMismatch(FocusEvalError):
    """A published or stored selection that does not fit the question or the video."""


class AnswerError(FocusEvalError):
    """A model or an API that gave no usable answer to one question; `usage` says what was spent on it, where known."""

    usage: Mapping[str, float] = MappingProxyType({})


class RunError(FocusEvalError):
    """A run that cannot go on as a whole (locked folder, too many failed questions)."""


# A name that is nearly right needs no longer list than this behind it.
MOST_LISTED = 8


def is_device_failure(error: BaseException) -> bool:
    """Whether a GPU itself failed: no later call on it in this process can succeed."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """Return the error for an unknown `name`: the nearest of `known`; all where they are few or none is near."""
    options = sorted(known)
    hint = nearest(name, options)
    if not hint or len(options) <= MOST_LISTED:
        hint = f"{hint or ';'} known: {', '.join(options) or 'none'}"
    return UnknownName(f"unknown {kind} {name!r}{hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'focus'?" where one of `known` is near `name`, else ""."""
    # A name with something behind it, such as an option after a space, is near too.
    found = difflib.get_close_matches(name.split(" ")[0], list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def printable(text: str) -> str:
    """Return `text` without control characters, which could rewrite a terminal; each becomes U+FFFD."""
    return _CONTROL.sub("\ufffd", text)
