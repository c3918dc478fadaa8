"""The README's first run: its picture, and the figures that the README quotes.

``python docs/first_run.py`` runs ``scenarios/websearch-leaf-spine.toml``, draws ``docs/first-run.svg`` from the Arrow
tables and puts the summary and what pandas prints into README.md. ``python docs/first_run.py RUN_DIR PICTURE`` only
draws: ``flows``, ``ports`` and ``pauses`` of any run. Needs the extra ``pandas``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
NAME = "websearch-leaf-spine"
SIZES = [
    ("up to 10 KB", -1, 10e3),
    ("10 to 100 KB", 10e3, 100e3),
    ("100 KB to 1 MB", 100e3, 1e6),
    ("above 1 MB", 1e6, 1e18),
]
COLOURS = ["#9ecae1", "#4a90c4", "#1f5f9e", "#0b2f5c"]  # light to dark with size


def draw(run_directory: Path, picture: Path) -> None:
    """Draw the tail of the slowdown and the queues behind it.

    Parameters
    ----------
    run_directory
        A run with the tables ``flows``, ``ports`` and ``pauses``.
    picture
        The file to write; its suffix is the format.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "fabemu", "svg.fonttype": "none", "font.size": 9})
    flows = pd.read_feather(run_directory / "flows.arrow")
    ports = pd.read_feather(run_directory / "ports.arrow")
    pauses = pd.read_feather(run_directory / "pauses.arrow")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")

    for (label, low, high), colour in zip(SIZES, COLOURS, strict=True):
        slowdown = flows.loc[flows.bytes.between(low, high, inclusive="right"), "slowdown"].dropna().sort_values()
        if len(slowdown):
            # Ranks from the worst, evenly spread on the axis: the picture stays small and keeps its tail.
            ranks = np.unique(np.geomspace(1, len(slowdown), 80).astype(int))[::-1]
            left.step(slowdown.to_numpy()[-ranks], ranks / len(slowdown), color=colour, label=label)
    left.set(
        xscale="log", yscale="log", xlabel="slowdown (completion time / ideal)", ylabel="messages at or above, share"
    )
    left.set_title("The tail, by message size", loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=8)

    names = ports["port"].astype(str)
    busiest = ports.groupby(names)["queue_max_bytes"].max().nlargest(3).index
    for name, colour in zip(busiest, ["#1f5f9e", "#d98a1f", "#3a8f5c"], strict=False):
        rows = ports[names == name].groupby("start_ps")["queue_max_bytes"].max()
        right.step(rows.index / 1e9, rows / 1e6, where="post", color=colour, label=f"queue of {name}")
    if len(pauses):
        instants = np.unique((pauses.xoff_ps / 1e9).round(2))
        right.plot(instants, np.full(len(instants), -0.2), "|", color="#c0392b", markersize=7, label="XOFF at any port")
    right.set(xlabel="simulated time, ms", ylabel="longest queue per interval, MB")
    right.set_title("The queues behind it", loc="left", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)
    pyplot.close(figure)


def code_blocks(page: str, language: str) -> list[str]:
    """Contents of the fenced blocks of a Markdown page in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def printed(code: str) -> str:
    """Run a block of Python and take what it prints, the ends of lines stripped."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {"__name__": "README"})
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def put(page: str, marker: str, text: str) -> str:
    """Replace the fenced block after ``<!-- marker -->``."""
    changed, count = re.subn(
        rf"(<!-- {re.escape(marker)} -->\n```text\n).*?(^```$)",
        lambda found: f"{found[1]}{text}\n{found[2]}",
        page,
        flags=re.MULTILINE | re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"README.md has {count} blocks marked {marker}; it must have one")
    return changed


def refresh() -> None:
    """Do the first run; renew the picture and the quoted figures."""
    import fabemu

    readme = ROOT / "README.md"
    page = readme.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run = fabemu.run(ROOT / "scenarios" / f"{NAME}.toml", output=f"{NAME}.run")
        page = put(page, "printed by the first command", str(run.summary()).rstrip())
        page = put(page, "printed by pandas", printed(code_blocks(page, "python")[0]))
        draw(Path(f"{NAME}.run"), ROOT / "docs" / "first-run.svg")
    readme.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    if len(sys.argv) == 3:
        draw(Path(sys.argv[1]), Path(sys.argv[2]))
    elif len(sys.argv) == 1:
        refresh()
    else:
        raise SystemExit("usage: python docs/first_run.py [RUN_DIR PICTURE]")
