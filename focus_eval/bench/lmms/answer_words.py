"""Words with which a reply announces, denies or doubts an option, by language and role.

    roles_of_words()["respuesta"]  # "answer"

`answer_words.yaml` lists them, `replies.py` reads an answer with them. A word of any language counts in every reply,
because models mix languages.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from focus_eval.core.resources import read_yaml

# Letters that are also words (an article, or "and"), with the languages in which they are. Before a word of such a
# language, as in "A resposta", "A odpowiedź" or "А правильный ответ", the letter is not an option.
_WORD_LETTERS = {"A": ("en", "pt", "hu", "pl", "cs"), "E": ("pt", "it"), "А": ("ru", "uk")}


@cache
def _words_by_language() -> dict[str, dict[str, list[str]]]:
    languages = read_yaml(Path(__file__).with_suffix(".yaml"))
    return {
        language: {role: [phrase.strip().casefold() for phrase in text.split(",")] for role, text in roles.items()}
        for language, roles in languages.items()
    }


@cache
def roles_of_words() -> dict[str, str]:
    """Return the role of each word or phrase, in lower case; phrases have single blanks. Cached.

    If a word has two roles in two languages, the more cautious one counts: "no" denies, though it is Portuguese for
    "in the".
    """
    roles: dict[str, str] = {}
    for role in _BY_CAUTION:
        for words in _words_by_language().values():
            roles |= dict.fromkeys(words.get(role, ()), role)
    return roles


_BY_CAUTION = (
    "link", "that", "self", "pick", "and", "because", "so", "but", "choose", "correct", "answer", "report", "wait",
    "or", "maybe", "if", "asks", "not_so", "not",
)  # fmt: skip


@cache
def words_after(letter: str) -> frozenset[str]:
    """Return the words before which a lone `letter` is a word of some language and no option. Cached."""
    languages = _WORD_LETTERS.get(letter, ())
    return frozenset(
        word
        for language in languages
        for role in ("answer", "correct")
        for word in _words_by_language()[language][role]
    )
