"""Named scenarios of whole jobs in simulated time. Their recordings are compared with the files in `recordings/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.simulation import recording
from tests.simulation.children import Program
from tests.simulation.pods import Job, Pod, Scene

UNTIL = 3000.0
COMMAND = ("python", "train.py")
_KILLED = 137


@dataclass(frozen=True)
class Scenario:
    """A scenario with its name and title."""

    name: str
    title: str
    play: Callable[[Scene], None]

    def record(self, folder: str) -> str:
        """Play the scenario in this empty folder, and return its recording."""
        scene = Scene(folder)
        self.play(scene)
        waiting = scene.run(UNTIL)
        return recording.text(f"{self.name}: {self.title}", scene, waiting)


SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Register a scenario. Its docstring is its title in the recording."""
    name = play.__name__
    SCENARIOS[name] = Scenario(name, " ".join((play.__doc__ or "").split()), play)
    return play


def restarting(
    scene: Scene, most: int = 3, *, program: Program | None = None, environment: Mapping[str, str] | None = None
) -> Job:
    """Start a job that may restart in the same pods, but does not wait for new pods."""
    variables = {"LAUNCHER_MAX_RESTARTS": str(most), "LAUNCHER_REJOIN_TIMEOUT": "0", **(environment or {})}
    return Job(scene, program=program, environment=variables).start()


def rejoining(scene: Scene, *, program: Program | None = None, environment: Mapping[str, str] | None = None) -> Job:
    """Start a job whose members wait for the replacement of a lost pod."""
    variables = {"LAUNCHER_MAX_RESTARTS": "3", **(environment or {})}
    return Job(scene, program=program, environment=variables).start()


def trainer_dies_later(pod: Pod, code: int = _KILLED) -> None:
    """Let the next trainer of this pod die 5 s after its start."""
    pod.doomed.append(("trainer", code, 5.0, 0.0))


# ---- a normal run ----------------------------------------------------------------------------------------------------


@scenario
def normal_run(scene: Scene) -> None:
    """Three members train three passes. All members end with 0."""
    Job(scene).start()


@scenario
def single_member(scene: Scene) -> None:
    """A job with one member needs no peers and starts no server."""
    Job(scene, 1).start()


@scenario
def single_member_fails(scene: Scene) -> None:
    """The trainer of a job with one member ends with 3, twice. One restart is allowed."""
    job = Job(scene, 1, environment={"LAUNCHER_MAX_RESTARTS": "1"}).start()
    scene.at(15, job.pods[0].dies, "trainer", 3)
    scene.at(20, job.pods[0].dies, "trainer", 3)


@scenario
def already_complete(scene: Scene) -> None:
    """A new pod of rank 2 starts after the job is complete, and ends with 0 at once."""
    job = Job(scene).start()
    job.again(2, 60)


@scenario
def first_trainer_leads(scene: Scene) -> None:
    """In collective mode, the first trainer starts after all copies. The others start as soon as it listens."""
    job = Job(scene, command=COMMAND, program=Program(serves=2.0, passes=1)).start()
    job.pods[1].stages = 3.0


@scenario
def first_trainer_never_listens(scene: Scene) -> None:
    """In collective mode, the first trainer never listens. The other trainers start 15 s later."""
    Job(scene, command=COMMAND, program=Program(serves=1000.0, passes=2)).start()


@scenario
def late_member(scene: Scene) -> None:
    """Rank 2 starts 40 s after the other members."""
    job = Job(scene).start(0, 1)
    job.start(2, after=40)


@scenario
def all_passes_are_there(scene: Scene) -> None:
    """All passes are saved before a trainer is killed. The next generation has no pass to train."""
    job = rejoining(scene)
    for number in range(3):
        scene.at(12, job.save_pass, number)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


# ---- a child dies ----------------------------------------------------------------------------------------------------


@scenario
def trainer_dies(scene: Scene) -> None:
    """The trainer of rank 1 is killed in the second pass. No restart is allowed."""
    job = Job(scene).start()
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def trainer_exits_with_a_code_of_the_launcher(scene: Scene) -> None:
    """The hub's trainer exits with 69, which is a code of the launcher. So the hub exits with 70."""
    job = Job(scene).start()
    scene.at(15, job.pods[0].dies, "trainer", 69)


