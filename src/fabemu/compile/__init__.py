"""The compiler: a scenario, its fabric, routes and flows become one `Plan` of flat arrays."""

from fabemu.compile.compiled import Compiled, compile_plan

__all__ = ["Compiled", "compile_plan"]
