"""Build of the compiled core.

One environment variable picks the profile: ``FABEMU_PROFILE=release`` (default), ``check`` (bounds checks; sanitizers
with ``FABEMU_SANITIZE=address,undefined``) or ``profile`` (frame pointers, annotated HTML). ``FABEMU_NATIVE=1`` tunes
for this machine and makes the wheel unportable.
"""

import os
import platform

from Cython.Build import cythonize
from setuptools import Extension, setup

PROFILES = {
    "release": (["-O3", "-g0"], {}),
    "check": (["-O1", "-g", "-DFABEMU_CHECK=1"], {"boundscheck": True, "overflowcheck": False}),
    "profile": (["-O3", "-g", "-fno-omit-frame-pointer"], {}),
}

profile = os.environ.get("FABEMU_PROFILE", "release")
if profile not in PROFILES:
    raise SystemExit(f"FABEMU_PROFILE is {profile!r}; it must be one of: {', '.join(PROFILES)}")
compile_args, profile_directives = PROFILES[profile]
# Results must not depend on the machine: no fused multiply-add, no value-changing float optimisation.
compile_args = [*compile_args, "-ffp-contract=off", "-fno-fast-math", "-fno-strict-aliasing"]
link_args = []
if os.environ.get("FABEMU_NATIVE") == "1":
    compile_args.append("-march=native")
elif platform.machine() in ("x86_64", "AMD64"):
    # Where loops begin otherwise is chance; this is worth 1 to 2 %.
    compile_args += ["-march=x86-64-v2", "-falign-functions=64", "-falign-loops=32"]
if sanitizers := os.environ.get("FABEMU_SANITIZE"):
    compile_args += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=undefined"]
    link_args.append(f"-fsanitize={sanitizers}")

directives = {
    "language_level": "3",
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
} | profile_directives

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"fabemu._core.{module}",
                [f"ext/fabemu/_core/{module}.pyx"],
                extra_compile_args=compile_args,
                extra_link_args=link_args,
                define_macros=[("FABEMU_PROFILE", f'"{profile}"')],
            )
            for module in ("engine", "columns")
        ],
        include_path=["ext"],
        compiler_directives=directives,
        annotate=profile == "profile",
    )
)