@scenario
def pserver_dies(scene: Scene) -> None:
    """The pserver of rank 2 is killed, and then all trainers crash. The pserver is the first cause."""
    job = Job(scene).start()
    scene.at(15, job.pods[2].dies, "pserver", _KILLED)
    for rank, pod in enumerate(job.pods):
        scene.at(15.01 + rank / 200, pod.dies, "trainer", 134)


@scenario
def server_ends_before_all_have_trained(scene: Scene) -> None:
    """In mode ps, a server ends with 0 more than 5 s before the last trainer. This is a failure."""
    job = Job(scene, command=COMMAND, environment={"LAUNCHER_MODE": "ps"}, program=Program(passes=1)).start()
    job.pods[2].program = Program(passes=1, each=30)
    scene.at(11, job.pods[0].dies, "pserver", 0)


@scenario
def server_ends_before_a_restart(scene: Scene) -> None:
    """In mode ps, a server ends with 0 just before a restart. The next attempt is not affected."""
    variables = {"LAUNCHER_MODE": "ps", "LAUNCHER_MAX_RESTARTS": "3", "LAUNCHER_REJOIN_TIMEOUT": "0"}
    job = Job(scene, command=COMMAND, environment=variables, program=Program(passes=2)).start()
    scene.at(11, job.pods[0].dies, "pserver", 0)
    scene.at(12, job.pods[1].dies, "trainer", 1)


@scenario
def staging_fails(scene: Scene) -> None:
    """The shard of rank 1 is missing. All members get this failure before any trainer starts."""
    job = Job(scene).start()
    job.pods[1].staging_fails = "VOLUME/job/1/data: no such folder: is the shard there?"


@scenario
def staging_fails_before_the_join(scene: Scene) -> None:
    """The shard of rank 1 is missing. Rank 1 holds the failure until rank 2, which starts late, has joined."""
    job = Job(scene).start(0, 1)
    job.start(2, after=12)
    job.pods[1].staging_fails = "VOLUME/job/1/data: no such folder: is the shard there?"


@scenario
def staging_fails_and_nobody_comes(scene: Scene) -> None:
    """The shard of the hub is missing, and no other member starts. The hub fails after 30 s."""
    job = Job(scene).start(0)
    job.pods[0].staging_fails = "VOLUME/job/0/data: no such folder: is the shard there?"


