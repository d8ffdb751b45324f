"""Reads the one option that a reply names, in any of the languages of `answer_words.py`.

    read_option("La respuesta correcta es la B", ("red", "blue"))  # "B"

A reply is turned into sentences of signs, with one sign for each word: `n` for a word that means the answer, `r` for a
word that means right, `X` for an option's letter, and so on (see `_SIGNS`). Regular expressions over these signs then
state, once for all languages, what announces an option, what denies or doubts it, and what names several.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from focus_eval.bench.benchmarks.question import letters
from focus_eval.bench.lmms.answer_words import roles_of_words, words_after

# Sign by role of a word. Further signs: X for an option's letter, M for several letters, T for the option's text behind
# its letter, w for any other word, "," for a pause, ":" for a colon, ! for a cross or an empty box.
_SIGNS = {
    "answer": "n", "correct": "r", "choose": "c", "pick": "k", "self": "i", "link": "l", "not": "d", "not_so": "D",
    "if": "f", "maybe": "u", "or": "o", "and": "a", "because": "b", "so": "s", "but": "t", "asks": "?", "wait": "z",
    "that": "h", "report": "v",
}  # fmt: skip
_UNREADABLE = "?"
# Zero-width non-joiner, used inside Persian words.
_NON_JOINER = "\u200c"

# "<answer>B</answer>", also where generation stopped at the closing tag; "\boxed{B}"; GLM's box.
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|$)|<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|$)", re.S | re.I)
_BOXED = re.compile(r"\\f?boxed\s*\{([^{}]*)\}")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mathit)\s*\{([^{}]*)\}")
# Found in a box that may hold an option, such as "A or B", but not in "x^2".
_NAME = re.compile(r"(?<![\w\\])[A-Ha-h](?!\w)|^\s*[^\W\d_]\s*$")
# Tokens that end a turn, which some services leave in the text.
_END_OF_TURN = re.compile(r"(?:\s*(?:<\|[^|<>]+\|>|</s>|<eos>))+\s*$")
_EMPHASIS = re.compile(r"~~.*?~~|<(s|del)>.*?</\1>|\[[xXvV✓✔]\]|[*`]+|^#+\s*", re.MULTILINE)
_EMPTY_BOX = re.compile(r"\[ ?\]")
_CROSSES = frozenset("☐☒✗✘✖❌❎🚫")
# "e.g. B", "z. B. ein Auto"
_FOR_EXAMPLE = re.compile(r"\b(?:e\. ?g|z\. ?b|p\. ?ex|p\. ?ej)\.", re.IGNORECASE)

# Scripts without blanks between words; and Korean, whose endings are entries of their own in the word lists.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u3400-\u9fff"
    "\uac00-\ud7af"
)
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_LETTER_OF_WORD = rf"(?:[^\W{_UNSPACED}]|[{_MARKS}])"
_TOKEN = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+(?: +[{_UNSPACED}]+)*)|(?P<number>\d+(?:[.,:]\d+)*(?!{_LETTER_OF_WORD}))"
    rf"|(?P<word>{_LETTER_OF_WORD}+(?:['’]{_LETTER_OF_WORD}+)*['’]?)|(?P<newline>[^\S\n]*\n\s*)|(?P<mark>\S)"
)
_ELISION = re.compile(r"(?i:l|d|c|n|s|j|qu|dell|all|nell)['’]")
# Turkish endings of a letter: "B'dir", "B'yi", "A'dır".
_ENDING = re.compile(r"['’](?:[dt][iıuü]r|y[iıuü]|[iıuü]|[dt][ea]|n[iı]n)\.?$")
# Capitals of other alphabets that look like an option's letter: "В" may be the third letter or a B.
_LOOK_ALIKES = frozenset("АВСЕНΑΒΕΗ")
_OPENERS, _CLOSERS = frozenset("([{【「『"), frozenset(")]}】」』")
_PHRASE_WORDS = 4


@dataclass
class _SignedSentence:
    """Signs of the words of one sentence, with the letter behind each X.

    Args:
        values: as long as `signs`: an option's letter or `_UNREADABLE` at X and M, else "".
        is_question: ends with a question mark.
    """

    signs: str = ""
    values: list[str] = field(default_factory=list)
    is_question: bool = False

    def add(self, sign: str, value: str = "") -> None:
        self.signs += sign
        self.values.append(value)

    def without(self, pattern: re.Pattern[str], replacement: str = "") -> _SignedSentence:
        """Return the sentence with each match of `pattern` replaced by a sign without a readable letter."""
        signs, end = "", 0
        values: list[str] = []
        for match in pattern.finditer(self.signs):
            signs += self.signs[end : match.start()] + replacement
            values += [*self.values[end : match.start()], *[_UNREADABLE] * len(replacement)]
            end = match.end()
        return _SignedSentence(signs + self.signs[end:], [*values, *self.values[end:]], self.is_question)


def read_option(text: str, options: tuple[str, ...]) -> str | None:
    """Return the letter of the one option that `text` names, or None.

    If the reply marks its answer (`<answer>B</answer>`, `\\boxed{B}`), only the mark is read; a box without an option
    is no mark. Otherwise the reply names a letter at its start ("C", "(C) text"), by an announcement ("the answer is
    C", "Bが正解です"), or by a first or last sentence that says nothing else ("Probably C"). All named letters must
    agree. A letter that is denied, doubted, asked about or listed with another is not named. If no letter is named, the
    reply, or what follows "the answer is", must be the text of exactly one option.
    """
    text = without_marks(text)
    option_texts = {_folded(option) for option in options}
    marked = [
        part for part, is_box in _marked(text) if not is_box or _NAME.search(part) or _folded(part) in option_texts
    ]
    if marked:
        parts = {_read_plain(content, options) for content in marked}
        return parts.pop() if len(parts) == 1 else None
    return _read_plain(_BOXED.sub(" ", text), options)


def marked_parts(text: str) -> list[str]:
    """Return the texts inside the marks of an answer: `<answer>B</answer>`, `\\boxed{B}`."""
    return [part for part, _ in _marked(text)]


def _marked(text: str) -> list[tuple[str, bool]]:
    """The parts in marks of an answer, and for each True if the mark is LaTeX's box."""
    tagged = [(part, False) for groups in _ANSWER_TAG.findall(text) for part in groups if part]
    return tagged + [(part, True) for part in _BOXED.findall(text)]


def without_marks(text: str) -> str:
    """Return `text` with full-width letters and brackets made plain, without LaTeX's fonts and invisible signs."""
    normal = unicodedata.normalize("NFKC", _END_OF_TURN.sub("", text))
    seen = "".join(sign for sign in normal if unicodedata.category(sign) != "Cf" or sign == _NON_JOINER)
    return _LATEX_TEXT.sub(r"\1", seen).strip()


def _read_plain(text: str, options: tuple[str, ...]) -> str | None:
    """The letter of the one option that a text without marks names, or None."""
    plain = _EMPTY_BOX.sub("☐", _EMPHASIS.sub("", text))
    plain = _FOR_EXAMPLE.sub("such as", plain).strip().strip("\"'$").strip()
    tokens = _SignedReply(plain, options)
    named = _named_letters(tokens.sentences)
    if named:
        letter = named.pop()
        return letter if not named and letter in letters(len(options)) else None
    # The whole reply, or what follows "the answer is", is an option's text, perhaps beside its letter.
    texts = {_folded(plain), *(_folded(plain[end:]) for end in tokens.announcement_ends)}
    # Options may repeat: a text that fits two names neither.
    matching_letters = [
        letter
        for letter, option in zip(letters(len(options)), options, strict=True)
        if texts & {_folded(option), _folded(f"{letter} {option}"), _folded(f"{option} ({letter})")}
    ]
    return matching_letters[0] if len(matching_letters) == 1 else None


def _folded(text: str) -> str:
    """`text` in lower case with single blanks, without a final period or exclamation mark."""
    return " ".join(unicodedata.normalize("NFKC", text).strip().rstrip(".!。").casefold().split())


class _SignedReply:
    """A reply as sentences of signs.

    Attributes:
        sentences: those with at least one sign.
        announcement_ends: positions where an announcement at the start of the reply ("The answer is") may end. There
            may be several, because the next word ("a") may belong to the announcement or to the option's text.
    """

    def __init__(self, text: str, options: tuple[str, ...]) -> None:
        self._text = text
        self._options = options
        # Read A to H as letters of options always, and a later letter only if the question has that many options, since
        # "I", for example, is also a word.
        self._letters = letters(max(8, len(options)))
        self._listed_places = _places_of_list(text, self._letters)
        self._sentence = _SignedSentence()
        self.sentences: list[_SignedSentence] = []
        self.announcement_ends: list[int] = []
        self._read()

    def _read(self) -> None:
        position = 0
        while match := _TOKEN.search(self._text, position):
            position = self._add(match)
            if not self.sentences and re.fullmatch(r"[lirs]*n[lr:]*", self._sentence.signs):
                self.announcement_ends.append(position)
        self._end_sentence()

    def _add(self, match: re.Match[str]) -> int:
        """Add the token of `match` to the sentence; return where the next one may begin."""
        if match["word"]:
            return self._add_word(match)
        if match["unspaced"]:
            self._add_unspaced(match["unspaced"])
        elif match["number"]:
            self._sentence.add("w")
        elif match["newline"]:
            # A heading and an announcement go on in the next line: "The correct answer is:", "Answer".
            if not re.fullmatch(r"[^XM]*[:nrl]", self._sentence.signs):
                self._end_sentence()
        else:
            self._add_mark(match["mark"], match.end())
        return match.end()

    def _add_mark(self, mark: str, end: int) -> None:
        signs = self._sentence.signs
        if mark in "?؟":
            self._sentence.is_question = True
            self._end_sentence()
        elif mark in ".!。।…۔" or (mark == ";" and not signs):
            is_abbreviation = signs.endswith("n") and self._text[:end].casefold().endswith(_ABBREVIATIONS)
            if not is_abbreviation:
                self._end_sentence()
        elif mark in "/&+|":
            self._sentence.add("o")
        elif mark in ":→=" or (mark in "-–—" and signs[-1:] not in ("X", "T")):
            # "x = 4" names no option.
            self._sentence.add("w" if mark == "=" and signs[-1:] in ("X", "w") else ":")
        elif mark in ",;、،-–—~" or (mark in _OPENERS and signs[-1:] in ("X", "T")):
            self._sentence.add(",")
        elif mark in _CROSSES:
            self._sentence.add("!")
        elif mark in "°%€£":
            self._sentence.add("w")

    def _end_sentence(self) -> None:
        sentence = self._sentence
        # A sentence with a cross denies options, and it is unclear which: ignore its letters.
        if sentence.signs and "!" not in sentence.signs:
            # "I say B" is a choice; "they say B" is not.
            sentence.signs = re.sub("(?<=i)([^v,:st]*)v", r"\1k", sentence.signs)
            self.sentences.append(sentence)
        self._sentence = _SignedSentence()

    def _add_unspaced(self, run: str) -> None:
        """Add words of a script without blanks: at each place the longest known word, else one character."""
        roles, run = roles_of_words(), run.replace(" ", "")
        at = 0
        while at < len(run):
            length = next((n for n in range(min(8, len(run) - at), 0, -1) if run[at : at + n] in roles), 0)
            role = roles.get(run[at : at + length], "")
            if role == "asks":
                self._sentence.is_question = True
            else:
                self._sentence.add(_SIGNS.get(role, "w"))
            at += max(length, 1)

    def _add_word(self, match: re.Match[str]) -> int:
        """Add a word, a phrase or a letter; return where it ends."""
        word, start = match["word"], match.start()
        letter = word if len(word) == 1 else (word[0] if _ENDING.fullmatch(word[1:]) else "")
        if not letter and (elision := _ELISION.match(word)):
            self._sentence.add(_SIGNS.get(roles_of_words().get(elision[0].replace("’", "'").casefold(), ""), "w"))
            return start + len(elision[0])
        sign, end = self._phrase(start, match.end())
        if letter and end <= match.end() and self._is_letter(letter, start, match.end()):
            return self._add_letter(letter.upper(), start, match.end())
        self._sentence.add(sign)
        return end

    def _phrase(self, start: int, end: int) -> tuple[str, int]:
        """The sign of the longest known phrase that begins at `start`, "w" if none, and where it ends."""
        roles, words, ends = roles_of_words(), [], []
        for match in _WORD_OF_PHRASE.finditer(self._text, start):
            words.append(match[1].replace("’", "'").casefold().replace("i\u0307", "i"))
            ends.append(match.end())
            if len(words) == _PHRASE_WORDS or not self._text[match.end() : match.end() + 1].isspace():
                break
        for n in range(len(words), 0, -1):
            if role := roles.get(" ".join(words[:n])):
                return _SIGNS[role], ends[n - 1]
        return ("d" if words and words[0].endswith("n't") else "w"), end

    def _is_letter(self, letter: str, start: int, end: int) -> bool:
        """True if the single letter at [start, end) of the text stands for an option."""
        if start in self._listed_places:
            return False
        before, after = self._text[max(0, start - 40) : start], self._text[end : end + 40]
        if re.match(rf"[-‐–+#]{_LETTER_OF_WORD}|[+#](?!\s*[\w(])|\.[^\W\d_](?!\w)", after) or re.search(
            rf"{_LETTER_OF_WORD}[.]$|\w[‐-]$|\b\w–$|°$|\b(?:[DM]r|Mrs|Ms|Prof)\. $", before.removesuffix("option-")
        ):
            return False  # "B-side", "C++", "D.C.", "plan-B"
        is_enclosed = before[-1:] in _OPENERS and after[:1] in _CLOSERS
        if letter in _LOOK_ALIKES or letter in self._letters:
            next_word = _WORD_OF_PHRASE.match(after.lstrip(" ")) if after[:1] == " " else None
            if letter == "I" and next_word:
                return False
            return not (next_word and next_word[1].casefold() in words_after(letter)) or is_enclosed
        if letter.upper() not in self._letters or not letter.islower():
            return False
        # A small letter is an option only where it cannot be a word: "(b)", "answer: b", or a reply of nothing else.
        is_last = not after.strip(" .)]}'\"") or after.lstrip(" )]}'\"")[:1] in ("\n", ".", "}")
        is_announced = "n" in self._sentence.signs and is_last
        is_marked = before.rstrip(" ([{'\"")[-1:] in (":", "=") or after[:1] == "." or letter not in "aeo"
        return is_enclosed or (not before.strip(" ([{") and is_last) or (is_announced and is_marked)

    def _add_letter(self, letter: str, start: int, end: int) -> int:
        """Add an option's letter, and the option's text if it follows; return where they end."""
        if letter not in self._letters:
            self._sentence.add("X", _UNREADABLE)
            return end
        is_closed, is_opened = self._text[end : end + 1] in _CLOSERS, self._text[:start][-1:] in _OPENERS
        before = self._sentence.signs
        own_end, other_end = self._text_behind(letter, end)
        self._sentence.add("X", letter if own_end >= other_end else _UNREADABLE)
        if own_end >= other_end and own_end:
            self._sentence.add("T")
            return own_end
        # "B) text", "(B) text" and "is (B) text" name an option, "in option (B) a man ..." does not.
        if is_closed and (not is_opened or before[-1:] in ("l", ":") or not (before or self.sentences)):
            self._sentence.add("T")
            self._sentence.add(",")
        return end

    def _text_behind(self, letter: str, end: int) -> tuple[int, int]:
        """Return where the text of `letter`'s option behind it ends, and where another option's does; 0 if absent.

        The longest text counts, so that "red" is not read in "red car". Another option's text must fill the clause.
        """
        own_end = other_end = 0
        rest = self._text[end:]
        begin = end + len(rest) - len(rest.lstrip(" \t.,:)]}-–—(\"'"))
        for other, option in zip(letters(len(self._options)), self._options, strict=True):
            option_text = unicodedata.normalize("NFKC", option).strip().rstrip(".!。")
            stop = begin + len(option_text)
            if begin == end or not option_text or self._text[begin:stop].casefold() != option_text.casefold():
                continue
            fills_clause = re.match(r"\s*(?:[.,;:!)\"'。，\n]|$)", self._text[stop:])
            is_apart = self._text[end:begin].strip() and not re.match(r"\w", self._text[stop : stop + 1])
            if other == letter and (fills_clause or is_apart):
                own_end = max(own_end, stop)
            elif other != letter and fills_clause:
                other_end = max(other_end, stop)
        return own_end, other_end


_WORD_OF_PHRASE = re.compile(rf" ?({_LETTER_OF_WORD}+(?:['’]{_LETTER_OF_WORD}+)*)")
_ABBREVIATIONS = tuple(f"{word}." for word in ("ans", "opt", "antw", "resp", "rép", "odp", "отв", "risp"))


def _places_of_list(text: str, option_letters: Sequence[str]) -> frozenset[int]:
    """Positions of the letters in a list of options, ranks or scores, which chooses none; empty if there is no list."""
    letter = rf"(?<!\w)(?P<letter>[{''.join(option_letters)}])"
    lines = rf"(?m)^\s*(?:[^\W\d_]+ )?[(\[]?{letter}(?:[)\]][.:]?|[.:])\s"
    scores = rf"{letter}[\"'’)\]]*\s*[:=,|(–-]?\s*\d+(?:[.,/]\d+)*\s*%?\)?\s*(?:[,;|}}\n]|$)"
    for pattern in (lines, scores, rf"\d[.)]\s*{letter}(?!\w)"):
        matches = list(re.finditer(pattern, text))
        if len({match["letter"] for match in matches}) >= 2:
            return frozenset(match.start("letter") for match in matches)
    # Or one line that goes through the options from the first.
    inline = list(re.finditer(rf"{letter}[).:]\)? ", text))
    is_list = len(inline) >= 2 and [match["letter"] for match in inline[:2]] == list(option_letters[:2])
    return frozenset(match.start("letter") for match in inline) if is_list else frozenset()


# Denied letters, which are removed from a sentence: that in "B is not" or "Bではない", and the one behind "not".
_DENIED_BEHIND = re.compile(r"[XM]T?:?[lnT]*D[l]*(?:,?t|,)?")
_DENIED_AHEAD = re.compile(
    r"(?:d[lncrT]*|[dD][lncrT]*:(?:XT?[,oa]+)*)[XM]T?(?:,?t)?(?![lT]*d)|[XM]T?:?[lT]*d(?![lncrT]*:?[XM])[lr]*"
)
_DENIED_AFTER_PAUSE = re.compile(r"[XM]T?,+(?:[lt]*|t[^XM]*)[dDu](?![lncrT]*:?[XM])")
# "B if it is blue", "B, provided that ...".
_DENIED_BY_CONDITION = re.compile(r"[XM]T?(?:,?f|,o(?![lncrT]*[XM]))")
# "A, C and D are wrong"
_DENIED_LIST = re.compile(r"(?:[XM]T?,)*[XM]T?,?[ao][lnT]*[XM]T?[lnT]*[dD](?![lncrT]*:?[XM])[lr]*")
_DENIALS = (_DENIED_LIST, _DENIED_AFTER_PAUSE, _DENIED_BY_CONDITION, _DENIED_BEHIND, _DENIED_AHEAD)
# "A or B", "A, B and D", "A/B", "(A)(B)", "A: B": two options are no answer.
_SEVERAL = re.compile(r"X(?:(?:T?,?[oa][lncT]*|T?,(?=X(?:T?,|T?[oa]|$))|:|T?(?=X))X)+T?")
_ENDED = re.compile(r"$|T|[,:abst](?!X)")
_NO, _OPENING_LETTER = re.compile("^[dD]l*,"), re.compile("^[lsz,]*[XM]")
# "But that is not shown.", "Sorry, I meant the dog." right behind an answer.
_TAKES_BACK = re.compile("t[^XM]*[dDuz]|z")


def _named_letters(sentences: Sequence[_SignedSentence]) -> set[str]:
    """The letters that the sentences name as the answer; `_UNREADABLE` stands for what takes an answer back."""
    named: set[str] = set()
    now_named: set[str] = set()
    last = len(sentences) - 1
    for at, sentence in enumerate(sentences):
        question = sentences[at - 1] if at and sentences[at - 1].is_question else None
        # "B? No, C."
        decided = sentence.without(_NO) if question else sentence
        for pattern in _DENIALS:
            decided = decided.without(pattern)
        decided = decided.without(_SEVERAL, "M")
        if question and re.search("[dDu]", question.signs):
            # "Which is wrong? B" chooses nothing, but "The answer is B" does.
            decided = decided.without(_OPENING_LETTER)
        is_short = "w" not in sentence.signs and (len(sentence.signs) > 1 or sentence.signs in ("d", "D"))
        was_named_before, now_named = bool(now_named), set(_named_in(decided, is_first=at == 0, is_last=at == last))
        if was_named_before and not now_named and _TAKES_BACK.match(sentence.signs):
            now_named = {_UNREADABLE}
        elif named and is_short and not now_named:
            # A sentence of known words takes an answer back if it doubts or denies the answer or has another letter.
            left, denied = {value for value in decided.values if value}, {value for value in sentence.values if value}
            is_denial = bool(denied & named) or (not denied and bool(re.search("[dDuz]", sentence.signs)))
            now_named = {_UNREADABLE} if (left != named if left else is_denial) else set()
        named |= now_named
    return named


def _named_in(sentence: _SignedSentence, *, is_first: bool, is_last: bool) -> Iterator[str]:
    """Yield the letters that a sentence names, `_UNREADABLE` for a list of several."""
    signs = sentence.signs
    if sentence.is_question:
        return
    for match in re.finditer("[XM]", signs):
        at = match.start()
        before = signs[:at].rstrip(_SIGNS_BEFORE)
        run = signs[len(before) : at]
        right_match = _RUN_BEHIND.match(signs, at + 1)
        right = right_match[0] if right_match else ""
        after = signs[at + 1 + len(right) :]
        # "Ich denke nicht, dass B ...": a doubt before "that" holds for what follows it.
        said = before.rstrip(",") if run.startswith("h") else before
        is_doubted = _DOUBTED.search(_END_OF_CLAUSE.split(said)[-1]) or _CONDITION.search(said)
        is_doubted = is_doubted or _REPORTED.search(signs[:at])
        if is_doubted or not (right.startswith("T") or _ENDED.match(after)):
            continue
        is_whole = not before.strip("lsz,")
        # "B, the ..." and "(B) text"; but "(A) is on the left, (B) on the right" chooses neither.
        is_first_word = is_first and at == 0 and right in ("", "T") and after[:1] in ("", *",:bT")
        is_first_word = is_first_word and not re.search("X" if right else _OTHER_CLAUSE, after.partition("b")[0])
        is_alone = is_whole and (is_first or is_last or signs in ("X", "M")) and _END_OR_REASON.fullmatch(after)
        if is_first_word or is_alone or _is_announced(before, run, right, is_whole=is_whole):
            yield sentence.values[at]


# Signs before an announcement that deny or doubt it: `_DOUBTED` in its clause, `_CONDITION` also in an earlier one.
_DOUBTED, _CONDITION = re.compile("[dufo]|D$"), re.compile("(?:^|[,:st])f|f[,:]")
# A reported opinion ("they say") lasts up to a conclusion ("so") or a contrast ("but").
_REPORTED = re.compile("v[^st]*$")
_END_OF_CLAUSE = re.compile(",(?!h)|[:bst]")
_END_OR_REASON = re.compile(r"[,:T]*(?:r,*)?(?:b.*)?")
# "B: yes, C: no", "B, then C"
_OTHER_CLAUSE = re.compile("[,:][sl]*[XM](?:[,:T]|$)")
# Words around a letter that may be part of its announcement.
_SIGNS_BEFORE, _RUN_BEHIND = "nrckilsth:", re.compile("T?[nrcl]*")


def _is_announced(before: str, run: str, right: str, *, is_whole: bool) -> bool:
    """True if the words around a letter announce it."""
    if run == "n" and before.endswith("w"):
        # "consider option B"
        return bool(re.search("[rc]", right))
    if re.search("[nc]", run) or re.search("il*k", run):
        return True
    if is_whole and re.search("[rk]", run):
        return True
    # "B is the correct answer", but not "player B is the best".
    return bool(re.search("[nrc]", right)) and (bool(run) or not before.endswith("w"))
