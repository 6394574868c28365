"""Paths in this repository, for tests."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
STANDIN = REPOSITORY / "tests" / "standin"
PADDLEJOBS = REPOSITORY / "tests" / "paddlejobs"
K8S = REPOSITORY / "k8s"
MAKE_DATA = REPOSITORY / "examples" / "quick_start" / "make_data.py"