@scenario
def server_dies_before_the_join(scene: Scene) -> None:
    """The pserver of rank 1 dies before the other members start. After the join, all processes restart."""
    job = Job(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"}).start(1)
    scene.at(2, job.pods[1].dies, "pserver", 139)
    job.start(0, after=5)
    job.start(2, after=6)


@scenario
def server_dies_before_the_join_and_nobody_comes(scene: Scene) -> None:
    """The pserver of rank 1 dies, and no other member starts. Rank 1 fails after 30 s."""
    job = Job(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"}).start(1)
    scene.at(2, job.pods[1].dies, "pserver", 139)


# ---- a launcher is lost, or gets SIGTERM -----------------------------------------------------------------------------


@scenario
def member_lost(scene: Scene) -> None:
    """The launcher of rank 2 is killed. The hub ends with 76, and rank 1 ends with 69."""
    job = Job(scene).start()
    scene.at(15, job.pods[2].kill)


@scenario
def hub_lost(scene: Scene) -> None:
    """The launcher of rank 0 is killed. Rank 1 ends with 76 and ends the lease."""
    job = Job(scene).start()
    scene.at(15, job.pods[0].kill)


@scenario
def node_of_a_member_lost(scene: Scene) -> None:
    """The node of rank 2 is switched off. The hub gives rank 2 up after 30 s of silence."""
    job = Job(scene, environment={"LAUNCHER_SILENCE": "30"}).start()
    scene.at(12, job.pods[2].switch_off)


@scenario
def told_to_stop_one(scene: Scene) -> None:
    """Rank 1 gets SIGTERM and ends with 143. All other members end with 69."""
    job = Job(scene).start()
    scene.at(15, job.pods[1].signal)


@scenario
def told_to_stop_hub(scene: Scene) -> None:
    """Rank 0 gets SIGTERM, and its processes need 4 s to end."""
    job = Job(scene).start()
    job.pods[0].program = Program(ends=4)
    scene.at(15, job.pods[0].signal)


@scenario
def told_to_stop_all(scene: Scene) -> None:
    """All members get SIGTERM, one after the other. Each member ends with 143."""
    job = Job(scene).start()
    for rank, pod in enumerate(job.pods):
        scene.at(15 + rank / 10, pod.signal)


@scenario
def told_to_stop_before_the_join(scene: Scene) -> None:
    """Rank 1 gets SIGTERM while it waits for rank 2. Rank 0 waits until LAUNCHER_PEER_TIMEOUT."""
    job = Job(scene, environment={"LAUNCHER_PEER_TIMEOUT": "30"}).start(0, 1)
    scene.at(5, job.pods[1].signal)


@scenario
def told_to_stop_just_before_training(scene: Scene) -> None:
    """Rank 1 gets SIGTERM before the hub's train message arrives. It starts no trainer."""
    job = Job(scene).start()
    scene.when(job.pods[0], "out", '"word":"train"', job.pods[1].signal)


@scenario
def told_to_stop_just_before_the_next_attempt(scene: Scene) -> None:
    """Rank 1 gets SIGTERM before the begin message of the next attempt arrives. It starts no server."""
    job = restarting(scene)
    scene.at(15, job.pods[2].dies, "trainer", _KILLED)
    scene.when(job.pods[0], "out", '"word":"begin","turn":1', job.pods[1].signal)


@scenario
def deaf_children(scene: Scene) -> None:
    """All members get SIGTERM. The processes of rank 2 ignore SIGTERM and are killed after the grace period."""
    job = Job(scene).start()
    job.pods[2].program = Program(ends=1000)
    for pod in job.pods:
        scene.at(15, pod.signal)


@scenario
def second_signal_while_stopping(scene: Scene) -> None:
    """The processes of rank 2 ignore SIGTERM. A second signal to the launcher kills them at once."""
    job = Job(scene).start()
    job.pods[2].program = Program(ends=1000)
    scene.at(15, job.pods[2].signal)
    scene.at(18, job.pods[2].signal)


@scenario
def second_signal_to_the_hub_that_waits_for_the_others(scene: Scene) -> None:
    """The hub's processes have ended, and the hub waits for rank 2. After a second signal, the hub leaves."""
    job = Job(scene).start()
    job.pods[2].program = Program(ends=1000)
    scene.at(15, job.pods[0].signal)
    scene.at(18, job.pods[0].signal)


# ---- restarts in place -----------------------------------------------------------------------------------------------


@scenario
def restart_in_place(scene: Scene) -> None:
    """The trainer of rank 1 dies in the second pass. All processes restart and resume after the first pass."""
    job = restarting(scene)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def restarts_used_up(scene: Scene) -> None:
    """One restart is allowed. The trainers of two members die, one after the other."""
    job = restarting(scene, 1)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)
    scene.at(30, job.pods[2].dies, "trainer", 1)


@scenario
def twice_the_same_before_any_pass(scene: Scene) -> None:
    """The trainer of rank 1 ends with 1 in two attempts without a saved pass. The job is given up."""
    job = restarting(scene)
    trainer_dies_later(job.pods[1], 1)
    trainer_dies_later(job.pods[1], 1)


@scenario
def code_that_is_not_retried(scene: Scene) -> None:
    """The trainer of rank 2 ends with 78. After this exit code there is no restart."""
    job = restarting(scene)
    scene.at(15, job.pods[2].dies, "trainer", 78)


@scenario
def survivors_die_while_all_end(scene: Scene) -> None:
    """Trainers die of a dead pserver, after the hub has named the pserver. The job restarts only once."""
    job = restarting(scene)
    scene.at(15, job.pods[0].dies, "pserver", _KILLED)
    for pod in job.pods[1:]:
        scene.at(15.4, pod.dies, "trainer", 134)


@scenario
def another_failure_while_all_end(scene: Scene) -> None:
    """Copying fails on rank 2 while all processes end for a restart. This failure ends the job."""
    job = restarting(scene)
    job.pods[2].stages = 15.0
    job.pods[2].staging_fails = "VOLUME/job/2/data: no such folder: is the shard there?"
    job.pods[1].program = Program(ends=4)
    scene.at(14.5, job.pods[1].dies, "pserver", _KILLED)


@scenario
def held_by_the_kernel(scene: Scene) -> None:
    """A process of rank 1 is blocked in the kernel, and SIGKILL does not end it. So no restart is possible."""
    job = restarting(scene)
    scene.at(14, lambda: setattr(job.pods[1], "program", Program(held=True)))
    scene.at(15, job.pods[2].dies, "trainer", _KILLED)


@scenario
def told_to_stop_in_the_pause(scene: Scene) -> None:
    """All members get SIGTERM during the pause before the next attempt."""
    job = restarting(scene)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)
    for pod in job.pods:
        scene.at(16, pod.signal)


