"""The configuration: read environment and flags, return a JobConfig or raise all problems at once.

No other room reads the environment.
"""

from launcher.config.read import (
    RoleMember,
    environment,
    flags,
    job_folder,
    read,
    role_member,
    termination_log,
    variable_of_flag,
    workdir,
)
from launcher.config.variables import VARIABLES, JobConfig

__all__ = [
    "VARIABLES",
    "JobConfig",
    "RoleMember",
    "environment",
    "flags",
    "job_folder",
    "read",
    "role_member",
    "termination_log",
    "variable_of_flag",
    "workdir",
]
