"""Makes the storyboards of photo_events: the shots and the questions of each video."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.bench.demo.photographs import PHOTOGRAPHS, Box
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.types import Pixels

if TYPE_CHECKING:
    from PIL import Image


# The camera moves only on every third frame, so that only a third of the frames must be drawn.
FRAMES_PER_MOVE = 3


@dataclass(frozen=True)
class Shot:
    """One uncut take of one photograph.

    Args:
        photograph: name of the photograph.
        n_frames: length in frames, at least 1.
        first, last: view at the start and at the end, as shares of the picture's width and height; equal for a still
            shot.
        mirrored: True to exchange left and right.
        gain: factor on brightness.
    """

    photograph: str
    n_frames: int
    first: Box
    last: Box
    mirrored: bool = False
    gain: float = 1.0

    def __post_init__(self) -> None:
        """Raise InvalidInput for a shot without frames or a view that leaves its picture."""
        if self.n_frames < 1:
            raise InvalidInput(f"a shot needs at least 1 frame, got {self.n_frames}")
        for x_min, y_min, x_max, y_max in (self.first, self.last):
            if not (0 <= x_min < x_max <= 1 and 0 <= y_min < y_max <= 1):
                raise InvalidInput(f"a view must lie inside its picture, got {(x_min, y_min, x_max, y_max)}")

    def view(self, frame: int) -> Box:
        """Return the visible box at `frame` of the shot, as shares of the picture's width and height.

        The camera starts and stops gently; the view changes only every `FRAMES_PER_MOVE` frames.
        """
        moves = max(1, (self.n_frames - 1) // FRAMES_PER_MOVE)
        progress = min(1.0, (frame // FRAMES_PER_MOVE) / moves)
        ease = progress * progress * (3 - 2 * progress)
        x_min, y_min, x_max, y_max = (a + (b - a) * ease for a, b in zip(self.first, self.last, strict=True))
        return x_min, y_min, x_max, y_max


def render(shot: Shot, picture: Image.Image, *, width: int, height: int) -> Iterator[tuple[Pixels, int]]:
    """Yield yuv420p planes `(height * 3 / 2, width)` with the number of frames they last, `shot.n_frames` in all.

    Planes are drawn in the form that the video stores, which takes a third of the time of drawing RGB and converting
    it.
    """
    from PIL import Image, ImageEnhance, ImageOps

    if shot.mirrored:
        picture = ImageOps.mirror(picture)
    if shot.gain != 1.0:
        picture = ImageEnhance.Brightness(picture).enhance(shot.gain)
    # Luma, and both chromas at half the size, in the ranges of video (16 to 235, 16 to 240).
    luma, *chromas = picture.convert("YCbCr").split()
    half_size = (max(1, picture.width // 2), max(1, picture.height // 2))
    planes = [luma.point(lambda value: 16 + value * 219 / 255)]
    planes += [chroma.resize(half_size).point(lambda value: 128 + (value - 128) * 224 / 255) for chroma in chromas]
    step = shot.n_frames if shot.first == shot.last else FRAMES_PER_MOVE
    for frame in range(0, shot.n_frames, step):
        x_min, y_min, x_max, y_max = shot.view(frame)
        drawn = []
        for plane, factor in zip(planes, (1, 2, 2), strict=True):
            box = (x_min * plane.width, y_min * plane.height, x_max * plane.width, y_max * plane.height)
            view = plane.resize((width // factor, height // factor), Image.Resampling.BILINEAR, box=box)
            drawn.append(np.asarray(view).reshape(-1, width))
        yield np.concatenate(drawn), min(step, shot.n_frames - frame)


@dataclass(frozen=True)
class Topic:
    """One question that several photographs answer differently; a video shows at most one photograph of a topic.

    Args:
        name: category of its questions.
        query: the question, without its choices.
        answers: correct choice by photograph.
        other_answers: further wrong choices of the same kind, which no photograph shows.
        never_with: photographs that would make the answer doubtful, and so are kept out of videos with this question.
    """

    name: str
    query: str
    answers: Mapping[str, str]
    other_answers: tuple[str, ...]
    never_with: tuple[str, ...] = ()


TOPICS: tuple[Topic, ...] = (
    Topic(
        "animal",
        "Which animal appears in the video?",
        {"cat": "a cat", "horse": "a horse"},
        ("a parrot", "a frog", "a penguin", "a goldfish"),
    ),
    Topic(
        "vehicle",
        "What vehicle appears in the video?",
        {"motorcycle": "a motorcycle", "rocket": "a rocket"},
        ("a sailing boat", "a tractor", "a steam train", "a bus"),
        never_with=("astronaut",),  # a space shuttle stands behind her
    ),
    Topic(
        "clothing",
        "What is the person in the video wearing?",
        {"astronaut": "a space suit and helmet", "officer": "a navy uniform"},
        ("a straw hat", "a kimono", "a bathrobe", "ballet shoes"),
    ),
    Topic(
        "garden",
        "What does the visitor see in the garden?",
        {"temple": "a temple", "flower": "a flower in bloom"},
        ("a fountain", "a greenhouse", "a stone bridge", "a wooden bench"),
    ),
    Topic(
        "desk",
        "What is on the desk?",
        {"coffee": "a cup of coffee", "coins": "a collection of coins", "writing": "a sheet of paper with writing"},
        ("a telephone", "a table lamp", "a potted plant"),
    ),
    Topic(
        "ground",
        "What covers the ground?",
        {"gravel": "gravel", "grass": "grass"},
        ("snow", "sand", "wooden boards", "fallen leaves"),
        never_with=("photographer",),  # he stands on a lawn
    ),
)

# No question asks about these: they fill the time between scenes, with photographs of other topics.
FILLERS: tuple[str, ...] = ("galaxies", "retina", "tissue", "bricks", "clock", "photographer")


ASPECT = 16 / 9
N_CHOICES = 4
N_QUESTIONS_PER_VIDEO = 5
EVENT_SECONDS = (3.0, 8.0)
STILL_SHARE = 0.4

# id, seconds, frame rate, seconds of an ordinary shot. Rates differ because evidence is noted at 24 fps whatever
# the rate of the file; most are low, for samplers pull by seconds and every frame is drawn, encoded and decoded.
_NTSC_24, _NTSC_30 = Fraction(24000, 1001), Fraction(30000, 1001)
# Many short and medium videos: the number of videos tells samplers apart, while cost grows with minutes.
VIDEOS: tuple[tuple[str, int, Fraction, tuple[float, float]], ...] = (
    ("short_a", 84, Fraction(12), (4, 10)),
    ("short_b", 88, Fraction(15), (4, 10)),
    ("short_c", 93, _NTSC_24, (4, 12)),
    ("short_d", 97, Fraction(12), (4, 12)),
    ("short_e", 102, _NTSC_30, (4, 10)),
    ("short_f", 108, Fraction(12), (4, 12)),
    ("short_g", 113, Fraction(24), (4, 12)),
    ("short_h", 119, Fraction(12), (4, 14)),
    ("short_i", 126, Fraction(15), (4, 14)),
    ("short_j", 134, Fraction(25), (4, 14)),
    ("medium_a", 182, _NTSC_24, (6, 25)),
    ("medium_b", 187, Fraction(12), (6, 25)),
    ("medium_c", 193, Fraction(15), (6, 30)),
    ("medium_d", 199, Fraction(12), (6, 30)),
    ("medium_e", 206, Fraction(12), (6, 25)),
    ("medium_f", 213, Fraction(12), (6, 25)),
    ("medium_g", 221, Fraction(12), (6, 30)),
    ("medium_h", 230, Fraction(15), (6, 30)),
    ("long_a", 640, Fraction(12), (8, 50)),
    ("long_b", 905, Fraction(12), (8, 60)),
)
VIDEO_IDS: tuple[str, ...] = tuple(video_id for video_id, *_ in VIDEOS)


@dataclass(frozen=True)
class BoardQuestion:
    """One question about one video.

    Args:
        scenes: half-open frame ranges in which the answer is in view, ascending.
        choices: four texts; `correct` is the index of the right one.
    """

    topic: str
    query: str
    choices: tuple[str, ...]
    correct: int
    scenes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Storyboard:
    """One video: its shots in order and the questions about it."""

    video_id: str
    fps: Fraction
    shots: tuple[Shot, ...]
    questions: tuple[BoardQuestion, ...]

    @property
    def n_frames(self) -> int:
        """Number of frames of all shots together."""
        return sum(shot.n_frames for shot in self.shots)

    @property
    def duration_seconds(self) -> float:
        """Length of the video in seconds."""
        return float(self.n_frames / self.fps)


def storyboards(aspects: Mapping[str, float], *, video_ids: Sequence[str] | None = None) -> list[Storyboard]:
    """Return the storyboards of all videos, or of `video_ids`; the same on every machine and for any subset.

    Args:
        aspects: width over height of every photograph.

    Raises:
        UnknownName: no such video.
    """
    for video_id in video_ids or ():
        if video_id not in VIDEO_IDS:
            raise unknown_name("video", video_id, VIDEO_IDS)
    letters, topics_by_video = _balanced_letters(), _topics_by_video()
    boards = []
    for at, (video_id, seconds, fps, shot_seconds) in enumerate(VIDEOS):
        if video_ids is None or video_id in video_ids:
            first = at * N_QUESTIONS_PER_VIDEO
            correct = letters[first : first + N_QUESTIONS_PER_VIDEO]
            boards.append(_storyboard(video_id, seconds, fps, shot_seconds, topics_by_video[at], correct, aspects))
    return boards


def _storyboard(
    video_id: str,
    seconds: int,
    fps: Fraction,
    shot_seconds: tuple[float, float],
    topics: Sequence[tuple[Topic, str]],
    correct: Sequence[int],
    aspects: Mapping[str, float],
) -> Storyboard:
    """Return the storyboard of one video: event scenes at random places, ordinary shots between, and questions.

    `topics` has (topic, shown photograph) of each question, `correct` the index of its right choice, and `aspects`
    width over height by photograph. The random state depends on `video_id` alone.
    """
    rng = Random(f"photo_events {video_id}")
    n_frames = int(seconds * fps)
    scenes = _scenes(rng, [photograph for _, photograph in topics], n_frames, fps, repeats=1 if seconds < 180 else 2)
    question_photographs = {photograph for topic, _ in topics for photograph in (*topic.answers, *topic.never_with)}
    background = [name for topic in TOPICS for name in topic.answers] + list(FILLERS)
    background = [name for name in background if name not in question_photographs]
    shots: list[Shot] = []
    at = 0
    for start, stop, photograph in [*scenes, (n_frames, n_frames, "")]:
        shots += _ordinary_shots(rng, background, start - at, fps, shot_seconds, shots, aspects)
        if photograph:
            shots.append(_event_shot(rng, photograph, stop - start, aspects[photograph]))
        at = stop
    questions = []
    for (topic, photograph), right in zip(topics, correct, strict=True):
        wrong = [text for name, text in topic.answers.items() if name != photograph]
        wrong += rng.sample(topic.other_answers, N_CHOICES - 1 - len(wrong))
        rng.shuffle(wrong)
        choices = (*wrong[:right], topic.answers[photograph], *wrong[right:])
        evidence = tuple((start, stop) for start, stop, name in scenes if name == photograph)
        questions.append(BoardQuestion(topic.name, topic.query, choices, right, evidence))
    return Storyboard(video_id, fps, tuple(shots), tuple(questions))


def _topics_by_video() -> list[list[tuple[Topic, str]]]:
    """Return (topic, photograph) of each question by video; every video leaves one topic out and uses it to distract.

    The astronaut makes the answer to the question about vehicles doubtful, so one video in three has no such question
    and shows her; one has no question about clothing; one leaves out another topic and shows the officer. The
    photographs of every other topic take turns.
    """
    rng = Random("photo_events topics")
    by_name = {topic.name: topic for topic in TOPICS}
    other_names = [name for name in by_name if name not in ("vehicle", "clothing")]
    turns = dict.fromkeys(by_name, 0)
    videos: list[list[tuple[Topic, str]]] = []
    for at in range(len(VIDEOS)):
        left_out = ("vehicle", "clothing", other_names[at // 3 % len(other_names)])[at % 3]
        topics = []
        for topic in rng.sample(TOPICS, len(TOPICS)):
            if topic.name == left_out:
                continue
            names = list(topic.answers)
            if topic.name == "clothing":
                names = ["astronaut"] if left_out == "vehicle" else ["officer"]
            topics.append((topic, names[turns[topic.name] % len(names)]))
            turns[topic.name] += 1
        videos.append(topics)
    return videos


def _balanced_letters() -> list[int]:
    """The index of the right choice of every question: each letter five times in every 20."""
    rng = Random("photo_events letters")
    letters: list[int] = []
    while len(letters) < len(VIDEOS) * N_QUESTIONS_PER_VIDEO:
        block = list(range(N_CHOICES)) * 5
        rng.shuffle(block)
        letters += block
    return letters


def _scenes(
    rng: Random, photographs: Sequence[str], n_frames: int, fps: Fraction, *, repeats: int
) -> list[tuple[int, int, str]]:
    """`(start, stop, photograph)` of the event scenes, ascending, each photograph 1 to `repeats` times."""
    names = [name for name in photographs for _ in range(rng.randint(1, repeats))]
    rng.shuffle(names)
    lengths = [round(rng.uniform(*EVENT_SECONDS) * fps) for _ in names]
    gap = round(4 * fps)
    spare = n_frames - sum(lengths) - gap * (len(names) + 1)
    cuts = sorted(rng.random() * spare for _ in names)
    scenes, used = [], gap
    for cut, length, name in zip(cuts, lengths, names, strict=True):
        start = int(cut) + used
        scenes.append((start, start + length, name))
        used += length + gap
    return scenes


def _ordinary_shots(
    rng: Random,
    background: Sequence[str],
    n_frames: int,
    fps: Fraction,
    shot_seconds: tuple[float, float],
    earlier_shots: Sequence[Shot],
    aspects: Mapping[str, float],
) -> list[Shot]:
    """Shots of background photographs with `n_frames` in total, and no photograph twice in a row."""
    shots: list[Shot] = []
    n_left = n_frames
    shortest = round(shot_seconds[0] * fps)
    while n_left > 0:
        length = min(n_left, round(rng.uniform(*shot_seconds) * fps))
        if n_left - length < shortest:
            length = n_left
        last = [*earlier_shots, *shots][-1:]
        name = rng.choice([item for item in background if not last or item != last[0].photograph])
        first, second = (_view(rng, aspects[name], width=rng.uniform(0.5, 1.0)) for _ in range(2))
        is_still = rng.random() < STILL_SHARE
        shots.append(
            Shot(name, length, first, first if is_still else second, rng.random() < 0.5, rng.uniform(0.8, 1.15))
        )
        n_left -= length
    return shots


def _event_shot(rng: Random, photograph: str, n_frames: int, aspect: float) -> Shot:
    """The shot that holds evidence: the subject stays in view while the camera moves."""
    views = (
        _view(rng, aspect, width=rng.uniform(0.75, 1.0), subject=PHOTOGRAPHS[photograph].subject) for _ in range(2)
    )
    first, last = views
    return Shot(photograph, n_frames, first, last, gain=rng.uniform(0.85, 1.1))


def _view(rng: Random, aspect: float, *, width: float, subject: Box = (0.0, 0.0, 1.0, 1.0)) -> Box:
    """A 16:9 view of a picture of `aspect`, centred on the subject; `width` is its share of the widest view."""
    widest = min(1.0, ASPECT / aspect)
    view_width = width * widest
    view_height = view_width * aspect / ASPECT
    x_min = _place(rng, view_width, subject[0], subject[2])
    y_min = _place(rng, view_height, subject[1], subject[3])
    return x_min, y_min, min(1.0, x_min + view_width), min(1.0, y_min + view_height)


def _place(rng: Random, length: float, low: float, high: float) -> float:
    """Random start in [0, 1] of a stretch of `length` that lies inside [low, high], or covers it if longer."""
    ends = (low, high - length)
    start = rng.uniform(min(ends), max(ends))
    return min(max(0.0, start), 1.0 - length)