@scenario
def stalled(scene: Scene) -> None:
    """No trainer prints any output. All members collect evidence, and the job restarts once."""
    job = restarting(scene, 1, environment={"LAUNCHER_STALL_TIMEOUT": "20"})
    for pod in job.pods:
        scene.at(15, lambda pod=pod: setattr(pod, "hangs", True))


@scenario
def volume_stalls(scene: Scene) -> None:
    """The volume does not answer the hub for longer than LAUNCHER_SILENCE. So the hub ends the gang."""
    job = Job(scene, environment={"LAUNCHER_SILENCE": "30"}, program=Program(each=30)).start()
    scene.at(15, job.pods[0].stall, 100)


@scenario
def volume_stalls_and_all_start_again(scene: Scene) -> None:
    """The volume does not answer the hub for 50 s. All processes end, and restart after the stall."""
    variables = {"LAUNCHER_SILENCE": "30", "LAUNCHER_VOLUME_TIMEOUT": "60"}
    job = restarting(scene, program=Program(each=30), environment=variables)
    scene.at(15, job.pods[0].stall, 50)


@scenario
def volume_stalls_at_the_start(scene: Scene) -> None:
    """The volume does not answer rank 1 for longer than LAUNCHER_VOLUME_TIMEOUT."""
    job = Job(scene, environment={"LAUNCHER_PEER_TIMEOUT": "60"})
    scene.at(0, job.pods[1].stall, 100)
    job.start()


@scenario
def volume_stalls_at_the_end(scene: Scene) -> None:
    """The volume does not answer while all members end. No member waits longer than 2.5 s for the volume."""
    job = Job(scene).start()
    for pod in job.pods:
        scene.at(14.9, pod.stall, 100)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def volume_is_slow_at_the_end(scene: Scene) -> None:
    """The volume is slow while all members end. The lease ends only after the last file is written."""
    job = Job(scene).start()
    scene.volume.lag = 1.0
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def volume_is_full(scene: Scene) -> None:
    """The volume is full before the next attempt begins."""
    job = restarting(scene)
    scene.at(14, lambda: setattr(scene.volume, "is_full", True))
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


# ---- the members rejoin ----------------------------------------------------------------------------------------------


@scenario
def member_replaced(scene: Scene) -> None:
    """The launcher of rank 2 is killed. A new pod replaces it, and all members resume after the last pass."""
    job = rejoining(scene)
    scene.at(15, job.pods[2].kill)
    job.again(2, 25)


@scenario
def hub_replaced(scene: Scene) -> None:
    """The launcher of rank 0 is killed, and a new pod replaces it."""
    job = rejoining(scene)
    scene.at(15, job.pods[0].kill)
    job.again(0, 25)


@scenario
def member_told_to_stop_and_replaced(scene: Scene) -> None:
    """Rank 1 gets SIGTERM, as when its node is drained. A new pod replaces rank 1."""
    job = rejoining(scene)
    job.pods[1].program = Program(ends=3)
    scene.at(15, job.pods[1].signal)
    job.again(1, 16)


@scenario
def nobody_takes_the_place(scene: Scene) -> None:
    """The launcher of rank 2 is killed, and no pod replaces it. The others wait for LAUNCHER_REJOIN_TIMEOUT."""
    job = rejoining(scene, environment={"LAUNCHER_REJOIN_TIMEOUT": "20"})
    scene.at(15, job.pods[2].kill)


