"""Computes what choosing frames cost, as docs/concepts.md says, from rows in plain loops, to check a report against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tests.support.bench.independent_rows import Row

Key = tuple[str, str, str]
# Columns of an encoder, by its role: its frames, their number where they are not listed, its forwards, stage and name.
COLUMNS = {
    "main": ("pulled_frames", "n_pulls", "forwards", "encode", "encoder"),
    "scan": ("scanned_frames", "n_scanned", "scan_forwards", "scan", "scan_encoder"),
}
BLOCKING = ("open", "scan", "encode", "ask", "select", "idle")


@dataclass(frozen=True)
class Cost:
    """The cost of one selection: forward equivalents, and the seconds that it would have taken alone.

    None stands for a cost that cannot be known.
    """

    forwards: float | None
    seconds: float | None


def costs_of(selections: Mapping[Key, Row]) -> dict[Key, Cost]:
    """Return the cost of each selection of a run; all of its rows are needed, to know which shared their frames."""
    shares = {role: _shares(selections, role) for role in COLUMNS}
    forwards_made: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    forwards_needed: dict[tuple[str, str], dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for key, row in selections.items():
        for role, (_, _, forwards, *_) in COLUMNS.items():
            forwards_made[key[0], key[2]][role] += row[forwards]
            forwards_needed[key[0], key[2]][role] += shares[role][key] or 0
    paid = {
        selection: all(forwards_made[selection][role] >= round(forwards_needed[selection][role], 6) for role in COLUMNS)
        for selection in forwards_made
    }
    rates = _rates(selections)
    units = {row["gmacs"]["image"] for row in selections.values() if "image" in row["gmacs"]}
    costs = {}
    for key, row in selections.items():
        own_shares = {role: shares[role][key] for role in COLUMNS}
        costs[key] = Cost(
            _equivalents(row, own_shares, units), _seconds(row, own_shares, None if paid[key[0], key[2]] else rates)
        )
    return costs


def _shares(selections: Mapping[Key, Row], role: str) -> dict[Key, Fraction | None]:
    """Return each selection's share of the distinct frames.

    A frame that q questions of a video ask for under one selection counts 1/q; None if the share is unknown.
    """
    listed, count, *_ = COLUMNS[role]
    asking = Counter(
        (key[0], key[2], row["video"], at) for key, row in selections.items() for at in _listed(row, listed)
    )
    shares: dict[Key, Fraction | None] = {}
    for key, row in selections.items():
        facts = row["facts"]
        came_as_file = (facts.get("published") or facts.get("replayed_from")) and not _n_pulls(row)
        if row[count] is not None or came_as_file:
            share = row["encoded"].get(role)
            shares[key] = None if share is None else Fraction(share)
        else:
            frames = _listed(row, listed)
            shares[key] = sum((Fraction(1, asking[key[0], key[2], row["video"], at]) for at in frames), Fraction())
    return shares


def _listed(row: Row, listed: str) -> set[int]:
    """Return the distinct frames in column `listed`; pulled frames include those scored for other texts."""
    text_pulls = row["text_pulls"] if listed == "pulled_frames" else []
    return {*row[listed]}.union(*(frames for _, frames, _ in text_pulls))


def _n_pulls(row: Row) -> int:
    """Return the number of pulls; where the row states none, those that it lists, for every text."""
    if row["n_pulls"] is not None:
        return int(row["n_pulls"])
    return len(row["pulled_frames"]) + sum(len(frames) for _, frames, _ in row["text_pulls"])


def _equivalents(row: Row, shares: Mapping[str, Fraction | None], units: set[float]) -> float | None:
    """Return the forward equivalents of a selection, None if a cost is unknown.

    `units` are the multiply-adds of an image in this run; if there is one only, it serves rows without an encoder.
    """
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
    relative_cost = row["options"].get("relative_cost")
    if relative_cost is None and "scan_image" in gmacs:
        relative_cost = gmacs["scan_image"] / gmacs["image"]
    return None if relative_cost is None else total + float(scanned) * relative_cost


def _seconds(
    row: Row, shares: Mapping[str, Fraction | None], rates: Mapping[tuple[str, ...], float] | None
) -> float | None:
    """Return the seconds of a selection alone, None if unknown.

    They are as measured if `rates` is None; else those of opening and choosing, and its share of frames at the run's
    mean rates.
    """
    seconds = row["seconds"]
    if rates is None:
        return sum(seconds.get(stage, 0.0) for stage in BLOCKING) if None not in shares.values() else None
    total = seconds.get("open", 0.0) + seconds.get("select", 0.0)
    for role, share in shares.items():
        rate, wait = rates.get((row["device"], role, _encoder(row, role))), rates.get((row["device"], "idle"))
        if share is None or (share and (rate is None or wait is None)):
            return None
        total += float(share) * (rate + wait) if share else 0.0
    return total


def _rates(selections: Mapping[Key, Row]) -> dict[tuple[str, ...], float]:
    """Return the mean seconds of a forward by device and encoder, and of the wait for a decoded frame by device."""
    spent: dict[tuple[str, ...], float] = defaultdict(float)
    n_forwards: Counter[tuple[str, ...]] = Counter()
    for row in selections.values():
        spent[row["device"], "idle"] += row["seconds"].get("idle", 0.0)
        for role, (_, _, forwards, stage, _) in COLUMNS.items():
            spent[row["device"], role, _encoder(row, role)] += row["seconds"].get(stage, 0.0)
            n_forwards[row["device"], role, _encoder(row, role)] += row[forwards]
            n_forwards[row["device"], "idle"] += row[forwards]
    return {name: spent[name] / n_forwards[name] for name in spent if n_forwards[name]}


def _encoder(row: Row, role: str) -> str:
    """Return the encoder's name; that of a scan encoder includes the options asked for, which tell sizes apart."""
    return str((role == "scan" and row["options"].get("scan_encoder")) or row[COLUMNS[role][4]])
