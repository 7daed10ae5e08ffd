"""Puts the library that the source tree has built beside the package; pyproject.toml says the rest."""
import pathlib
import shutil

import setuptools
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
BUILT = HERE.parent / "build" / "src" / "ffi" / "libplimsoll_ffi.so"


class BuildWithLibrary(build_py):
    def run(self):
        if not BUILT.exists():
            raise SystemExit(f"{BUILT}: not there (want it built first: sh tools/build.sh)")
        super().run()
        target = pathlib.Path(self.build_lib) / "plimsoll"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(BUILT, target)


setuptools.setup(cmdclass={"build_py": BuildWithLibrary})