@scenario
def told_to_stop_while_gathering(scene: Scene) -> None:
    """All remaining members get SIGTERM while they wait for a replacement pod."""
    job = rejoining(scene)
    scene.at(15, job.pods[2].kill)
    for rank in (0, 1):
        scene.at(20 + rank, job.pods[rank].signal)


@scenario
def told_to_stop_while_children_end_to_gather_again(scene: Scene) -> None:
    """Rank 2 gets SIGTERM. The others get SIGTERM too, while their processes end before they rejoin."""
    job = rejoining(scene, program=Program(ends=5))
    scene.at(15, job.pods[2].signal)
    scene.at(17, job.pods[1].signal)
    scene.at(18, job.pods[0].signal)


@scenario
def two_losses_while_children_end(scene: Scene) -> None:
    """Rank 2 is lost. The hub is lost too, while the processes end before the members rejoin."""
    job = rejoining(scene, program=Program(ends=0.8))
    scene.at(15, job.pods[2].kill)
    scene.at(16.4, job.pods[0].kill)
    job.again(2, 30)
    job.again(0, 31)


# ---- the mark of completion ------------------------------------------------------------------------------------------


@scenario
def hub_lost_after_the_mark(scene: Scene) -> None:
    """The hub is killed after it has written the mark, before it sends finish. The others read the mark."""
    job = Job(scene).start()
    scene.when(job.pods[0], "file", "/complete", job.pods[0].kill)


@scenario
def hub_lost_before_the_mark(scene: Scene) -> None:
    """The hub is killed while it writes the mark. The others have trained, but find no mark."""
    job = Job(scene).start()
    scene.when(job.pods[0], "in", '"word":"trained"', job.pods[0].stall, 100)
    scene.at(32, job.pods[0].kill)


@scenario
def hub_told_to_stop_before_the_mark(scene: Scene) -> None:
    """The hub gets SIGTERM while it writes the mark. The job is complete nevertheless."""
    job = Job(scene).start()
    scene.when(job.pods[0], "in", '"word":"trained"', job.pods[0].stall, 3)
    scene.at(31.5, job.pods[0].signal)


@scenario
def told_to_stop_when_complete(scene: Scene) -> None:
    """Rank 1 gets SIGTERM after it has received finish, while its servers end."""
    job = Job(scene, program=Program(ends=3)).start()
    scene.at(32, job.pods[1].signal)


# ---- two roles -------------------------------------------------------------------------------------------------------


def roles(scene: Scene, environment: Mapping[str, str] | None = None) -> Job:
    """Return a job of two trainers and one server, each in its own pod."""
    return Job(scene, 2, pservers=1, command=COMMAND, program=Program(passes=2), identity="", environment=environment)


@scenario
def two_roles(scene: Scene) -> None:
    """A job has two trainers and one server. The server ends after both trainers have trained."""
    roles(scene).start()


@scenario
def two_roles_server_dies(scene: Scene) -> None:
    """The server of a job with two trainers is killed."""
    job = roles(scene).start()
    scene.at(5, job.pods[2].dies, "pserver", _KILLED)


