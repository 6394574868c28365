"""The flags and arguments of each command."""

from __future__ import annotations

import argparse

from launcher import config
from launcher.config.declaration import Variable
from launcher.config.parsers import MAX_NODES
from launcher.config.variables import VARIABLES
from launcher.model import ROLES, TRAINER

OUTPUTS = ("json", "wide")
SHELLS = ("bash", "zsh", "fish")
MOST_SECONDS = 3600

Parser = argparse.ArgumentParser


def run(parser: Parser, but: frozenset[str] = frozenset()) -> None:
    """Add a flag for each LAUNCHER_ variable except those in `but`, and add the user's command."""
    group = parser.add_argument_group("flags in place of environment variables")
    for flag in config.flags():
        for variable in VARIABLES:
            if variable.name == config.variable_of_flag(flag) and variable.name not in but:
                group.add_argument(flag, metavar="VALUE", help=_explained(variable).replace("%", "%%"))
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="your program and its arguments, after --")


def _explained(variable: Variable) -> str:
    """Return what the variable means, which values it may have, and its default."""
    default = variable.shown_default
    after = "" if default is None else f"; default: {default}"
    return f"{variable.meaning} ({variable.expected}{after})"


def plan(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--discover", action="store_true", help="find the other pods, and print them, too")


def local(parser: Parser) -> None:
    from launcher.run.local import MOST_NODES

    parser.add_argument("--nodes", required=True, metavar="N", help=f"the number of nodes, 1 to {MOST_NODES}")


def local_hidden(parser: Parser) -> None:
    from launcher.run.local import NOT_THE_USERS

    run(parser, NOT_THE_USERS)


def shard(parser: Parser) -> None:
    parser.add_argument("--data", required=True, metavar="DATA", help="the data set")
    parser.add_argument("--config", metavar="CONFIG", help="the configuration folder, copied into OUT with its name")
    parser.add_argument(
        "--out", metavar="OUT", help="the job's folder on the volume, JOB_PATH/JOB_NAME (default: $OUT_DIR)"
    )
    parser.add_argument("--count", metavar="N", help="the number of trainers (default: $SPLIT_COUNT)")
    parser.add_argument(
        "--lines",
        action="append",
        metavar="NAME",
        help="a file to split, or a pattern (default: train.txt); may be repeated. Each trainer gets all other files",
    )
    parser.add_argument(
        "--anywhere", action="store_true", help="write even to a folder that is lost with the container"
    )
    parser.add_argument(
        "--follow-links",
        action="store_true",
        help="also copy the targets of links that lead out of DATA or CONFIG: only if you trust all these links",
    )


def status(parser: Parser) -> None:
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show the job until it ends, and end with the job's exit code"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _namespace(parser, ", for a job in the cluster")
    parser.add_argument(
        "job",
        nargs="?",
        metavar="FOLDER|JOB",
        help="the job's folder, JOB_PATH/JOB_NAME, or the name of a job in the cluster (default: the job of this pod)",
    )


def report(parser: Parser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write this file (default: FOLDER/output/report.html)")
    parser.add_argument("--visualdl", metavar="DIR", help="also export the curves into DIR, for VisualDL")
    parser.add_argument(
        "job",
        nargs="?",
        metavar="FOLDER",
        help="the job's folder, JOB_PATH/JOB_NAME (default: $JOB_PATH/$JOB_NAME)",
    )


def render(parser: Parser) -> None:
    parser.add_argument("--strict", action="store_true", help="fail if a field in FILE is ignored or changed")
    _conversion(parser)
    parser.add_argument("file", metavar="FILE", help="YAML with a PaddleJob; - is standard input")


def _conversion(parser: Parser) -> None:
    from launcher.job.spec import INJECT_IMAGE

    parser.add_argument(
        "--no-inject",
        action="store_true",
        help="add no launcher to the pods: the image has paddle-launcher in its PATH",
    )
    parser.add_argument(
        "--launcher-image",
        metavar="IMAGE",
        help=f"the image from which pods copy the launcher (default: {INJECT_IMAGE})",
    )
    parser.add_argument(
        "--entrypoint",
        metavar="COMMAND",
        help="the command for pod templates that have no command (default: the image's ENTRYPOINT, read from its "
        "registry)",
    )
    parser.add_argument(
        "--registry",
        metavar="HOST",
        help="the registry of images whose name has none, such as paddle:1. Used only to read an ENTRYPOINT",
    )
    parser.add_argument(
        "--plain-http",
        action="append",
        default=[],
        metavar="HOST",
        help="a registry that speaks HTTP without TLS; may be repeated. On this machine, no flag is needed",
    )


def submit(parser: Parser) -> None:
    parser.add_argument(
        "--watch", action="store_true", help="show the job until it ends, and end with the job's exit code"
    )
    _namespace(parser)
    render(parser)


def doctor(parser: Parser) -> None:
    parser.add_argument("--no-pod", action="store_true", help="make no pod: what only a pod can answer stays open")
    parser.add_argument(
        "--within", type=_seconds, metavar="SECONDS", help="how long the pod may take to answer (default: 180)"
    )
    parser.add_argument("-o", "--output", type=_json, metavar="FORMAT", help="json")
    _namespace(parser)
    _conversion(parser)
    parser.add_argument(
        "job",
        metavar="FILE|JOB",
        help="YAML with a PaddleJob, or with a job as plain manifests; - is standard input; or the name of a Job or "
        "StatefulSet in the cluster",
    )


def list_jobs(parser: Parser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="list the jobs of all namespaces")
    _namespace(parser, of="jobs'")
    parser.add_argument(
        "-o",
        "--output",
        choices=OUTPUTS,
        default="",
        type=_output,
        metavar="FORMAT",
        help="json, or wide: a table with the objects of each job, its image and its folder",
    )


def why(parser: Parser) -> None:
    _namespace(parser)
    parser.add_argument(
        "job", nargs="?", metavar="JOB", help="the name of a job in the cluster (default: the job of this pod)"
    )


def logs(parser: Parser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until the member ends")
    parser.add_argument(
        "--role",
        choices=ROLES,
        default=TRAINER,
        type=_role,
        metavar="ROLE",
        help=f"{', '.join(ROLES[:-1])} or {ROLES[-1]} (default: {TRAINER})",
    )
    _namespace(parser)
    _job(parser)
    parser.add_argument(
        "rank",
        nargs="?",
        type=_rank,
        default=0,
        metavar="RANK",
        help="the member's number within its role (default: 0)",
    )


def scale(parser: Parser) -> None:
    _namespace(parser)
    _job(parser)
    parser.add_argument("count", type=_count, metavar="N", help="how many pods are to train")


def delete(parser: Parser) -> None:
    _namespace(parser)
    _job(parser)


def completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, type=_shell, metavar="SHELL", help=", ".join(SHELLS))


def _namespace(parser: Parser, more: str = "", *, of: str = "job's") -> None:
    parser.add_argument(
        "-n",
        "--namespace",
        type=_text_or_none,
        metavar="NAME",
        help=f"the {of} namespace{more} (default: that of kubectl's context)",
    )


def _job(parser: Parser) -> None:
    parser.add_argument("job", metavar="JOB", help="the name of the job")


def _text_or_none(text: str) -> str | None:
    """Return None for an empty text: the user may have passed an unset variable of the shell."""
    return text or None


def _role(text: str) -> str:
    return _one_of(ROLES, text or TRAINER)


def _output(text: str) -> str:
    return _one_of(OUTPUTS, text) if text else text


def _json(text: str) -> str:
    if text not in ("", "json"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected json")
    return text


def _seconds(text: str) -> float:
    if not text.isdecimal() or not 1 <= int(text[:6]) <= MOST_SECONDS or len(text) > 5:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 1 to {MOST_SECONDS}")
    return float(text)


def _shell(text: str) -> str:
    return _one_of(SHELLS, text)


def _one_of(words: tuple[str, ...], text: str) -> str:
    if text not in words:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {', '.join(words[:-1])} or {words[-1]}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:6]) <= MAX_NODES or len(text) > 5:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of pods, 1 or more")
    return int(text)


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected the number of a member, 0 or more")
    return int(text)
