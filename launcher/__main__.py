"""Run first, and handle signals before other imports.

If process 1 has no handler, the kernel drops a signal. If another process has none, the signal may end the process.
"""

import _signal  # type: ignore[import-not-found]  # built into the interpreter: `signal` itself costs milliseconds

received: list[int] = []


def _remember(number: int, _frame: object) -> None:
    received.append(number)


for _number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
    _signal.signal(_number, _remember)
for _number in (_signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGQUIT, _signal.SIGWINCH):
    _signal.signal(_number, lambda *_: None)  # for the trainers, of which there are none yet


def main() -> None:
    """The command `paddle-launcher`."""
    from launcher.cli.main import run_command

    run_command(received)


if __name__ == "__main__":
    main()
