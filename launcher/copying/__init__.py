"""Copies folders: forked workers, as many as the file systems make wait, behind one process that never blocks.

`python -m launcher.copying` is the child that stages; `launcher.shard` uses the same parts from its own command.
"""
