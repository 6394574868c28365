"""Jobs for today's Paddle, described in few words, as plain Kubernetes objects whose pods run the launcher.

What programs import is here; none of it needs Paddle, and only what talks to a cluster loads its client.
"""

import logging

from launcher.errors import ConfigProblems, Failure
from launcher.job.dataset import dataset_from_reader, dist_reader
from launcher.job.libraries import reach
from launcher.job.paddlejob import PaddleJob, dist_train, inside_a_job
from launcher.job.volumes import CephFSVolume, ClaimVolume, Volume

__all__ = [
    "CephFSVolume",
    "ClaimVolume",
    "ConfigProblems",
    "Failure",
    "PaddleJob",
    "Volume",
    "dataset_from_reader",
    "dist_reader",
    "dist_train",
    "inside_a_job",
]

reach()
logging.getLogger("launcher").addHandler(logging.NullHandler())  # a program sees no messages that it has not asked for
