"""The questions about the photographs, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """One question that several photographs answer differently; a video shows at most one photograph of a topic.

    Args:
        name: category of its questions.
        query: the question, without its choices.
        answers: photograph -> the choice it makes right.
        others: further wrong choices, of the same kind, that no photograph shows.
        never_with: photographs that would make the answer doubtful, kept out of a video that is asked this.
    """

    name: str
    query: str
    answers: Mapping[str, str]
    others: tuple[str, ...]
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

# Never asked about: they fill the time between the scenes that are, with the photographs of the other topics.
FILLERS: tuple[str, ...] = ("galaxies", "retina", "tissue", "bricks", "clock", "photographer")
