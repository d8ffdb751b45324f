"""Does every video hold what its questions ask about, where it says, and nowhere else?"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.benchmarks.registry import make_benchmark
from focus_eval.bench.demo.photo_events import rows_of
from focus_eval.bench.demo.photographs import PHOTOGRAPHS
from focus_eval.bench.demo.storyboard import FILLERS, TOPICS, VIDEO_IDS, _place, storyboards
from focus_eval.core.errors import UnknownName

PAGE = Path(__file__).resolve().parents[3] / "docs/demo.md"
TOPIC_OF = {topic.name: topic for topic in TOPICS}


@pytest.fixture(scope="module")
def boards():
    pytest.importorskip("skimage")
    return storyboards(
        {name: (lambda picture: picture.width / picture.height)(item.open()) for name, item in PHOTOGRAPHS.items()}
    )


def shown(board):
    """Yield (start, stop, photograph) of every shot."""
    at = 0
    for shot in board.shots:
        yield at, at + shot.n_frames, shot.photograph
        at += shot.n_frames


def test_there_are_20_videos_of_three_lengths_and_100_questions(boards):
    benchmark = make_benchmark("photo_events")
    minutes = {"short": (1, 3), "medium": (3, 4), "long": (10, 16)}
    buckets = Counter(benchmark.bucket(board.duration_seconds) for board in boards)
    assert buckets == {"short": 10, "medium": 8, "long": 2}
    for board in boards:
        low, high = minutes[benchmark.bucket(board.duration_seconds)]
        assert low <= board.duration_seconds / 60 <= high
    assert {len(board.questions) for board in boards} == {5}


def test_every_letter_is_right_equally_often_and_every_topic_is_asked_in_every_bucket(boards):
    assert set(Counter(question.correct for board in boards for question in board.questions).values()) == {25}
    for part in (boards[:10], boards[10:18], boards[18:]):
        topics = Counter(question.topic for board in part for question in board.questions)
        assert set(topics) == set(TOPIC_OF)
        assert max(topics.values()) <= len(part)


def test_no_topic_has_the_same_answer_every_time(boards):
    answers = {topic: Counter() for topic in TOPIC_OF}
    for board in boards:
        for question in board.questions:
            answers[question.topic][question.choices[question.correct]] += 1
    assert all(max(counts.values()) <= -(-sum(counts.values()) // 2) for counts in answers.values())


def test_the_answer_is_in_view_for_3_to_8_seconds_exactly_in_its_scenes(boards):
    for board in boards:
        shots = list(shown(board))
        for question in board.questions:
            photograph = next(
                name
                for name, text in TOPIC_OF[question.topic].answers.items()
                if text == question.choices[question.correct]
            )
            assert tuple((start, stop) for start, stop, name in shots if name == photograph) == question.scenes
            assert 1 <= len(question.scenes) <= 3
            for start, stop in question.scenes:
                assert 2.9 <= float((stop - start) / board.fps) <= 8.1


def test_no_wrong_choice_of_a_question_is_ever_in_view(boards):
    for board in boards:
        names = {shot.photograph for shot in board.shots}
        for question in board.questions:
            texts = [TOPIC_OF[question.topic].answers.get(name) for name in names]
            assert [text for text in texts if text] == [question.choices[question.correct]]


def test_nothing_that_makes_an_answer_doubtful_is_in_view(boards):
    for board in boards:
        names = {shot.photograph for shot in board.shots}
        for question in board.questions:
            assert not names & set(TOPIC_OF[question.topic].never_with)


def test_fillers_and_other_scenes_distract_in_every_video_and_the_other_topic_in_nearly_all(boards):
    with_other_topic = 0
    for board in boards:
        answers = {name for question in board.questions for name in TOPIC_OF[question.topic].answers}
        shown_names = {shot.photograph for shot in board.shots}
        assert shown_names & set(FILLERS)
        assert len(shown_names & answers) == len(board.questions) == 5
        with_other_topic += any((shown_names - answers) & set(topic.answers) for topic in TOPICS)
    assert with_other_topic >= 17


def test_choices_are_four_and_never_part_of_the_query(boards):
    for board in boards:
        for question in board.questions:
            assert len(set(question.choices)) == 4
            assert not any(choice in question.query for choice in question.choices)


def test_no_two_shots_in_a_row_show_the_same_photograph(boards):
    for board in boards:
        names = [shot.photograph for shot in board.shots]
        assert all(first != second for first, second in itertools.pairwise(names))


def test_a_storyboard_does_not_depend_on_which_others_are_asked_for(boards):
    aspects = {name: item.open().width / item.open().height for name, item in PHOTOGRAPHS.items()}
    assert storyboards(aspects, video_ids=["long_b", "short_b"]) == [boards[1], boards[19]]
    with pytest.raises(UnknownName, match="did you mean 'short_a'"):
        storyboards(aspects, video_ids=["short_aa"])


def test_position_is_the_middle_of_each_scene_at_24_frames_a_second_whatever_the_rate(boards):
    benchmark = make_benchmark("photo_events")
    assert len({board.fps for board in boards}) > 3
    for board in boards:
        for board_question, row in zip(board.questions, rows_of(board), strict=True):
            question = benchmark.question(row)
            assert question.n_evidence_dropped == 0
            for time, (start, stop) in zip(question.evidence_seconds, board_question.scenes, strict=True):
                middle_of_shown_frames = float((start + stop - 1) / 2 / board.fps)
                assert abs(time - middle_of_shown_frames) < 0.5 / 24 + 1e-6


def test_video_ids_name_every_video_once(boards):
    assert tuple(board.video_id for board in boards) == VIDEO_IDS
    assert len(set(VIDEO_IDS)) == len(VIDEO_IDS)


def test_the_docs_credit_every_photograph_that_is_neither_cc0_nor_in_the_public_domain():
    text = " ".join(PAGE.read_text(encoding="utf-8").replace("`", "").split())
    other_photographs = [item for item in PHOTOGRAPHS.values() if item.licence not in ("CC0 1.0", "public domain")]
    assert {item.name for item in other_photographs} == {"temple", "flower", "coins", "tissue", "motorcycle"}
    for item in other_photographs:
        assert f"{item.name} ({item.credit})" in text.partition(f"- {item.licence}: ")[2].partition(". - ")[0]


def test_the_docs_state_the_questions_and_their_number(boards):
    text = PAGE.read_text(encoding="utf-8")
    for topic in TOPICS:
        n_asked = sum(question.topic == topic.name for board in boards for question in board.questions)
        assert f"- {topic.query} ({', '.join(topic.answers.values())}; {n_asked})\n" in text
    assert f"{sum(board.duration_seconds for board in boards) / 60:.0f} minutes in all" in text


@given(st.integers(0, 2**32), st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_view_lies_in_the_picture_wherever_its_subject_is(seed, length, one, other):
    start = _place(Random(seed), length, min(one, other), max(one, other))
    assert 0 <= start <= 1 - length
