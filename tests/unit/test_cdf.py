"""Flow-size distributions: formats, closed-form means, sampling, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fabemu.errors import InputError
from fabemu.workload.cdf import BUILTIN, builtin_distribution, parse_distribution, read_distribution, size_distribution
from fabemu.workload.draw import Draw

# Means of the published tables, to the printed digit, and the largest size.
MEANS = {
    "WebSearch": ("1711250.0", 30_000_000),
    "Hadoop": ("120420.8", 10_000_000),
    "AliStorage2019": ("40869.8", 2_000_000),
    "GoogleRPC2008": ("2891.6", 15_158_197),
    "Solar2022": ("39423.5", 262_144),
    "CacheFollower": ("712573.5", 3_000_000),
    "DataMining": ("7487883.7", 1_000_000_000),
    "WebServer": ("66121.0", 500_000),
}


@pytest.mark.parametrize("name", BUILTIN)
def test_mean_of_every_table_is_the_published_one(name):
    distribution = builtin_distribution(name)
    mean, largest = MEANS[name]
    assert f"{distribution.mean_bytes:.1f}" == mean
    assert distribution.max_bytes == largest


@pytest.mark.parametrize("name", BUILTIN)
def test_sample_mean_agrees_with_the_closed_form(name):
    distribution = builtin_distribution(name)
    count = 400_000
    sizes = distribution.sample(Draw(1, name, 0, "size").uniform(count))
    # Five standard errors, and half a byte for the rounding.
    assert abs(sizes.mean() - distribution.mean_bytes) < 5 * sizes.std() / count**0.5 + 0.5
    assert sizes.min() >= 1
    assert sizes.max() <= distribution.max_bytes


def test_sample_follows_the_table_between_its_points():
    distribution = builtin_distribution("WebSearch")
    sizes = np.sort(distribution.sample(Draw(1, "", 0, "size").uniform(200_000)))
    for size, cumulative in zip(distribution.size_bytes, distribution.cumulative, strict=True):
        assert np.searchsorted(sizes, size, side="right") / len(sizes) == pytest.approx(cumulative, abs=0.005)


def test_inversion_is_linear_in_bytes():
    distribution = parse_distribution("0 0\n100 0.5\n300 1\n", "t")
    drawn = distribution.sample(np.array([0.0, 0.25, 0.5, 0.75, 1 - 2**-53]))
    assert drawn.tolist() == [1, 50, 100, 200, 300]
    assert distribution.mean_bytes == 0.5 * 50 + 0.5 * 200


def test_repeated_size_is_a_step_and_flat_piece_is_never_drawn():
    distribution = parse_distribution("70 0\n70 0.5\n200 0.5\n300 1\n", "t")
    drawn = distribution.sample(np.array([0.0, 0.2, 0.499999, 0.5, 0.75]))
    assert drawn.tolist() == [70, 70, 70, 200, 250]
    assert distribution.mean_bytes == 0.5 * 70 + 0.5 * 250


def test_first_point_above_zero_is_a_step():
    distribution = parse_distribution("100 40\n200 100", "t")
    drawn = distribution.sample(np.array([0.0, 0.39, 0.4, 0.7]))
    assert drawn.tolist() == [100, 100, 100, 150]
    assert distribution.mean_bytes == pytest.approx(0.4 * 100 + 0.6 * 150)


def test_single_point_is_a_constant():
    distribution = parse_distribution("1000 1", "t")
    assert distribution.sample(np.array([0.0, 0.5, 0.999])).tolist() == [1000, 1000, 1000]
    assert distribution.mean_bytes == 1000


@pytest.mark.parametrize(
    "text",
    [
        "0 0\n100 50\n200 100\n",
        "0 0\n100 0.5\n200 1\n",
        "0\t0\r\n100  \t50\r\n200 100",
        "bytes,probability\n0,0\n100,0.5\n200,1\n",
        "# ours\n\n0, 0\n100, 0.50\n2e2, 1.0\n",
        "\ufeff0 0\n100 50\n200 100.0\n\nWeb search, from a paper\n",
    ],
)
def test_formats(text):
    distribution = parse_distribution(text, "t")
    assert distribution.size_bytes.tolist() == [0, 100, 200]
    assert distribution.cumulative.tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "0 0\n200 50\n100 100",
            "t:3: not monotone: 100 bytes, probability 100 after 200 bytes, probability 50 in line 2",
        ),
        (
            "0 0\n100 0.5\n\n200 0.4\n300 1",
            "t:4: not monotone: 200 bytes, probability 0.4 after 100 bytes, probability 0.5 in line 2",
        ),
        ("0 0\n100 98", "t:2: the last probability is 98; it must be 1 (fractions) or 100 (percent)"),
        ("0 0\n100 101", "t:2: probability 101 is out of range; allowed are 0 to 1, or 0 to 100 %"),
        ("-1 0\n100 1", "t:1: size -1 is out of range; allowed are 0 to 1e+15 bytes"),
        ("0 0\n100 x\n200 1", "t:2: '100 x' is not a point; write two numbers: bytes probability"),
        ("0 0\n100 50 2\n200 1", "t:2: '100 50 2' is not a point; write two numbers: bytes probability"),
        (
            "0 0\nhalf\n200 1",
            "t:2: text between the points: another point follows in line 3; put comments behind #",
        ),
        ("", "t: no points; write lines of two numbers: bytes probability"),
        ("0 1", "t:1: all flows would have 0 bytes; a distribution needs sizes above 0"),
    ],
)
def test_errors(text, message):
    with pytest.raises(InputError) as caught:
        parse_distribution(text, "t")
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["websearch", "WEBSEARCH", "fbhdp", "Hadoop", "alistorage"])
def test_names_in_any_case_and_aliases(name):
    assert size_distribution(name, Path()).name in BUILTIN


def test_unknown_name_has_a_hint():
    with pytest.raises(InputError, match="did you mean 'WebSearch'"):
        size_distribution("WebSerch", Path())


def test_path_is_relative_to_the_scenario(tmp_path):
    (tmp_path / "mine.txt").write_text("0 0\n10 1\n")
    (tmp_path / "plain").write_text("0 0\n20 1\n")
    assert size_distribution("mine.txt", tmp_path).mean_bytes == 5
    assert size_distribution("plain", tmp_path).mean_bytes == 10


def test_unreadable_files(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"0 0\n\xff\xfe 1\n")
    with pytest.raises(InputError, match="invalid UTF-8 at byte 4"):
        read_distribution(tmp_path / "bad.txt")
    with pytest.raises(InputError, match="No such file or directory"):
        read_distribution(tmp_path / "none.txt")
    with pytest.raises(InputError, match="not a regular file"):
        read_distribution(tmp_path)
