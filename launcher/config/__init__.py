"""Read the environment and the flags into a JobConfig, or raise one error with all problems.

No other package of the launcher reads the environment.
"""

from launcher.config.read import (
    RoleMember,
    environment,
    flag_of_variable,
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
    "flag_of_variable",
    "flags",
    "job_folder",
    "read",
    "role_member",
    "termination_log",
    "variable_of_flag",
    "workdir",
]
