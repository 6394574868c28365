"""Run the part of a job that is in one pod, from the start of the launcher to its exit code."""
