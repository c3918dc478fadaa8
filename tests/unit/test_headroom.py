"""The headroom bound against figures worked out by hand."""

from __future__ import annotations

import pytest

from fabemu.headroom import headroom_bound_bytes, headroom_terms, ns3_headroom_bytes

NS_PER_METRE = 5


@pytest.mark.parametrize(
    ("rate_gbps", "length_m", "at_once", "after_614_4_ns"),
    [
        (100, 5, 13_223, 20_903),
        (400, 5, 15_098, 45_818),
        (400, 100, 62_598, 93_318),
        (400, 300, 162_598, 193_318),
        (800, 300, 312_598, 374_038),
    ],
)
def test_bound_of_4158_byte_frames(rate_gbps: int, length_m: int, at_once: int, after_614_4_ns: int) -> None:
    for response_ps, expected in ((0, at_once), (614_400, after_614_4_ns)):
        bound = headroom_bound_bytes(
            rate_bps=rate_gbps * 10**9,
            delay_ps=length_m * NS_PER_METRE * 1000,
            response_ps=response_ps,
            frame_bytes=4158,
        )
        assert bound == expected


def test_bound_rounds_up_at_rates_that_do_not_divide() -> None:
    exact = 4158 + (4178 + 84) + 2 * 1e-6 * 70e9 / 8 + 4178
    bound = headroom_bound_bytes(rate_bps=70 * 10**9, delay_ps=10**6, frame_bytes=4158)
    assert exact <= bound <= exact + 2


@pytest.mark.parametrize(("rate_gbps", "expected"), [(100, 37_500), (400, 150_000), (25, 9_375)])
def test_ns3_headroom_at_one_microsecond(rate_gbps: int, expected: int) -> None:
    assert ns3_headroom_bytes(rate_bps=rate_gbps * 10**9, delay_ps=10**6) == expected


@pytest.mark.parametrize("rate_bps", [10**9, 70 * 10**9, 400 * 10**9])
@pytest.mark.parametrize("response_ps", [0, 614_400])
def test_terms_are_the_bound(rate_bps: int, response_ps: int) -> None:
    link = {"rate_bps": rate_bps, "delay_ps": 123_457, "response_ps": response_ps, "frame_bytes": 4174}
    terms = headroom_terms(**link)
    assert sum(terms.by_name().values()) == terms.total_bytes == headroom_bound_bytes(**link)
    assert ("response" in terms.by_name()) == (response_ps > 0)
    assert str(terms).startswith("raising frame 4,174 + waiting ")


@pytest.mark.parametrize("cell_bytes", [2, 16, 21, 22, 64, 65, 84, 208, 4174, 9000])
@pytest.mark.parametrize(("rate_gbps", "delay_ps"), [(100, 25_000), (800, 10**6)])
def test_cells_take_what_the_worst_stream_of_frames_takes(cell_bytes: int, rate_gbps: int, delay_ps: int) -> None:
    """No stream of equal frames fills more cells between the frame that raises XOFF and the last one, both the largest.

    With cells larger than the gap between frames some stream fills as many, but for a frame that the time cuts off.
    """
    link = {"rate_bps": rate_gbps * 10**9, "delay_ps": delay_ps, "frame_bytes": 4174}
    in_bytes = headroom_bound_bytes(**link)
    stream = in_bytes - 2 * 4174 - 20
    bound = headroom_bound_bytes(**link, cell_bytes=cell_bytes)

    def cells(size: int) -> int:
        return -(-size // cell_bytes) * cell_bytes

    worst = max(stream // (size + 20) * cells(size) for size in range(64, 4175)) + 2 * cells(4174)
    assert max(worst, in_bytes) <= bound
    assert bound % cell_bytes == 0
    if cell_bytes > 20:
        assert bound <= worst + cells(4174), "no more than what a stream of unequal frames could add"


def test_bound_with_cells_by_hand() -> None:
    """Two frames of 17 cells; in 1,398,960 ps, 4,372 B at 25 Gb/s, there is room for 52 frames of 84 B and one cell."""
    assert (
        headroom_bound_bytes(rate_bps=25 * 10**9, delay_ps=15_000, frame_bytes=4174, cell_bytes=256)
        == (17 + 52 + 17) * 256
    )
