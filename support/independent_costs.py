"""Computes what choosing frames cost, as docs/cost.md says, from rows in plain loops, to check a report against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from support.independent_rows import Row

Key = tuple[str, str, str]
# What an encoder was asked for: its frames, their number where they are not listed, its forwards, stage and name.
ASKED = {
    "main": ("pulled_frames", "n_pulls", "forwards", "encode", "encoder"),
    "scan": ("scanned_frames", "n_scanned", "scan_forwards", "scan", "scan_encoder"),
}
HELD = ("open", "scan", "encode", "ask", "select", "idle")


@dataclass(frozen=True)
class Cost:
    """What one selection cost: forward equivalents, and the seconds it would have taken alone; None if unknown."""

    forwards: float | None
    seconds: float | None


def costs_of(selections: Mapping[Key, Row]) -> dict[Key, Cost]:
    """Return what each selection of a run cost; the run's other rows say with whom it shared its frames."""
    shares = {what: _shares(selections, what) for what in ASKED}
    made: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    needed: dict[tuple[str, str], dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for key, row in selections.items():
        for what, (_, _, forwards, *_) in ASKED.items():
            made[key[0], key[2]][what] += row[forwards]
            needed[key[0], key[2]][what] += shares[what][key] or 0
    paid = {whose: all(made[whose][what] >= round(needed[whose][what], 6) for what in ASKED) for whose in made}
    rates = _rates(selections)
    units = {row["gmacs"]["image"] for row in selections.values() if "image" in row["gmacs"]}
    found = {}
    for key, row in selections.items():
        mine = {what: shares[what][key] for what in ASKED}
        found[key] = Cost(_equivalents(row, mine, units), _seconds(row, mine, None if paid[key[0], key[2]] else rates))
    return found


def _shares(selections: Mapping[Key, Row], what: str) -> dict[Key, Fraction | None]:
    """The share of the distinct frames: of a frame that q questions of a video ask for under one selection, 1/q."""
    listed, counted, *_ = ASKED[what]
    asking = Counter(
        (key[0], key[2], row["video"], at) for key, row in selections.items() for at in _listed(row, listed)
    )
    shares: dict[Key, Fraction | None] = {}
    for key, row in selections.items():
        facts = row["facts"]
        came_as_file = (facts.get("published") or facts.get("replayed_from")) and not _n_pulls(row)
        if row[counted] is not None or came_as_file:
            stated = row["encoded"].get(what)
            shares[key] = None if stated is None else Fraction(stated)
        else:
            frames = _listed(row, listed)
            shares[key] = sum((Fraction(1, asking[key[0], key[2], row["video"], at]) for at in frames), Fraction())
    return shares


def _listed(row: Row, listed: str) -> set[int]:
    """The distinct frames; those scored for other texts than the question's too."""
    others = row["text_pulls"] if listed == "pulled_frames" else []
    return {*row[listed]}.union(*(frames for _, frames, _ in others))


def _n_pulls(row: Row) -> int:
    if row["n_pulls"] is not None:
        return int(row["n_pulls"])
    return len(row["pulled_frames"]) + sum(len(frames) for _, frames, _ in row["text_pulls"])


def _equivalents(row: Row, shares: Mapping[str, Fraction | None], units: set[float]) -> float | None:
    """`units`: what images cost in this run; the one there is serves rows that have no encoder."""
    encoded, scanned, gmacs = shares["main"], shares["scan"], row["gmacs"]
    if encoded is None or scanned is None:
        return None
    total = float(encoded)
    if row["asked"].get("calls"):
        tokens = [row["asked"].get(name) for name in ("input", "output")]
        unit = gmacs.get("image") or (min(units) if len(units) == 1 and not row["encoder"] else None)
        if None in tokens or unit is None or "llm_token" not in gmacs:
            return None
        total += sum(tokens) * gmacs["llm_token"] / unit
    if "image" in gmacs:
        total += (float(encoded) * gmacs.get("keys", 0) + _n_pulls(row) * gmacs.get("fusion", 0)) / gmacs["image"]
    if scanned == 0:
        return total
    one = row["options"].get("relative_cost")
    if one is None and "scan_image" in gmacs:
        one = gmacs["scan_image"] / gmacs["image"]
    return None if one is None else total + float(scanned) * one


def _seconds(
    row: Row, shares: Mapping[str, Fraction | None], rates: Mapping[tuple[str, ...], float] | None
) -> float | None:
    """As measured where `rates` is None; else opening and choosing, and its share of frames at the run's mean rates."""
    taken = row["seconds"]
    if rates is None:
        return sum(taken.get(stage, 0.0) for stage in HELD) if None not in shares.values() else None
    total = taken.get("open", 0.0) + taken.get("select", 0.0)
    for what, share in shares.items():
        one, wait = rates.get((row["device"], what, _encoder(row, what))), rates.get((row["device"], "idle"))
        if share is None or (share and (one is None or wait is None)):
            return None
        total += float(share) * (one + wait) if share else 0.0
    return total


def _rates(selections: Mapping[Key, Row]) -> dict[tuple[str, ...], float]:
    """The mean seconds of a forward by device and encoder, and of the wait for a decoded frame by device."""
    spent: dict[tuple[str, ...], float] = defaultdict(float)
    made: Counter[tuple[str, ...]] = Counter()
    for row in selections.values():
        spent[row["device"], "idle"] += row["seconds"].get("idle", 0.0)
        for what, (_, _, forwards, stage, _) in ASKED.items():
            spent[row["device"], what, _encoder(row, what)] += row["seconds"].get(stage, 0.0)
            made[row["device"], what, _encoder(row, what)] += row[forwards]
            made[row["device"], "idle"] += row[forwards]
    return {name: spent[name] / made[name] for name in spent if made[name]}


def _encoder(row: Row, what: str) -> str:
    """The encoder's name; of a scan encoder with the options it was asked for, by which two sizes differ."""
    return str((what == "scan" and row["options"].get("scan_encoder")) or row[ASKED[what][4]])
