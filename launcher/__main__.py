"""Run first, and handle SIGTERM before other imports. If process 1 has no handler, the kernel drops SIGTERM."""

import _signal  # type: ignore[import-not-found]  # built into the interpreter: `signal` itself costs milliseconds

received: list[int] = []


def _remember(number: int, _frame: object) -> None:
    received.append(number)


for _number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
    _signal.signal(_number, _remember)


def main() -> None:
    """The command `paddle-launcher`."""
    from launcher.cli.main import run_command

    run_command(received)


if __name__ == "__main__":
    main()