@scenario
def two_roles_server_launcher_lost(scene: Scene) -> None:
    """The launcher of the server is killed, and a new pod replaces it."""
    job = roles(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"}).start()
    scene.at(5, job.pods[2].kill)
    job.again(2, 20)


@scenario
def two_roles_hub_lost_after_the_mark(scene: Scene) -> None:
    """The hub is killed after it has written the mark. The other trainer and the server read the mark."""
    job = roles(scene).start()
    scene.when(job.pods[0], "file", "/complete", job.pods[0].kill)


@scenario
def two_roles_failed_for_good(scene: Scene) -> None:
    """The server fails for good before the trainers start. The trainers do not wait until their timeout."""
    job = roles(scene, environment={"TRAIN_CONFIG_DIR": "conf"}).start(2)
    job.pods[2].staging_fails = "VOLUME/job/conf: no such folder"
    job.start(0, 1, after=40)


# ---- three roles -----------------------------------------------------------------------------------------------------


def three_roles(scene: Scene, environment: Mapping[str, str] | None = None) -> Job:
    """Return a job of two trainers, one server and one heter worker, each in its own pod."""
    program = Program(passes=2)
    return Job(scene, 2, pservers=1, heters=1, command=COMMAND, program=program, identity="", environment=environment)


@scenario
def heter_worker_ends_with_the_servers(scene: Scene) -> None:
    """A job has two trainers, one server and one heter worker. The last two end after both trainers have trained."""
    three_roles(scene).start()


@scenario
def heter_worker_dies(scene: Scene) -> None:
    """The heter worker is killed. All processes of all roles start again."""
    job = three_roles(scene, environment={"LAUNCHER_MAX_RESTARTS": "1"}).start()
    scene.at(5, job.pods[3].dies, "heter", _KILLED)


@scenario
def heter_worker_fails_for_good(scene: Scene) -> None:
    """The heter worker fails for good before the others start. No role waits until its timeout."""
    job = three_roles(scene, environment={"TRAIN_CONFIG_DIR": "conf"}).start(3)
    job.pods[3].staging_fails = "VOLUME/job/conf: no such folder"
    job.start(0, 1, 2, after=40)


# ---- two gangs, one folder -------------------------------------------------------------------------------------------


@scenario
def submitted_twice(scene: Scene) -> None:
    """The same job starts twice. The second gang waits for the end of the first gang, and finds the job complete."""
    Job(scene).start()
    Job(scene).start(after=5)


@scenario
def another_job_waits(scene: Scene) -> None:
    """The first job gets SIGTERM. A second job in its folder waits until the slowest member has ended."""
    first, second = Job(scene, environment={"LAUNCHER_STOP_GRACE": "10"}), Job(scene, identity="job-2")
    first.pods[2].program = Program(ends=6)
    first.start()
    second.start(after=5)
    for pod in first.pods:
        scene.at(15, pod.signal)


@scenario
def gang_killed_while_another_waits(scene: Scene) -> None:
    """All launchers of a gang are killed. A second gang waits until the lease of the first gang expires."""
    first, second = (Job(scene, environment={"LAUNCHER_SILENCE": "30", "LAUNCHER_STOP_GRACE": "5"}) for _ in range(2))
    first.start()
    second.start(after=5)
    for pod in first.pods:
        scene.at(15, pod.kill)


@scenario
def frozen_hub_finds_another_gang(scene: Scene) -> None:
    """All launchers of a gang are frozen until the lease expires. A second gang takes the folder over."""
    variables = {"LAUNCHER_SILENCE": "30", "LAUNCHER_STOP_GRACE": "5"}
    first, second = Job(scene, program=Program(each=100), environment=variables), Job(scene, environment=variables)
    for pod in first.pods:
        scene.at(15, pod.machine.freeze, 150)
    first.start()
    second.start(after=5)


@scenario
def lease_taken_by_a_cancelled_start(scene: Scene) -> None:
    """A pserver dies while the hub takes the lease on a slow volume. The next start takes the lease again."""
    job = Job(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"})
    scene.volume.delay = 0.35
    job.start()
    scene.when(job.pods[0], "out", '"word":"welcome"', job.pods[1].dies, "pserver", 139)


@scenario
def told_to_stop_while_the_lease_is_taken(scene: Scene) -> None:
    """The hub gets SIGTERM while it takes the lease on a slow volume. It ends this lease."""
    job = Job(scene).start()
    hub, volume = job.pods[0], scene.volume

    def go_on() -> None:
        volume.delay = 1.5
        scene.at(1.5, hub.signal)
        scene.at(1.9, setattr, volume, "delay", 0.0)

    scene.when(hub, "said", "the gang is complete", go_on)


# ---- the network -----------------------------------------------------------------------------------------------------


@scenario
def short_cut(scene: Scene) -> None:
    """The connection of rank 1 is cut. Rank 1 reconnects within a second."""
    job = Job(scene).start()
    pods = job.pods
    scene.at(15, lambda: scene.world.cut(pods[1].machine, pods[0].machine, 0.0, 0.3))


@scenario
def cut_off_while_a_child_dies(scene: Scene) -> None:
    """Rank 1 is cut off, and its trainer dies. Rank 1 gets no verdict in time and ends by itself."""
    job = Job(scene).start()
    pods = job.pods
    scene.at(15, lambda: scene.world.silence(pods[1].machine, pods[0].machine, 60))
    scene.at(15, lambda: scene.world.silence(pods[0].machine, pods[1].machine, 60))
    scene.at(16, pods[1].dies, "trainer", 1)
