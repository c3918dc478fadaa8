"""Pictures of sweeps: the right one for the parameters and objectives, and none that cannot be."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fabemu.errors import InputError, OutputError
from fabemu.sweeps import picture
from fabemu.sweeps.parameter import Parameter
from fabemu.sweeps.picture import check_picture, draw, pareto_front
from fabemu.sweeps.result import PointResult

FIGURES = ("slowdown.p99", "pauses.paused_ps")


def point(number, settings, numbers, *values, runs=3):
    medians = dict(zip(FIGURES, values, strict=True))
    return PointResult(number, settings, numbers, runs, 0, medians, medians, {k: v * 1.1 for k, v in medians.items()})


def sweep_of(points, seeds=3):
    keys = list(points[0].settings)
    info = {"definition": {"name": "case", "seeds": list(range(seeds))}}
    return SimpleNamespace(parameters=keys, info=info, points=lambda figures: points, directory="case.sweep")


def drawn(monkeypatch, tmp_path, sweep, objectives=()):
    """The axes of a picture, kept when it is saved."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    kept = []
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *args, **more: kept.append(self) or save(self, *args, **more))
    path = tmp_path / "picture.png"
    draw(sweep, path, objectives)
    assert path.read_bytes().startswith(b"\x89PNG")
    return kept[0].axes


def grid():
    return [
        point(index, {"a": a, "b": b}, {"a": number, "b": None}, float(index + 1), 1e6 * (9 - index))
        for index, (a, number, b) in enumerate(
            (a, number, b) for a, number in (("1MiB", 2**20), ("64KiB", 2**16)) for b in ("dcqcn", "none", "fixed")
        )
    ]


def test_one_parameter_is_a_line_over_its_numbers(monkeypatch, tmp_path):
    numbers = {"4MiB": 2**22, "1MiB": 2**20, "2MiB": 2**21}
    points = [point(i, {"a": text}, {"a": n}, 2.0 + i, 0.0) for i, (text, n) in enumerate(numbers.items())]
    (axes,) = drawn(monkeypatch, tmp_path, sweep_of(points))
    line = axes.lines[0]
    assert line.get_xdata().tolist() == [2**20, 2**21, 2**22] and list(line.get_ydata()) == [3.0, 4.0, 2.0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1MiB", "2MiB", "4MiB"]
    assert axes.get_xlabel() == "a" and axes.get_ylabel() == "slowdown.p99"
    assert axes.get_title() == "case: median over 3 seeds"


@pytest.mark.parametrize(("last", "scale"), [(2**22, "linear"), (2**25, "log")])
def test_what_spans_orders_of_magnitude_is_drawn_by_ratios(monkeypatch, tmp_path, last, scale):
    points = [point(i, {"a": str(n)}, {"a": n}, 2.0, 0.0) for i, n in enumerate((2**20, 2**21, last))]
    (axes,) = drawn(monkeypatch, tmp_path, sweep_of(points))
    assert axes.get_xscale() == scale
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(n) for n in (2**20, 2**21, last)]


def test_words_lie_side_by_side(monkeypatch, tmp_path):
    points = [point(i, {"a": text}, {"a": text}, 2.0, 0.0) for i, text in enumerate(("none", "dcqcn"))]
    (axes,) = drawn(monkeypatch, tmp_path, sweep_of(points), ["pauses.paused_ps"])
    assert axes.lines[0].get_xdata().tolist() == [0, 1]
    assert axes.get_ylabel() == "pauses.paused_ps"


def test_two_parameters_are_a_heat_map(monkeypatch, tmp_path):
    axes, _ = drawn(monkeypatch, tmp_path, sweep_of(grid()))
    cells = np.asarray(axes.images[0].get_array())
    assert cells.tolist() == [[4, 1], [5, 2], [6, 3]], "numbers in order, words as they come"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["64KiB", "1MiB"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["dcqcn", "none", "fixed"]
    assert sorted(text.get_text() for text in axes.texts) == [f"{value}.00" for value in range(1, 7)]


def test_points_that_fill_no_grid_are_dots(monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    points = [
        point(i, {"a": f"{x}", "b": f"{y}"}, {"a": x, "b": y}, np.inf if i == 3 else x + y, 0.0)
        for i, (x, y) in enumerate(rng.random((12, 2)).tolist())
    ]
    axes, _ = drawn(monkeypatch, tmp_path, sweep_of(points))
    assert not axes.images and len(axes.collections[0].get_offsets()) == 11 and len(axes.get_xticks()) == 8


def test_two_objectives_are_a_pareto_front(monkeypatch, tmp_path):
    values = [(1.0, 9.0), (2.0, 5.0), (2.5, 7.0), (3.0, 5.0), (4.0, 1.0), (np.inf, 0.5), (1.0, 10.0)]
    points = [point(i, {"a": str(i)}, {"a": i}, *pair) for i, pair in enumerate(values)]
    assert [item.point for item in pareto_front(points, FIGURES)] == [0, 1, 4]
    axes = drawn(monkeypatch, tmp_path, sweep_of(points), FIGURES)[0]
    assert list(axes.lines[0].get_xdata()) == [1.0, 2.0, 4.0]
    assert {text.get_text() for text in axes.texts} == {"0", "1", "4"}


def test_nothing_to_draw(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no run has figures: there is nothing to draw"):
        draw(sweep_of([point(0, {"a": "1"}, {"a": 1}, np.nan, np.nan, runs=0)]), tmp_path / "picture.png")


ONE = [Parameter("a", (1, 2))]


@pytest.mark.parametrize(
    ("name", "parameters", "objectives", "error", "message"),
    [
        ("p.bmp", ONE, (), InputError, "the name must end in .png, .svg or .pdf"),
        ("gone/p.png", ONE, (), OutputError, "there is no directory"),
        ("p.png", ONE * 3, (), InputError, "3 parameters are too many for one picture; give two --objective"),
        ("p.png", ONE, FIGURES * 2, InputError, "a picture has one or two objectives, not 4"),
        ("p.png", ONE, FIGURES[:1] * 2, InputError, "the two objectives are the same"),
        ("p.png", ONE, ("speed",), InputError, "there is no figure 'speed'"),
    ],
)
def test_pictures_that_cannot_be(tmp_path, name, parameters, objectives, error, message):
    with pytest.raises(error) as found:
        check_picture(tmp_path / name, parameters, objectives)
    assert message in str(found.value)


def test_without_matplotlib_it_says_so_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"--plot needs matplotlib: install it with pip install 'fabemu\[pandas\]'"):
        picture.check_picture(tmp_path / "p.png", ONE, ())


def test_a_picture_that_cannot_be_written(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(OutputError, match=r"picture\.png: cannot be written: No such file or directory"):
        draw(sweep_of(grid()), tmp_path / "gone" / "picture.png")
