"""The configuration: environment and flags become a JobConfig, or all problems at once.

Nothing else reads the environment.
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
