"""The public Python API: jobs for Paddle 2.x and 3.x, as plain Kubernetes objects whose pods run the launcher.

Nothing here needs Paddle. The Kubernetes client is loaded by the first call that talks to a cluster.
"""

import logging

from launcher.errors import ConfigProblems, Failure
from launcher.job.dataset import dataset_from_reader, dist_reader
from launcher.job.libraries import add_libraries
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

add_libraries()
logging.getLogger("launcher").addHandler(logging.NullHandler())  # a program sees log lines only if it sets up logging
