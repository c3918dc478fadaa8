"""The compiled core; built from ext/."""
