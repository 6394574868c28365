"""Run by the Python of a build image: puts that Python with all it needs into a folder that runs wherever it is mounted
at the same path, whatever libc and Python are there. (The path is fixed, since the kernel wants a program's loader by
its full path. Finding it at run time would take one more program, built for this alone.)

    bundle.py FOLDER PACKAGES PATCHELF      PACKAGES: a site-packages folder, copied to FOLDER/packages
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

# Never needed by a launcher, and more than half of the size.
LEFT_OUT = (
    "__pycache__ test tests _test* *.a config-3* idlelib tkinter _tkinter* turtledemo turtle.py lib2to3 pydoc_data "
    "curses _curses* readline.* sqlite3 _sqlite3* dbm _dbm* _gdbm* nis.* _crypt* "
    "ensurepip venv distutils pip pip-* setuptools setuptools-* pkg_resources _distutils_hack distutils-precedence.pth "
    "site-packages dist-packages EXTERNALLY-MANAGED "
    # a second, asynchronous client for Kubernetes, and what only that needs
    "aio aiohttp* aiosignal* aiohappyeyeballs* multidict* yarl* frozenlist* propcache* "
    "tzdata*"  # many small files: the API server speaks UTC
)

# Of the build image's own Python. The launcher has one for its children.
NOT_OF_PYTHON = ("sitecustomize.py",)

# Opened by name at run time, so that no file lists them: for names of hosts and users, and for threads that end.
OPENED_BY_LIBC = ("libnss_compat.so.2", "libnss_dns.so.2", "libnss_files.so.2", "libgcc_s.so.1")

# The dynamic loader's name in the folder. Short: patchelf breaks programs whose loader gets a longer path than before.
LOADER = "ld.so"


def main(folder: str, packages: str, patchelf: str) -> None:
    python = os.path.join(folder, "bin", "python3")
    libraries = os.path.join(folder, "lib")
    version = "python" + sysconfig.get_python_version()
    os.makedirs(os.path.dirname(python))
    shutil.copy(os.path.realpath(sys.executable), python)
    _copy(sysconfig.get_path("stdlib"), os.path.join(libraries, version), NOT_OF_PYTHON)
    _copy(packages, os.path.join(folder, "packages"))

    loader = _output(patchelf, "--print-interpreter", python).strip()
    for library in {*_needed([python, *_modules(folder)]), *_opened_by_libc()}:
        shutil.copy(library, libraries)
    shutil.copy(loader, os.path.join(libraries, LOADER))
    _use_own_libraries(folder, patchelf, python)

    site = _output(python, "-Ic", "import site; print(site.getsitepackages()[0])").strip()
    os.makedirs(site, exist_ok=True)
    with open(os.path.join(site, "packages.pth"), "w") as file:
        file.write(os.path.join(folder, "packages") + "\n")


def _copy(source: str, target: str, more_left_out: tuple[str, ...] = ()) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT.split(), *more_left_out))


def _modules(folder: str) -> list[str]:
    return glob.glob(os.path.join(folder, "**", "*.so*"), recursive=True)


def _needed(files: list[str]) -> set[str]:
    """The shared libraries that these files need, and those need."""
    listed = _output("ldd", *files)
    missing = sorted(set(re.findall(r"(\S+) => not found", listed)))
    if missing:
        sys.exit(f"bundle.py: the build image lacks {', '.join(missing)}")
    return set(re.findall(r"=> (/\S+)", listed))


def _opened_by_libc() -> list[str]:
    known = dict(re.findall(r"^\s+(\S+) .*=> (/\S+)$", _output("ldconfig", "-p"), re.MULTILINE))
    return [known[name] for name in OPENED_BY_LIBC]


def _use_own_libraries(folder: str, patchelf: str, python: str) -> None:
    """An rpath, not a runpath: it goes before LD_LIBRARY_PATH, which Paddle images set, and the program's holds for all
    that is loaded later, too, unless a file has a runpath of its own."""
    libraries = os.path.join(folder, "lib")
    _output(patchelf, "--set-interpreter", os.path.join(libraries, LOADER), python)
    _output(patchelf, "--force-rpath", "--set-rpath", libraries, python)
    for module in _modules(folder):
        if own := _output(patchelf, "--print-rpath", module).strip():
            _output(patchelf, "--force-rpath", "--set-rpath", f"{own}:{libraries}", module)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


main(*sys.argv[1:])
