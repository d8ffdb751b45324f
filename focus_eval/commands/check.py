"""`focus-eval check`: check a sampler against the sampler contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.options import parse_assignments

if TYPE_CHECKING:
    from focus_eval.samplers.contract.suite import Verdict


def check(
    sampler: Annotated[str, typer.Argument(help="Name of a sampler, or FILE.py:Class.")],
    option: Annotated[
        list[str], typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the sampler; repeatable.")
    ] = [],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="Processor seconds allowed for a ten-hour video.")] = 30.0,
) -> None:
    """Check that a sampler keeps the sampler contract.

    Tries counts, ranges, determinism and budgets on videos from one frame to ten hours. Exits with code 1 if a rule of
    the contract is broken.
    """
    from focus_eval.samplers.contract.suite import check_sampler
    from focus_eval.samplers.registry import parse_options

    texts = parse_assignments(option)
    options = parse_options(sampler, texts) if texts else {}
    verdict = check_sampler(sampler, options, seconds_allowed=seconds)
    print(f"{sampler}{_declared(sampler, verdict)}")
    _print_promises(verdict)
    _print_end(verdict)
    if verdict.broken:
        raise typer.Exit(1)


def _declared(sampler: str, verdict: Verdict) -> str:
    """Return what the class declares of itself, where it can be loaded."""
    from focus_eval.samplers.registry import sampler_class

    if any(item.promise == "class" for item in verdict.broken):
        return ""
    kind = sampler_class(sampler)
    names = ("may_return_fewer", "may_return_more", "may_repeat", "needs_logits", "needs_embeddings", "needs_evidence")
    said = [name for name in names if getattr(kind, name)]
    pulls = "pulls through the ledger" if kind.needs_encoder else "never pulls"
    return f" ({kind.name}, {kind.role}; declares: {', '.join([pulls, *said])})"


def _print_promises(verdict: Verdict) -> None:
    from focus_eval.samplers.contract.suite import PROMISES

    broken = {item.promise: item for item in verdict.broken}
    for promise, text in PROMISES.items():
        if promise not in broken:
            if promise not in verdict.not_tried:
                print(f"  ok      {promise:<12} {text}")
            continue
        found = broken[promise]
        print(f"  BROKEN  {promise:<12} {text}")
        if found.case is not None:
            print(f"          smallest case: {found.case}")
        print(f"          {found.message}")


def _print_end(verdict: Verdict) -> None:
    if verdict.not_tried:
        print(f"  not tried until the rest is fixed: {', '.join(verdict.not_tried)}")
    took = ""
    if verdict.ten_hours_seconds is not None:
        took = f"; ten hours of video took {verdict.ten_hours_seconds:.2f} s and {verdict.ten_hours_pulls} pulls"
    n = len(verdict.broken)
    outcome = "every promise is kept" if n == 0 else f"{n} {'promise is' if n == 1 else 'promises are'} broken"
    print(f"{outcome} on {verdict.n_cases} questions{took}")
