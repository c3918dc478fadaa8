"""Topologies: from the `[fabric]` table to named devices and the cables between them."""
