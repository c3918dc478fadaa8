"""``python -m fabemu``: the command line without an installed script."""

from fabemu.cli import main

if __name__ == "__main__":
    main()
