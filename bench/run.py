"""`python bench/run.py`: the same as `python -m bench`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # A script sees its own directory only.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from bench.__main__ import main

    sys.exit(main())
