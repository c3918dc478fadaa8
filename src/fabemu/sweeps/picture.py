"""Pictures of a sweep: lines over one parameter, a heat map over two, the Pareto front of two objectives."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fabemu.errors import InputError, OutputError
from fabemu.headline import FIGURES, check_figure
from fabemu.sweeps.parameter import Parameter
from fabemu.sweeps.result import PointResult, Sweep, figure_text
from fabemu.whole_file import whole_file

OBJECTIVE = "slowdown.p99"
"""What is drawn unless told otherwise."""

SUFFIXES = (".png", ".svg", ".pdf")
_SPAN = 16
_INK, _FAINT = "#1f4e79", "#9db8d2"


def check_picture(path: Path, parameters: Sequence[Parameter], objectives: Sequence[str]) -> None:
    """See, before anything runs, that the picture can be drawn.

    Raises
    ------
    InputError
        Another kind of file, more parameters or objectives than a picture has axes, or no matplotlib.
    OutputError
        Its directory is not there.
    OSError
        Its name is too long.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--plot {path}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"--plot {path}: there is no directory {path.parent}")
    with contextlib.suppress(FileNotFoundError):
        path.lstat()  # a name that no file can have is wrong now, not when all has run
    for name in objectives:
        check_figure(name)
    if len(objectives) > 2:
        raise InputError(f"--plot {path}: a picture has one or two objectives, not {len(objectives)}")
    if len(set(objectives)) < len(objectives):
        raise InputError(f"--plot {path}: the two objectives are the same")
    if len(parameters) > 2 and len(objectives) < 2:
        raise InputError(
            f"--plot {path}: {len(parameters)} parameters are too many for one picture; "
            "give two --objective for a Pareto front"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("--plot needs matplotlib: install it with pip install 'fabemu[pandas]'") from None


def draw(sweep: Sweep, path: Path, objectives: Sequence[str] = ()) -> None:
    """Draw a sweep to a file.

    Parameters
    ----------
    sweep
        Its points are drawn by their medians over the seeds.
    path
        PNG, SVG or PDF, by its name.
    objectives
        One: over the parameter, or the two; two: against each other. `OBJECTIVE` if none.

    Raises
    ------
    InputError
        If no point has figures.
    OutputError
        If the file cannot be written.
    MachineError
        If the disk is full.
    """
    from matplotlib.figure import Figure as Canvas

    chosen = tuple(objectives) or (OBJECTIVE,)
    points = [point for point in sweep.points(chosen) if point.runs and not np.isnan(point.medians[chosen[0]])]
    if not points:
        raise InputError(f"{sweep.directory}: no run has figures: there is nothing to draw")
    canvas = Canvas(figsize=(7.2, 4.8), layout="constrained")
    axes = canvas.add_subplot()
    if len(chosen) == 2:
        _pareto(axes, points, chosen)
    elif len(sweep.parameters) == 1:
        _line(axes, points, sweep.parameters[0], chosen[0])
    else:
        _map(canvas, axes, points, sweep.parameters, chosen[0])
    definition = sweep.info["definition"]
    seeds = len(definition["seeds"])
    axes.set_title(f"{definition['name']}: median over {seeds} seeds" if seeds > 1 else definition["name"], fontsize=10)
    with whole_file(path) as file:
        canvas.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def pareto_front(points: Sequence[PointResult], objectives: Sequence[str]) -> list[PointResult]:
    """The points that no other point equals or betters in both objectives; less is better. By the first objective."""
    first, second = objectives
    ordered = sorted(points, key=lambda point: (point.medians[first], point.medians[second]))
    front: list[PointResult] = []
    for point in ordered:
        value = point.medians[second]
        if np.isfinite([point.medians[first], value]).all() and (not front or value < front[-1].medians[second]):
            front.append(point)
    return front


def _pareto(axes: Any, points: Sequence[PointResult], objectives: Sequence[str]) -> None:
    first, second = objectives
    axes.scatter(
        [point.medians[first] for point in points], [point.medians[second] for point in points], s=22, color=_FAINT
    )
    front = pareto_front(points, objectives)
    axes.plot(
        [point.medians[first] for point in front],
        [point.medians[second] for point in front],
        "o-",
        color=_INK,
        markersize=5,
        linewidth=1,
        drawstyle="steps-post",
        label="no other point is better in both",
    )
    for point in front[:12]:
        text = ", ".join(point.settings.values())
        place = (point.medians[first], point.medians[second])
        axes.annotate(text, place, (4, 4), textcoords="offset points", fontsize=7)
    _label(axes.xaxis, axes.set_xlabel, first)
    _label(axes.yaxis, axes.set_ylabel, second)
    if front:
        axes.legend(fontsize=8, frameon=False)


def _line(axes: Any, points: Sequence[PointResult], key: str, objective: str) -> None:
    places, ticks = _axis(points, key)
    order = np.argsort(places, kind="stable")
    sorted_points = [points[index] for index in order]
    across = places[order]
    axes.fill_between(
        across,
        [point.lows[objective] for point in sorted_points],
        [point.highs[objective] for point in sorted_points],
        color=_FAINT,
        alpha=0.5,
        linewidth=0,
        label="least to greatest",
    )
    axes.plot(across, [point.medians[objective] for point in sorted_points], "o-", color=_INK, label="median")
    _scale(axes.set_xscale, across)
    _ticks(axes.xaxis, ticks)
    axes.set_xlabel(key)
    _label(axes.yaxis, axes.set_ylabel, objective)
    axes.legend(fontsize=8, frameon=False)


def _map(canvas: Any, axes: Any, points: Sequence[PointResult], keys: Sequence[str], objective: str) -> None:
    """Cells if the points fill a grid, dots where they lie if not."""
    values = np.array([point.medians[objective] for point in points])
    texts = [list(dict.fromkeys(point.settings[key] for point in points)) for key in keys]
    if len(texts[0]) * len(texts[1]) <= 2 * len(points):
        texts = [_in_order(points, key, found) for key, found in zip(keys, texts, strict=True)]
        cells = np.full((len(texts[1]), len(texts[0])), np.nan)
        for point, value in zip(points, values, strict=True):
            cells[texts[1].index(point.settings[keys[1]]), texts[0].index(point.settings[keys[0]])] = value
        shown = np.ma.masked_invalid(cells)
        image = axes.imshow(shown, origin="lower", aspect="auto", cmap="viridis_r")
        axes.set_facecolor("#dddddd")  # no figures, or infinite
        _ticks(axes.xaxis, list(enumerate(texts[0])))
        _ticks(axes.yaxis, list(enumerate(texts[1])))
        if cells.size <= 100:
            for row, column in np.ndindex(cells.shape):
                text = figure_text(objective, float(cells[row, column]))
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white", path_effects=_edge())
    else:
        (across, across_ticks), (up, up_ticks) = _axis(points, keys[0]), _axis(points, keys[1])
        finite = np.isfinite(values)
        image = axes.scatter(across[finite], up[finite], c=values[finite], cmap="viridis_r", s=40)
        axes.scatter(across[~finite], up[~finite], marker="x", color="#888888", label="infinite")
        _scale(axes.set_xscale, across)
        _scale(axes.set_yscale, up)
        _ticks(axes.xaxis, across_ticks)
        _ticks(axes.yaxis, up_ticks)
    axes.set_xlabel(keys[0])
    axes.set_ylabel(keys[1])
    bar = canvas.colorbar(image, ax=axes)
    _label(bar.ax.yaxis, bar.set_label, objective)


def _scale(set_scale: Any, places: np.ndarray) -> None:
    """By ratios, where they span more than distances can show."""
    if places.min() > 0 and places.max() >= _SPAN * places.min():
        set_scale("log")


def _axis(points: Sequence[PointResult], key: str) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Where points lie along a parameter, and what to write there: numbers to scale, words side by side."""
    numbers = [point.numbers[key] for point in points]
    texts = [point.settings[key] for point in points]
    if all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        places = np.array(numbers, dtype=float)
        marks = dict(sorted(zip(places.tolist(), texts, strict=True)))
        if len(marks) > 8:
            step = (len(marks) - 1) / 7
            kept = {round(index * step) for index in range(8)}
            marks = {place: text for index, (place, text) in enumerate(marks.items()) if index in kept}
        return places, list(marks.items())
    words = list(dict.fromkeys(texts))
    return np.array([words.index(text) for text in texts], dtype=float), list(enumerate(words))


def _in_order(points: Sequence[PointResult], key: str, texts: Sequence[str]) -> list[str]:
    """Texts by the numbers they stand for, words behind in their own order."""
    numbers = {point.settings[key]: point.numbers[key] for point in points}
    is_number = {text: isinstance(numbers[text], int | float) for text in texts}
    return sorted(texts, key=lambda text: (not is_number[text], numbers[text] if is_number[text] else 0))


def _ticks(axis: Any, ticks: Sequence[tuple[float, str]]) -> None:
    axis.set_ticks([place for place, _ in ticks], [text for _, text in ticks], fontsize=8)
    axis.set_minor_locator(_no_ticks())


def _label(axis: Any, write: Any, name: str) -> None:
    """Name of a figure beside its axis, with numbers in the unit that suits them."""
    from matplotlib.ticker import FuncFormatter

    if FIGURES[name].unit:
        axis.set_major_formatter(FuncFormatter(lambda value, _: figure_text(name, value)))
    write(name)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _edge() -> list[Any]:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=1.5, foreground="#333333")]
