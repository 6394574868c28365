"""Copy the Python that runs this program, and all files that it needs, into one folder.

The folder works in any image where it is mounted at the same path, with any libc and Python. The path is fixed, since
the kernel takes only a full path to a program's loader. Looking for it at run time would need one more program.

    bundle.py FOLDER PACKAGES PATCHELF      PACKAGES: a site-packages folder, copied to FOLDER/packages
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

# The launcher needs none of these files, which are more than half of the size.
LEFT_OUT = (
    "__pycache__ test tests _test* *.a config-3* idlelib tkinter _tkinter* turtledemo turtle.py lib2to3 pydoc_data "
    "curses _curses* readline.* sqlite3 _sqlite3* dbm _dbm* _gdbm* nis.* _crypt* "
    "ensurepip venv distutils pip pip-* setuptools setuptools-* pkg_resources _distutils_hack distutils-precedence.pth "
    "site-packages dist-packages EXTERNALLY-MANAGED "
    # the asynchronous client for Kubernetes, which the launcher does not use, and its libraries
    "aio aiohttp* aiosignal* aiohappyeyeballs* multidict* yarl* frozenlist* propcache* "
    "tzdata*"  # many small files; the API server uses UTC
)

# It belongs to the build image. The launcher has its own for its children.
NOT_OF_PYTHON = ("sitecustomize.py",)

# libc opens these by name at run time, so ldd does not list them: for host and user names, and for ending threads.
OPENED_BY_LIBC = ("libnss_compat.so.2", "libnss_dns.so.2", "libnss_files.so.2", "libgcc_s.so.1")

# The dynamic loader's name in the folder. It is short: patchelf breaks a program when its loader's path gets longer.
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
    """Return the shared libraries that these files need, directly or indirectly."""
    listed = _output("ldd", *files)
    missing = sorted(set(re.findall(r"(\S+) => not found", listed)))
    if missing:
        sys.exit(f"bundle.py: the build image lacks {', '.join(missing)}")
    return set(re.findall(r"=> (/\S+)", listed))


def _opened_by_libc() -> list[str]:
    known = dict(re.findall(r"^\s+(\S+) .*=> (/\S+)$", _output("ldconfig", "-p"), re.MULTILINE))
    return [known[name] for name in OPENED_BY_LIBC]


def _use_own_libraries(folder: str, patchelf: str, python: str) -> None:
    """Make the program and its modules load the libraries of the folder first.

    By an rpath, not a runpath. An rpath comes before LD_LIBRARY_PATH, which Paddle images set. The program's rpath also
    holds for all that it loads later, except for files with a runpath of their own.
    """
    libraries = os.path.join(folder, "lib")
    _output(patchelf, "--set-interpreter", os.path.join(libraries, LOADER), python)
    _output(patchelf, "--force-rpath", "--set-rpath", libraries, python)
    for module in _modules(folder):
        if own := _output(patchelf, "--print-rpath", module).strip():
            _output(patchelf, "--force-rpath", "--set-rpath", f"{own}:{libraries}", module)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


main(*sys.argv[1:])
