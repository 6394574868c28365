"""All commands: what each command does, its exit codes, examples. docs/commands.md shows the same texts."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass

from launcher.cli import flags
from launcher.errors import Exit

PROGRAM = "paddle-launcher"
POD, MACHINE, CLUSTER = GROUPS = ("In a pod", "On your machine", "In a cluster (the one that kubectl uses)")
_Exits = tuple[tuple[int | str, str], ...]

_USAGE = (int(Exit.USAGE), "the command line is wrong: the message names the flag")
_ENVIRONMENT = (int(Exit.CONFIG), "variables are missing or wrong: the message has one line per variable")
_API = (
    (int(Exit.TIMED_OUT), "the API server does not answer"),
    (int(Exit.DENIED), "the API server denies the request: the message names the missing permission"),
    (int(Exit.CONFIG), "no cluster is configured: the message names the files that were tried"),
)
_NO_JOB = (int(Exit.NO_INPUT), "there is no such job")
_INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    """One command. `add` adds its flags to a parser, `add_hidden` adds the flags that only tab completion shows."""

    name: str
    group: str
    summary: str
    description: tuple[str, ...]
    exits: _Exits
    examples: tuple[str, ...]
    add: Callable[[ArgumentParser], None] = lambda parser: None
    add_hidden: Callable[[ArgumentParser], None] = lambda parser: None
    usage: str | None = None  # in place of the usage that argparse makes


COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        POD,
        "Find the other pods, train, end with the job's exit code",
        (
            "Run one pod's part of a job: this is the container's entrypoint. It finds the other pods, and copies "
            "configuration and data from the volume. It starts Paddle as soon as all pods are ready, watches Paddle's "
            "processes, and ends with the job's exit code.",
            "Without --, the job trains with Paddle v0. Flags that do not begin with --launcher- go to `paddle train`, "
            "unchanged and in order; `paddle train --help` in the image explains these flags.",
            "After --, every word belongs to your program, which trains with Paddle 2.x or 3.x: "
            "`run -- python train.py --help` prints the help of train.py.",
        ),
        (
            (0, "the job is complete"),
            _USAGE,
            (
                int(Exit.NO_INPUT),
                "a shard or the configuration folder is missing or empty, or there are more shards than trainers",
            ),
            (int(Exit.PEER_FAILED), "another pod failed first: the message names it"),
            (int(Exit.TIMED_OUT), "the other pods did not join in time: the message says why"),
            (int(Exit.PEER_LOST), "another pod was lost: it was killed, or its node is gone"),
            _ENVIRONMENT,
            (int(Exit.STOPPED), "this pod got SIGTERM, and stopped"),
            ("other", "the code of the trainer or pserver that failed; docs/exit-codes.md has all codes"),
        ),
        (
            "paddle-launcher run --config=trainer_config.lr.py --num_passes=5",
            "paddle-launcher run --launcher-mode=ps -- python train.py",
        ),
        flags.run,
        usage="paddle-launcher run [--launcher-NAME VALUE ...] [FLAGS OF paddle train]\n"
        "       paddle-launcher run [--launcher-NAME VALUE ...] -- COMMAND",
    ),
    Command(
        "plan",
        POD,
        "Show what `run` would do here; start nothing",
        (
            "Show what `run` would do with these variables and arguments: rank, members, copies, and each process with "
            "its arguments. `plan` starts no process. Without --discover it contacts no other pod, and shows "
            "placeholders for values that come from other pods.",
            "This command accepts all flags and arguments of `run`: see `paddle-launcher run --help`.",
        ),
        (
            (0, "the plan is printed"),
            _USAGE,
            (int(Exit.TIMED_OUT), "with --discover: the other pods did not join in time"),
            _ENVIRONMENT,
        ),
        (
            "paddle-launcher plan --config=trainer_config.lr.py",
            "paddle-launcher plan --json -- python train.py",
        ),
        flags.plan,
        flags.run,
        "paddle-launcher plan [--json] [--discover] [ARGUMENTS OF run]",
    ),
    Command(
        "alive",
        POD,
        "Check that this pod's launcher answers, for probes",
        ("Check that this pod's launcher answers. A launcher answers from its start to its end, even while it waits.",),
        ((0, "the launcher answers"), _USAGE, (int(Exit.TIMED_OUT), "no launcher answers")),
        ("kubectl exec POD -- paddle-launcher alive",),
    ),
    Command(
        "local",
        MACHINE,
        "Run a whole job on this machine, one launcher per node",
        (
            "Run a whole job on this machine: N launchers, each in its own network, with the same code as in pods. "
            "Each line of output begins with the rank of its node. This command needs root or user namespaces.",
            "This command accepts all flags and arguments of `run`: see `paddle-launcher run --help`.",
        ),
        (
            (0, "the job is complete"),
            _USAGE,
            (int(Exit.CONFIG), "a variable is missing or wrong, or this machine allows no network namespaces"),
            ("other", "the code of the node that failed first"),
        ),
        (
            "paddle-launcher local --nodes 3 --config=trainer_config.lr.py",
            "paddle-launcher local --nodes 2 --launcher-mode=ps -- python train.py",
        ),
        flags.local,
        flags.local_hidden,
        "paddle-launcher local --nodes N [ARGUMENTS OF run]",
    ),
    Command(
        "shard",
        MACHINE,
        "Split a data set into one folder per trainer",
        (
            "Split a data set for N trainers, into OUT/0/data, OUT/1/data and so on. Each trainer gets a share of the "
            "lines; no line is cut. If you run the same command again, nothing changes.",
        ),
        (
            (0, "all shards exist"),
            _USAGE,
            (int(Exit.NO_INPUT), "the data set is missing or empty, or has fewer lines than trainers"),
            (int(Exit.CANNOT_WRITE), "cannot write to OUT, or another `shard` command is writing to OUT"),
            (
                int(Exit.CONFIG),
                "OUT or the number of trainers is missing or wrong; or a link leads out of DATA",
            ),
        ),
        (
            "paddle-launcher shard --data ./data --out /volume/quick-start --count 3",
            "OUT_DIR=/volume/quick-start SPLIT_COUNT=3 paddle-launcher shard --data ./data",
        ),
        flags.shard,
    ),
    Command(
        "render",
        MACHINE,
        "Print a PaddleJob as plain Kubernetes manifests",
        (
            "Print a PaddleJob of paddle-operator as plain manifests for `kubectl apply -f -`, without a cluster. "
            "Notes on standard error name ignored and changed fields. docs/paddlejob.md explains every field.",
            "For a pod template without a command, ENTRYPOINT and CMD are read from the image's registry, with the "
            "credentials of `docker login`. With --entrypoint, no registry is asked.",
        ),
        (
            (0, "rendered, perhaps with notes"),
            _USAGE,
            (int(Exit.NO_INPUT), "FILE cannot be read"),
            (
                int(Exit.CONFIG),
                "FILE contains no valid PaddleJob; an image cannot be read; or --strict is set, and there are notes",
            ),
        ),
        (
            "paddle-launcher render job.yaml | kubectl apply -f -",
            'paddle-launcher render --no-inject --entrypoint "python3 train.py" job.yaml',
        ),
        flags.render,
    ),
    Command(
        "report",
        MACHINE,
        "Write a page that says what happened to a job",
        (
            "Write one HTML file about a job: who failed and why, what each member did, what was lost, how fast the "
            "job was. Any browser opens it. The job may still run. docs/report.md explains every part.",
            "With --visualdl, also export loss, accuracy and speed for VisualDL, Paddle's dashboard. This needs the "
            "package visualdl.",
        ),
        (
            (0, "written: the output is the path of the page"),
            _USAGE,
            (int(Exit.NO_INPUT), "there is no such folder"),
            (int(Exit.CANNOT_WRITE), "the page cannot be written"),
            (int(Exit.CONFIG), "with --visualdl: the package visualdl is not installed"),
        ),
        (
            "paddle-launcher report /volume/quick-start",
            "paddle-launcher report /volume/quick-start --output /tmp/quick-start.html",
        ),
        flags.report,
    ),
    Command(
        "completion",
        MACHINE,
        "Print the tab completion for bash, zsh or fish",
        (
            "Print the tab completion for one shell: commands, flags and files. The examples load this completion in "
            "all new shells.",
        ),
        ((0, "printed"), _USAGE),
        (
            "echo 'source <(paddle-launcher completion bash)' >> ~/.bashrc",
            "echo 'source <(paddle-launcher completion zsh)' >> ~/.zshrc  # after compinit",
            "echo 'paddle-launcher completion fish | source' >> ~/.config/fish/config.fish",
        ),
        flags.completion,
    ),
    Command(
        "schema",
        MACHINE,
        "Print the JSON Schema of all variables",
        (
            "Print a JSON Schema of all environment variables of the launcher: types, patterns, defaults, meanings. It "
            "checks mappings such as the data of a ConfigMap, and the env of containers in any manifest. Use it in an "
            "editor, or in an admission policy. docs/configuration.md shows how.",
        ),
        ((0, "printed"), _USAGE),
        ("paddle-launcher schema > variables.schema.json",),
    ),
    Command(
        "version",
        MACHINE,
        "Print the version",
        ("Print the version.",),
        ((0, "printed"), _USAGE),
        ("paddle-launcher version",),
    ),
    Command(
        "doctor",
        CLUSTER,
        "Check a job before it trains, and name what mends it",
        (
            "Check a job before it trains: variables, number of pods, claims, Service, queues; and in a short-lived "
            "pod like those of the job: image, launcher, Python, Paddle, network, rights, volume, shards. Each check "
            "is ok, or says what is wrong, with the command that mends it. docs/doctor.md explains all checks.",
            "The command says when it makes a pod, and deletes this pod in any case. If the command itself is killed, "
            "Kubernetes ends and deletes the pod after at most SECONDS plus 120 s.",
        ),
        (
            (0, "nothing is wrong, perhaps with warnings"),
            _USAGE,
            (int(Exit.NO_INPUT), "FILE cannot be read, or there is no such job"),
            *_API[:2],
            (
                int(Exit.CONFIG),
                "something is wrong: the output names it; or FILE contains no job, or no cluster is configured",
            ),
            (_INTERRUPTED, "interrupted with Ctrl-C"),
        ),
        (
            "paddle-launcher doctor job.yaml",
            "kubectl kustomize k8s/job | paddle-launcher doctor -",
            "paddle-launcher doctor -n research --no-pod paddle-set",
        ),
        flags.doctor,
    ),
    Command(
        "submit",
        CLUSTER,
        "Create a PaddleJob in the cluster",
        (
            "Create all objects that `render` prints, or none. The command fails if a job of this name exists. "
            "With --watch, Ctrl-C ends the watching, but not the job.",
            "cleanPodPolicy OnFailure or OnCompletion: --watch deletes the job if it has failed, or is complete.",
        ),
        (
            (0, "created; with --watch: the job is complete"),
            _USAGE,
            (int(Exit.NO_INPUT), "FILE cannot be read"),
            *_API[:2],
            (
                int(Exit.CONFIG),
                "FILE contains no valid PaddleJob, the job's name is in use, or no cluster is configured",
            ),
            (_INTERRUPTED, "interrupted with Ctrl-C"),
            ("other", "with --watch: the exit code of the job"),
        ),
        (
            "paddle-launcher submit --watch job.yaml",
            "paddle-launcher submit -n research --launcher-image your/inject:1 job.yaml",
        ),
        flags.submit,
    ),
    Command(
        "list",
        CLUSTER,
        "List the jobs of a namespace, one per line",
        (
            "List the jobs of a namespace, one per line: those of `submit`, and all Jobs and StatefulSets whose pods "
            "run the launcher. FIRST CAUSE says why a job has failed or restarted.",
            "PASS comes from the log of a trainer, if it prints the pass there. It is - if more than 20 jobs run. With "
            "more than 20 jobs, it is - for those that have ended.",
        ),
        ((0, "printed, even if there is no job"), _USAGE, *_API),
        (
            "paddle-launcher list",
            "paddle-launcher list -A -o wide",
            "paddle-launcher list -o json | jq '.items[].name'",
        ),
        flags.list_jobs,
    ),
    Command(
        "status",
        CLUSTER,
        "Show the members of a job, one per line",
        (
            "Show the members of a job, one per line. For a folder on the volume, the output includes the last pass "
            "and the number of starts. This needs no cluster.",
            "Without FOLDER or JOB, the job of this pod or of the current directory is shown. Elsewhere, all jobs of "
            "the namespace are listed, as `list` does.",
            "With --watch, the output follows the job until it ends: docs/watch.md.",
        ),
        (
            (0, "printed; with --watch: the job is complete"),
            _USAGE,
            (int(Exit.NO_INPUT), "there is no such folder or job"),
            *_API,
            (_INTERRUPTED, "with --watch: interrupted with Ctrl-C"),
            ("other", "with --watch: the exit code of the job"),
        ),
        (
            "paddle-launcher status /volume/quick-start",
            "paddle-launcher status --watch /volume/quick-start",
            "paddle-launcher status -n research wide-and-deep",
        ),
        flags.status,
    ),
    Command(
        "why",
        CLUSTER,
        "Show where all processes of a running job are",
        (
            "Show where all processes of a running job are: trainers at the same place in the program form a group. So "
            "you see why a job prints nothing. The job continues. Before the training, the command says what the job "
            "waits for.",
            "JOB is the name of a PaddleJob, of a Job, of a StatefulSet or of a pod. The command uses `kubectl exec`. "
            "In the pod of rank 0, it needs neither JOB nor kubectl.",
        ),
        (
            (0, "printed"),
            _USAGE,
            (int(Exit.NO_INPUT), "there is no such job, or none of its pods can answer"),
            (int(Exit.TIMED_OUT), "the API server or the launcher does not answer"),
            (int(Exit.DENIED), "you have no permission for `kubectl exec` in this pod"),
            (int(Exit.CONFIG), "no cluster is configured, or kubectl is not installed"),
        ),
        ("paddle-launcher why wide-and-deep", "kubectl exec wide-and-deep-0 -- paddle-launcher why"),
        flags.why,
    ),
    Command(
        "logs",
        CLUSTER,
        "Print the output of one member of a job",
        ("Print the output of one trainer, or of one parameter server, of a job in the cluster.",),
        ((0, "printed"), _USAGE, (int(Exit.NO_INPUT), "there is no such job, or the member has no log"), *_API),
        ("paddle-launcher logs -f wide-and-deep 1", "paddle-launcher logs --role pserver -n research wide-and-deep"),
        flags.logs,
    ),
    Command(
        "scale",
        CLUSTER,
        "Change the number of pods of an elastic job",
        (
            "Change the number of pods of an elastic job while it trains: replicas of a StatefulSet, or parallelism "
            "and completions of an Indexed Job. New pods join when the running pass is saved. The output says what "
            "will happen.",
            "N must be in the range that CONF_PADDLE_GRADIENT_NUM or spec.elastic sets. The number of parameter "
            "servers in pods of their own does not change. docs/elastic.md explains elastic jobs.",
        ),
        (
            (0, "the number is set, or was N already"),
            (int(Exit.USAGE), "the command line is wrong, or N is outside the range of the job"),
            _NO_JOB,
            *_API[:2],
            (
                int(Exit.CONFIG),
                "the job is not elastic, has ended, or has several objects that train; or no cluster is configured",
            ),
        ),
        ("paddle-launcher scale wide-and-deep 4", "paddle-launcher scale -n research paddle-set 2"),
        flags.scale,
    ),
    Command(
        "delete",
        CLUSTER,
        "Delete a job with all its objects; data on volumes stays",
        ("Delete a job with all its objects, and wait until its pods are gone. Data on volumes stays.",),
        ((0, "deleted"), _USAGE, _NO_JOB, *_API),
        ("paddle-launcher delete wide-and-deep", "paddle-launcher delete -n research wide-and-deep"),
        flags.delete,
    ),
)
