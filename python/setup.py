"""Puts the library that the source tree has built beside the package; pyproject.toml says the rest."""
import os
import pathlib
import shutil

import setuptools
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
BUILT = pathlib.Path(os.environ.get("PLIMSOLL_FFI_LIBRARY") or
                     HERE.parent / "build" / "src" / "ffi" / "libplimsoll_ffi.so")


class BuildWithLibrary(build_py):
    def run(self):
        if not BUILT.exists():
            raise SystemExit(f"{BUILT}: not there (want it built first: sh tools/build.sh; PLIMSOLL_FFI_LIBRARY may name it)")
        super().run()
        target = pathlib.Path(self.build_lib) / "plimsoll"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(BUILT, target / "libplimsoll_ffi.so")


setuptools.setup(cmdclass={"build_py": BuildWithLibrary})
