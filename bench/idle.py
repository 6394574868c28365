"""Measure the memory and the CPU time of a launcher and its guardian over 60 s, while its job trains."""

from __future__ import annotations

import time

import psutil

from bench.jobs import job

SECONDS = 60
FLAGS = (
    "--config=trainer_config.lr.py",
    "--num_passes=100",
    "--log_period=50",
    "--dot_period=10",
)  # the flags of start.sh


def main() -> None:
    with job(lines=30_000, STANDIN_BATCH_SECONDS="0.1") as three:
        three.start(flags=FLAGS).until_training()
        launchers = [psutil.Process(launcher.pid) for launcher in three.launchers.values()]
        time.sleep(3)  # afterwards, the start uses no CPU time
        before = [sum(launcher.cpu_times()[:2]) for launcher in launchers]
        begin = time.monotonic()
        time.sleep(SECONDS)
        span = time.monotonic() - begin
        print("rank  resident MiB  own and guardian, shared pages split  % of a core")
        for rank, launcher in enumerate(launchers):
            used = sum(launcher.cpu_times()[:2]) - before[rank]
            memory = launcher.memory_full_info()
            guardians = [child for child in launcher.children() if child.name() == "pl-guardian"]
            both = memory.pss + sum(guardian.memory_full_info().pss for guardian in guardians)
            print(f"{rank:>4}  {memory.rss / 2**20:>12.1f}  {both / 2**20:>36.1f}  {100 * used / span:>11.3f}")
        print(
            f"over {span:.0f} s with 10 batches a second, logged as with the flags of start.sh "
            "(aims: at most 30 MiB, under 0.2 %)"
        )


if __name__ == "__main__":
    main()
