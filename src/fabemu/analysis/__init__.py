"""Figures from the trace tables: completion times, pauses, utilisation. Takes Arrow tables, gives plain values."""
