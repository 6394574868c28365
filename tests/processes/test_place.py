"""The place of a process in the user's program, from real dumps of faulthandler."""

from __future__ import annotations

from launcher.processes.place import place_of
from launcher.processes.states import Tree, states

PACKAGES = "/usr/lib/python3.11/site-packages"
IN_ALL_REDUCE = f"""Thread 0x00007f4701 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/app/train.py", line 9 in watch

Current thread 0x00007f4700 (most recent call first):
  File "{PACKAGES}/paddle/distributed/communication/stream/all_reduce.py", line 50 in _all_reduce_in_dygraph
  File "{PACKAGES}/paddle/distributed/communication/all_reduce.py", line 86 in all_reduce
  File "/app/train.py", line 57 in step
  File "/app/train.py", line 90 in <module>
"""
OWN_CODE = 'Thread 0x00007f4700 (most recent call first):\n  File "/app/train.py", line 42 in read\n'


def test_the_place_is_the_users_line_and_the_function_that_it_calls() -> None:
    place = place_of(IN_ALL_REDUCE, "/app")
    assert place
    assert place.where == "all_reduce, train.py:57"
    assert place.frame == ("_all_reduce_in_dygraph, paddle/distributed/communication/stream/all_reduce.py:50")


def test_a_function_of_the_user_is_named_itself() -> None:
    place = place_of(OWN_CODE, "/app")
    assert place
    assert place.where == "read, train.py:42"


def test_a_program_without_a_line_of_the_user_is_named_by_its_innermost_frame() -> None:
    dump = (
        "Thread 0x01 (most recent call first):\n"
        f'  File "{PACKAGES}/ppnlp/train.py", line 7 in wait\n'
        '  File "<frozen runpy>", line 88 in _run_code\n'
    )
    place = place_of(dump, "/app")
    assert place
    assert place.where == "wait, ppnlp/train.py:7"


def test_a_dump_without_stacks_has_no_place() -> None:
    assert place_of("none: this process has not registered for stack dumps (docs/faults.md)", "/") is None
    assert place_of("Thread 0x01 (most recent call first):\n  <no Python frame>\n", "/") is None


def test_a_file_outside_of_the_process_folder_is_named_without_its_folder() -> None:
    place = place_of(OWN_CODE, "/elsewhere")
    assert place
    assert place.where == "read, train.py:42"
    below = place_of(OWN_CODE.replace("/app/train.py", "/app/ours/data/train.py"), "/app")
    assert below
    assert below.where == "read, ours/data/train.py:42"


def test_a_tree_without_python_stacks_has_its_state_in_the_kernel() -> None:
    in_kernel = {1: "", 2: "paddle_trainer, which sleeps in futex_wait"}
    found = states([Tree("trainer", (1, 2), 5.0)], {}, in_kernel.__getitem__)
    assert [(state.role, state.where) for state in found] == [("trainer", "paddle_trainer, which sleeps in futex_wait")]


def test_paddles_own_launcher_is_left_out_if_its_trainers_have_a_place() -> None:
    launching = OWN_CODE.replace("/app/train.py", f"{PACKAGES}/paddle/distributed/launch/controllers/controller.py")
    found = states([Tree("trainer", (1, 2), 5.0)], {1: launching, 2: IN_ALL_REDUCE}, lambda pid: "")
    assert [(state.role, state.where) for state in found] == [("trainer", "all_reduce, app/train.py:57")]


def test_processes_at_one_place_are_counted() -> None:
    trees = [Tree("trainer", (pid,), float(pid)) for pid in range(1, 9)]
    dumps = {pid: OWN_CODE if pid == 8 else IN_ALL_REDUCE for pid in range(1, 9)}
    found = states(trees, dumps, lambda pid: "")
    assert [(state.where.partition(",")[0], state.count, state.quiet) for state in found] == [
        ("all_reduce", 7, 1.0),
        ("read", 1, 8.0),
    ]


def test_a_dump_of_the_main_thread_alone_has_a_place_and_names_are_as_in_the_program() -> None:
    dump = 'Stack (most recent call first):\n  File "/app/\\u8bad\\u7ec3.py", line 3 in \\u8bfb\n'
    place = place_of(dump, "/app")
    assert place
    assert place.where == "读, 训练.py:3"
