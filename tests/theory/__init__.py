"""Closed formulas and known theory that the engine must meet, each with its tolerance."""
