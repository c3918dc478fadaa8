"""Command line of the search: how much of the headroom bound traffic can use, as a table or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from bench.headroom.link import Link
from bench.headroom.search import Effort, Found, search
from fabemu.errors import FabemuError
from fabemu.units import format_rate, format_time, parse_bytes, parse_length_m, parse_rate_bps, parse_time_ps

_RATES = ("25Gbps", "100Gbps", "400Gbps", "800Gbps")
_LENGTHS = ("3m", "40m", "300m", "2000m")
_MTU = 4096
_OTHER_MTUS = (1024, 1500, 9216)  # each rate with one of the lengths


def main(arguments: list[str] | None = None) -> int:
    """Search every link; exit code 1 if the engine contradicts the bound or the use on any."""
    parser = argparse.ArgumentParser(prog="python -m bench.headroom", description=__doc__)
    parser.add_argument("--rate", type=_parsed(parse_rate_bps), nargs="+", help="such as 100Gbps")
    parser.add_argument("--length", type=_parsed(_whole_metres), nargs="+", help="of the cable, such as 40m")
    parser.add_argument("--mtu", type=_parsed(_positive), nargs="+", help=f"payload bytes (default: {_MTU})")
    parser.add_argument("--cell", type=_parsed(parse_bytes), nargs="+", default=[1, 256], help="such as 208B")
    parser.add_argument("--response", type=_parsed(parse_time_ps), default=0, help="of the sender to a pause")
    parser.add_argument("--from-switch", action="store_true", help="the sender is a switch instead of a host")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--starts", type=int, default=Effort.starts, help="random traffic of each search")
    parser.add_argument("--climb", type=int, default=Effort.climb, help="changes to the best of it")
    parser.add_argument("--polish", type=int, default=Effort.polish, help="changes to what is worst by reasoning")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--output", type=Path, help="write the JSON to this file as well")
    options = parser.parse_args(arguments)
    if min(options.cell) < 1 or options.response < 0:
        parser.error("--cell must be at least 1B, --response at least 0")
    if min(options.starts, options.climb, options.polish) < 0:
        parser.error("--starts, --climb and --polish must be at least 0")

    effort = Effort(options.starts, options.climb, options.polish)
    rows: list[list[Found]] = []
    if not options.json:
        print("\n".join(_heading(options.cell)))
    for cable in _cables(options.rate, options.length, options.mtu):
        links = [Link(*cable, options.response, cell, options.from_switch) for cell in options.cell]
        try:
            rows.append([search(link, seed=options.seed, effort=effort) for link in links])
        except FabemuError as error:
            parser.error(str(error))
        if not options.json:
            print(_row(rows[-1]), flush=True)
    found = [item for row in rows for item in row]
    text = json.dumps({"effort": asdict(effort), "seed": options.seed, "links": list(map(_figures, found))}, indent=1)
    if options.json:
        print(text)
    else:
        print(f"\n{len(found)} searches, {sum(item.trials for item in found):,} runs of the engine")
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    wrong = [item for item in found if not item.holds]
    for item in wrong:
        print(f"not as the bound says: {item}", file=sys.stderr)
    return 1 if wrong else 0


def _cables(rates: list[int] | None, lengths: list[int] | None, mtus: list[int] | None) -> list[tuple[int, int, int]]:
    """(rate, length, MTU) of every row: all combinations of what is asked for."""
    default_rates, default_lengths = list(map(parse_rate_bps, _RATES)), list(map(_whole_metres, _LENGTHS))
    cables = list(product(rates or default_rates, lengths or default_lengths, mtus or [_MTU]))
    if rates or lengths or mtus:
        return cables
    return cables + [
        (rate, length, mtu) for rate, length in zip(default_rates, default_lengths, strict=True) for mtu in _OTHER_MTUS
    ]


def _parsed(parse: Callable[[str], int]) -> Callable[[str], int]:
    def checked(text: str) -> int:
        try:
            return parse(text)
        except (FabemuError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _whole_metres(text: str) -> int:
    length = parse_length_m(text)
    if length.denominator != 1:
        raise ValueError(f"{text} is not a whole number of metres")
    return int(length)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(f"{text} is not a positive number of bytes")
    return int(text)


def _heading(cells: list[int]) -> list[str]:
    titles = ["rate", "length", "MTU"]
    for cell in cells:
        titles += [f"bound, cells of {cell} B", "greatest use", "gap", "drops", "by chance"]
    return [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]


def _row(found: list[Found]) -> str:
    link = found[0].link
    cells = [format_rate(link.rate_bps), f"{link.length_m} m", str(link.mtu)]
    for item in found:
        drops = f"{item.drops_at_bound}, {item.drops_at_use}, {item.drops_below}"
        gap = f"{item.gap_bytes:,} ({item.gap_bytes / item.bound_bytes:.2%})" if item.gap_bytes else "0"
        chance = f"{item.searched.use_bytes / item.greatest.use_bytes:.1%}"
        cells += [f"{item.bound_bytes:,}", f"{item.greatest.use_bytes:,}", gap, drops, chance]
    return f"| {' | '.join(cells)} |"


def _figures(found: Found) -> dict[str, Any]:
    link = found.link
    return {
        "rate_bps": link.rate_bps,
        "length_m": link.length_m,
        "mtu": link.mtu,
        "response": format_time(link.response_ps),
        "cell_bytes": link.cell_bytes,
        "from_switch": link.from_switch,
        "bound_bytes": found.bound_bytes,
        "terms_bytes": link.terms.by_name(),
        "greatest_use_bytes": found.greatest.use_bytes,
        "frames": found.greatest.frames,
        "gap_bytes": found.gap_bytes,
        "gaps_between_frames_bytes": found.between_bytes,
        "reasoned_use_bytes": found.reasoned.use_bytes,
        "searched_use_bytes": found.searched.use_bytes,
        "drops_at_bound": found.drops_at_bound,
        "drops_at_use": found.drops_at_use,
        "drops_one_cell_below": found.drops_below,
        "trials": found.trials,
    }


if __name__ == "__main__":
    sys.exit(main())
