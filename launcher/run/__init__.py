"""The life of one pod, from its first moment to its exit code."""
