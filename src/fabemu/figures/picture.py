"""Figures as PNG files, drawn by a Chromium that kaleido drives."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from fabemu.errors import InputError, MachineError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
"""Commands that draw, in the order in which they are looked for."""

WIDTH, SCALE = 1200, 2
"""Pixels of a picture across, and how many dots each has."""


def png(figure: Figure, *, width: int = WIDTH, scale: float = SCALE) -> bytes:
    """A figure as the content of a PNG file.

    Parameters
    ----------
    figure
        Of this package, or any other.
    width
        Pixels across; the height is that of the figure.
    scale
        Dots per pixel.

    Raises
    ------
    InputError
        Kaleido is not installed, or there is no Chromium.
    MachineError
        The browser failed.
    """
    try:
        import kaleido
    except ImportError:
        raise InputError("pictures need kaleido: install it with pip install 'fabemu[report]'") from None
    browser = _browser()
    options = {"format": "png", "width": width, "height": figure.layout.height or 480, "scale": scale}
    try:
        drawn = kaleido.calc_fig_sync(figure, opts=options, kopts={"path": browser, "mathjax": False})
    except Exception as error:
        raise MachineError(f"the picture could not be drawn by {browser}: {error or type(error).__name__}") from error
    return bytes(drawn)


def _browser() -> str:
    asked = os.environ.get("BROWSER_PATH")
    if asked:
        if shutil.which(asked) is None:
            raise InputError(f"BROWSER_PATH: there is no command {asked}; it must be a Chromium or Chrome")
        return asked
    for name in BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise InputError(
        "pictures are drawn by a Chromium or Chrome, and there is none: install one (the package chromium), or set "
        "BROWSER_PATH to it; `fabemu report DIR` without --png needs none"
    )
