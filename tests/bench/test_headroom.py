"""How close the headroom bound is: nothing is lost at it, and little less loses."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from bench.headroom import __main__ as command
from bench.headroom import link as link_module
from bench.headroom.link import WIRE_BYTES, Link
from bench.headroom.search import Effort, random_traffic, search
from bench.headroom.traffic import fill, worst_traffic
from bench.headroom.trial import Bench
from fabemu.headroom import HeadroomTerms, headroom_terms
from tests.property.strategies import example_settings

GBPS = 10**9
SMALL = Effort(starts=6, climb=20, polish=15)


@pytest.mark.parametrize(
    "link",
    [
        Link(25 * GBPS, 3, 1024),
        Link(100 * GBPS, 300, 1500, response_ps=614_400, from_switch=True),
        Link(400 * GBPS, 40, 4096),
    ],
)
def test_bound_in_bytes_is_reached_but_for_the_gaps_between_frames(link: Link) -> None:
    found = search(link, effort=SMALL)
    assert found.drops_at_bound == found.drops_at_use == 0 < found.drops_below
    # Besides: the last frame begins before the pause, and frames come in steps of 4 bytes.
    assert found.between_bytes < found.gap_bytes <= found.between_bytes + 4
    assert found.searched.use_bytes > 0.75 * found.greatest.use_bytes, "chance finds traffic that is nearly as bad"


@pytest.mark.parametrize(
    "link",
    [
        Link(25 * GBPS, 3, 1024, cell_bytes=256),
        Link(100 * GBPS, 300, 1500, response_ps=614_400, cell_bytes=208, from_switch=True),
        Link(400 * GBPS, 40, 4096, cell_bytes=256),
    ],
)
def test_bound_in_cells_is_reached(link: Link) -> None:
    found = search(link, effort=SMALL)
    assert found.gap_bytes == 0
    assert found.drops_at_bound == found.drops_at_use == 0 < found.drops_below


@st.composite
def links(draw: st.DrawFn) -> Link:
    return Link(
        rate_bps=draw(st.sampled_from([10, 25, 33, 70, 100, 400, 800])) * GBPS,
        length_m=draw(st.integers(0, 200)),
        mtu=draw(st.sampled_from([256, 1000, 1024, 1500, 4096, 9216])),
        response_ps=draw(st.sampled_from([0, 1, 614_400])),
        cell_bytes=draw(st.sampled_from([1, 1, 16, 64, 208, 256, 5000])),
        from_switch=draw(st.booleans()),
    )


@example_settings(0.1)
@given(links(), st.integers(0, 2**32))
def test_bound_is_enough_for_any_mix_and_phase(link: Link, seed: int) -> None:
    """And what is in use, as the times of transmissions say, is what the engine needs to drop nothing."""
    bench = Bench(link)
    bound = link.terms.total_bytes
    assert bench.auto_bytes == bound
    rng = random.Random(seed)
    for traffic in (worst_traffic(link), random_traffic(link, rng), random_traffic(link, rng)):
        use = bench.use(traffic)
        event(f"use in tenths of the bound: {10 * use.use_bytes // bound}")
        event(f"egress opens: {bool(traffic.openings_ps)}")
        assert use.use_bytes <= bound
        assert bench.drops(traffic, bound) == bench.drops(traffic, use.use_bytes) == 0
        assert bench.drops(traffic, use.use_bytes - 1) > 0


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.sampled_from([1, 16, 208, 256]), st.integers(0, 30_000), st.integers(0, 2**32))
def test_no_other_frames_fill_more(cell_bytes: int, budget: int, seed: int) -> None:
    link = Link(100 * GBPS, 0, 1024, cell_bytes=cell_bytes)
    wire_ps = budget * 80
    frames = fill(link, wire_ps)
    assert sum(size + WIRE_BYTES for size in frames) <= budget
    rng = random.Random(seed)
    sizes = rng.choice([link.edges, link.edges[:4], link.sizes[-8:], link.sizes])
    rest, others = budget, 0
    while fitting := [size for size in sizes if size + WIRE_BYTES <= rest]:
        size = rng.choice(fitting)
        rest, others = rest - size - WIRE_BYTES, others + link.charge(size)
    assert sum(map(link.charge, frames)) >= others


def test_the_search_is_the_same_every_time() -> None:
    link = Link(100 * GBPS, 3, 256)
    first, second = (search(link, seed=5, effort=SMALL) for _ in range(2))
    assert first == second
    assert search(link, seed=6, effort=SMALL).searched != first.searched


def test_command_prints_a_row_for_each_cable(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--starts", "2", "--climb", "2", "--polish", "2"]
    assert command.main(["--rate", "25Gbps", "--length", "3m", "40m", *few]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| 25Gbps | 3 m | 4096 | 12,740 | 12,676 | 64 (0.50%) | 0, 0, 1 | ")
    assert "| 22,016 | 22,016 | 0 | 0, 0, 1 | " in lines[2]
    assert lines[3].startswith("| 25Gbps | 40 m | ")
    assert lines[-1].startswith("4 searches, ")
    assert command.main(["--rate", "25Gbps", "--length", "3m", "--cell", "1B", "--json", *few]) == 0
    (row,) = json.loads(capsys.readouterr().out)["links"]
    assert (row["bound_bytes"], row["greatest_use_bytes"], row["gaps_between_frames_bytes"]) == (12_740, 12_676, 60)


def test_command_finds_a_bound_that_is_too_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the frame that the sender had just begun."""

    def short(**link: int) -> HeadroomTerms:
        terms = headroom_terms(**link)
        return HeadroomTerms(*list(terms.__dict__.values())[:5], 0, terms.cells_bytes)

    monkeypatch.setattr(link_module, "headroom_terms", short)
    few = ["--starts", "0", "--climb", "0", "--polish", "0"]
    assert command.main(["--rate", "25Gbps", "--length", "3m", *few]) == 1
    assert "not as the bound says" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rate", "fast"],
        ["--length", "1.5m"],
        ["--mtu", "0"],
        ["--cell", "0B"],
        ["--starts", "-1"],
        ["--mtu", "99999"],
    ],
)
def test_command_refuses_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err
