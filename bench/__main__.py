"""`make bench`: every benchmark, one after the other; or those named as arguments."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = ("start", "idle", "log_path", "staging", "gang", "faults")


def main() -> int:
    for name in sys.argv[1:] or NAMES:
        print(f"\n== {name}", flush=True)
        import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
