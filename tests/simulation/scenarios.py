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
    told = {"LAUNCHER_MAX_RESTARTS": str(most), "LAUNCHER_REJOIN_TIMEOUT": "0", **(environment or {})}
    return Job(scene, program=program, environment=told).start()


def gathering(scene: Scene, *, program: Program | None = None, environment: Mapping[str, str] | None = None) -> Job:
    """Start a job whose members wait for the replacement of a lost pod."""
    told = {"LAUNCHER_MAX_RESTARTS": "3", **(environment or {})}
    return Job(scene, program=program, environment=told).start()


def trainer_dies_later(pod: Pod, code: int = _KILLED) -> None:
    """Let the next trainer of this pod die 5 s after its start."""
    pod.doomed.append(("trainer", code, 5.0, 0.0))


# ---- to the end ------------------------------------------------------------------------------------------------------


@scenario
def normal_run(scene: Scene) -> None:
    """Three members train three passes, and all end with 0."""
    Job(scene).start()


@scenario
def single_member(scene: Scene) -> None:
    """A job of one has no gang to wait for and no server."""
    Job(scene, 1).start()


@scenario
def single_member_fails(scene: Scene) -> None:
    """The trainer of a job of one ends with 3, and may start again once."""
    job = Job(scene, 1, environment={"LAUNCHER_MAX_RESTARTS": "1"}).start()
    scene.at(15, job.pods[0].dies, "trainer", 3)
    scene.at(20, job.pods[0].dies, "trainer", 3)


@scenario
def already_complete(scene: Scene) -> None:
    """One pod starts again after the job was complete, and ends with 0 at once."""
    job = Job(scene).start()
    job.again(2, 60)


@scenario
def first_trainer_leads(scene: Scene) -> None:
    """A program in collective mode: the first trainer starts when all is copied, the others when it listens."""
    job = Job(scene, command=COMMAND, program=Program(serves=2.0, passes=1)).start()
    job.pods[1].stages = 3.0


@scenario
def first_trainer_never_listens(scene: Scene) -> None:
    """A program in collective mode that does not listen: the others start 15 s after it."""
    Job(scene, command=COMMAND, program=Program(serves=1000.0, passes=2)).start()


@scenario
def late_member(scene: Scene) -> None:
    """One member comes 40 s after the others."""
    job = Job(scene).start(0, 1)
    job.start(2, after=40)


@scenario
def all_passes_are_there(scene: Scene) -> None:
    """The pods of a job are deleted when all passes are saved but not said: the next ones have nothing to train."""
    job = gathering(scene)
    for number in range(3):
        scene.at(12, job.save_pass, number)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


# ---- a child dies ----------------------------------------------------------------------------------------------------


@scenario
def trainer_dies(scene: Scene) -> None:
    """The trainer of rank 1 is killed in its second pass, and nothing may start again."""
    job = Job(scene).start()
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def trainer_exits_with_a_code_of_the_launcher(scene: Scene) -> None:
    """The hub's own trainer exits with 69, which the launcher shows as 70."""
    job = Job(scene).start()
    scene.at(15, job.pods[0].dies, "trainer", 69)


@scenario
def pserver_dies(scene: Scene) -> None:
    """The pserver of rank 2 is killed, and all trainers crash by it: that one is named."""
    job = Job(scene).start()
    scene.at(15, job.pods[2].dies, "pserver", _KILLED)
    for rank, pod in enumerate(job.pods):
        scene.at(15.01 + rank / 200, pod.dies, "trainer", 134)


@scenario
def server_ends_before_all_have_trained(scene: Scene) -> None:
    """In mode ps a server ends with 0 by itself while a trainer still trains for longer than 5 s."""
    job = Job(scene, command=COMMAND, environment={"LAUNCHER_MODE": "ps"}, program=Program(passes=1)).start()
    job.pods[2].program = Program(passes=1, each=30)
    scene.at(11, job.pods[0].dies, "pserver", 0)


@scenario
def server_ends_before_a_restart(scene: Scene) -> None:
    """In mode ps a server ends with 0, and all start again within 5 s: the next attempt knows nothing of it."""
    told = {"LAUNCHER_MODE": "ps", "LAUNCHER_MAX_RESTARTS": "3", "LAUNCHER_REJOIN_TIMEOUT": "0"}
    job = Job(scene, command=COMMAND, environment=told, program=Program(passes=2)).start()
    scene.at(11, job.pods[0].dies, "pserver", 0)
    scene.at(12, job.pods[1].dies, "trainer", 1)


@scenario
def staging_fails(scene: Scene) -> None:
    """The shard of rank 1 is missing: told to all before any trainer starts."""
    job = Job(scene).start()
    job.pods[1].staging_fails = "VOLUME/job/1/data: no such folder: is the shard there?"


@scenario
def staging_fails_before_the_join(scene: Scene) -> None:
    """The shard of rank 1 is missing and rank 2 comes late: the failure is held, and told once all are there."""
    job = Job(scene).start(0, 1)
    job.start(2, after=12)
    job.pods[1].staging_fails = "VOLUME/job/1/data: no such folder: is the shard there?"


@scenario
def staging_fails_and_nobody_comes(scene: Scene) -> None:
    """The shard of the hub is missing and nobody else comes: held for 30 s, then it ends by that."""
    job = Job(scene).start(0)
    job.pods[0].staging_fails = "VOLUME/job/0/data: no such folder: is the shard there?"


@scenario
def server_dies_before_the_join(scene: Scene) -> None:
    """The pserver of rank 1 dies as often as it is tried; the others come only then, and all start again."""
    job = Job(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"}).start(1)
    scene.at(2, job.pods[1].dies, "pserver", 139)
    job.start(0, after=5)
    job.start(2, after=6)


@scenario
def server_dies_before_the_join_and_nobody_comes(scene: Scene) -> None:
    """The pserver of rank 1 dies, and there is no gang to tell within 30 s."""
    job = Job(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"}).start(1)
    scene.at(2, job.pods[1].dies, "pserver", 139)


# ---- a launcher is lost, or told to stop -----------------------------------------------------------------------------


@scenario
def member_lost(scene: Scene) -> None:
    """The launcher of rank 2 is killed: the hub ends in its place with 76."""
    job = Job(scene).start()
    scene.at(15, job.pods[2].kill)


@scenario
def hub_lost(scene: Scene) -> None:
    """The launcher of rank 0 is killed: rank 1 ends in its place with 76, and ends the lease."""
    job = Job(scene).start()
    scene.at(15, job.pods[0].kill)


@scenario
def node_of_a_member_lost(scene: Scene) -> None:
    """The node of rank 2 is switched off: nothing is heard of it for 30 s."""
    job = Job(scene, environment={"LAUNCHER_SILENCE": "30"}).start()
    scene.at(12, job.pods[2].switch_off)


@scenario
def told_to_stop_one(scene: Scene) -> None:
    """SIGTERM to rank 1: all end in order, it with 143 and the others with 69."""
    job = Job(scene).start()
    scene.at(15, job.pods[1].signal)


@scenario
def told_to_stop_hub(scene: Scene) -> None:
    """SIGTERM to rank 0, whose children need 4 s to end."""
    job = Job(scene).start()
    job.pods[0].program = Program(ends=4)
    scene.at(15, job.pods[0].signal)


@scenario
def told_to_stop_all(scene: Scene) -> None:
    """SIGTERM to all, one after the other: each ends with 143."""
    job = Job(scene).start()
    for rank, pod in enumerate(job.pods):
        scene.at(15 + rank / 10, pod.signal)


@scenario
def told_to_stop_before_the_join(scene: Scene) -> None:
    """SIGTERM to rank 1 while it waits for rank 2; the others wait until their deadline."""
    job = Job(scene, environment={"LAUNCHER_PEER_TIMEOUT": "30"}).start(0, 1)
    scene.at(5, job.pods[1].signal)


@scenario
def told_to_stop_just_before_training(scene: Scene) -> None:
    """SIGTERM to rank 1 while train is on its way to it: its trainer does not start."""
    job = Job(scene).start()
    scene.when(job.pods[0], "out", '"word":"train"', job.pods[1].signal)


@scenario
def told_to_stop_just_before_the_next_attempt(scene: Scene) -> None:
    """SIGTERM to rank 1 while begin of the next attempt is on its way to it: its server does not start."""
    job = restarting(scene)
    scene.at(15, job.pods[2].dies, "trainer", _KILLED)
    scene.when(job.pods[0], "out", '"word":"begin","turn":1', job.pods[1].signal)


@scenario
def deaf_children(scene: Scene) -> None:
    """The children of rank 2 ignore SIGTERM: they are killed at the end of the grace."""
    job = Job(scene).start()
    job.pods[2].program = Program(ends=1000)
    for pod in job.pods:
        scene.at(15, pod.signal)


@scenario
def second_signal_while_stopping(scene: Scene) -> None:
    """The children of rank 2 ignore SIGTERM: the second signal ends them at once."""
    job = Job(scene).start()
    job.pods[2].program = Program(ends=1000)
    scene.at(15, job.pods[2].signal)
    scene.at(18, job.pods[2].signal)


@scenario
def second_signal_to_the_hub_that_waits_for_the_others(scene: Scene) -> None:
    """The hub has ended and waits until all others have: the second signal lets it leave."""
    job = Job(scene).start()
    job.pods[2].program = Program(ends=1000)
    scene.at(15, job.pods[0].signal)
    scene.at(18, job.pods[0].signal)


# ---- restarts in place -----------------------------------------------------------------------------------------------


@scenario
def restart_in_place(scene: Scene) -> None:
    """The trainer of rank 1 dies in its second pass: all start again after the first one."""
    job = restarting(scene)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def restarts_used_up(scene: Scene) -> None:
    """One restart is allowed, and trainers of two members die one after the other."""
    job = restarting(scene, 1)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)
    scene.at(30, job.pods[2].dies, "trainer", 1)


@scenario
def twice_the_same_before_any_pass(scene: Scene) -> None:
    """The trainer of rank 1 ends with 1 in two attempts, before a pass is done: given up."""
    job = restarting(scene)
    trainer_dies_later(job.pods[1], 1)
    trainer_dies_later(job.pods[1], 1)


@scenario
def code_that_is_not_retried(scene: Scene) -> None:
    """The trainer of rank 2 ends with 78, after which nothing starts again."""
    job = restarting(scene)
    scene.at(15, job.pods[2].dies, "trainer", 78)


@scenario
def survivors_die_while_all_end(scene: Scene) -> None:
    """The pserver of rank 0 dies, trainers die of it later than the hub collects reports: one restart, not two."""
    job = restarting(scene)
    scene.at(15, job.pods[0].dies, "pserver", _KILLED)
    for pod in job.pods[1:]:
        scene.at(15.4, pod.dies, "trainer", 134)


@scenario
def another_failure_while_all_end(scene: Scene) -> None:
    """The copying of rank 2 fails while all end for a restart: that ends the job."""
    job = restarting(scene)
    job.pods[2].stages = 15.0
    job.pods[2].staging_fails = "VOLUME/job/2/data: no such folder: is the shard there?"
    job.pods[1].program = Program(ends=4)
    scene.at(14.5, job.pods[1].dies, "pserver", _KILLED)


@scenario
def held_by_the_kernel(scene: Scene) -> None:
    """A process of rank 1 does not end even by SIGKILL, so that nothing can be started again."""
    job = restarting(scene)
    scene.at(14, lambda: setattr(job.pods[1], "program", Program(held=True)))
    scene.at(15, job.pods[2].dies, "trainer", _KILLED)


@scenario
def told_to_stop_in_the_pause(scene: Scene) -> None:
    """All are told to stop while they wait for the next attempt."""
    job = restarting(scene)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)
    for pod in job.pods:
        scene.at(16, pod.signal)


@scenario
def stalled(scene: Scene) -> None:
    """No trainer prints anything: all collect evidence, and start again once."""
    job = restarting(scene, 1, environment={"LAUNCHER_STALL_TIMEOUT": "20"})
    for pod in job.pods:
        scene.at(15, lambda pod=pod: setattr(pod, "hangs", True))


@scenario
def volume_stalls(scene: Scene) -> None:
    """The volume does not answer the hub for longer than the silence: it ends, since another gang may train."""
    job = Job(scene, environment={"LAUNCHER_SILENCE": "30"}, program=Program(each=30)).start()
    scene.at(15, job.pods[0].stall, 100)


@scenario
def volume_stalls_and_all_start_again(scene: Scene) -> None:
    """The volume does not answer the hub for a while: all end and start again once it does."""
    told = {"LAUNCHER_SILENCE": "30", "LAUNCHER_VOLUME_TIMEOUT": "60"}
    job = restarting(scene, program=Program(each=30), environment=told)
    scene.at(15, job.pods[0].stall, 50)


@scenario
def volume_stalls_at_the_start(scene: Scene) -> None:
    """The volume does not answer rank 1 for longer than LAUNCHER_VOLUME_TIMEOUT."""
    job = Job(scene, environment={"LAUNCHER_PEER_TIMEOUT": "60"})
    scene.at(0, job.pods[1].stall, 100)
    job.start()


@scenario
def volume_stalls_at_the_end(scene: Scene) -> None:
    """The volume does not answer while all end: nobody waits for it longer than 2.5 s."""
    job = Job(scene).start()
    for pod in job.pods:
        scene.at(14.9, pod.stall, 100)
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def volume_is_slow_at_the_end(scene: Scene) -> None:
    """Files are written slowly: the lease ends when the last of them is there."""
    job = Job(scene).start()
    scene.volume.lag = 1.0
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


@scenario
def volume_is_full(scene: Scene) -> None:
    """Nothing can be written when the next attempt is to begin."""
    job = restarting(scene)
    scene.at(14, lambda: setattr(scene.volume, "is_full", True))
    scene.at(15, job.pods[1].dies, "trainer", _KILLED)


# ---- gathering again -------------------------------------------------------------------------------------------------


@scenario
def member_replaced(scene: Scene) -> None:
    """The launcher of rank 2 is killed, another pod takes its place, and all go on after the last pass."""
    job = gathering(scene)
    scene.at(15, job.pods[2].kill)
    job.again(2, 25)


@scenario
def hub_replaced(scene: Scene) -> None:
    """The launcher of rank 0 is killed, and another pod takes its place."""
    job = gathering(scene)
    scene.at(15, job.pods[0].kill)
    job.again(0, 25)


@scenario
def member_told_to_stop_and_replaced(scene: Scene) -> None:
    """Rank 1 is told to stop, as a pod that is drained, and another pod takes its place."""
    job = gathering(scene)
    job.pods[1].program = Program(ends=3)
    scene.at(15, job.pods[1].signal)
    job.again(1, 16)


@scenario
def nobody_takes_the_place(scene: Scene) -> None:
    """The launcher of rank 2 is killed, and the others wait until their deadline."""
    job = gathering(scene, environment={"LAUNCHER_REJOIN_TIMEOUT": "20"})
    scene.at(15, job.pods[2].kill)


@scenario
def told_to_stop_while_gathering(scene: Scene) -> None:
    """Those who wait for another pod are told to stop."""
    job = gathering(scene)
    scene.at(15, job.pods[2].kill)
    for rank in (0, 1):
        scene.at(20 + rank, job.pods[rank].signal)


@scenario
def told_to_stop_while_children_end_to_gather_again(scene: Scene) -> None:
    """Rank 1 is told to stop while its children still end, since rank 2 was told to stop before it."""
    job = gathering(scene, program=Program(ends=5))
    scene.at(15, job.pods[2].signal)
    scene.at(17, job.pods[1].signal)
    scene.at(18, job.pods[0].signal)


@scenario
def two_losses_while_children_end(scene: Scene) -> None:
    """The hub is lost while all end their children to gather again without rank 2."""
    job = gathering(scene, program=Program(ends=0.8))
    scene.at(15, job.pods[2].kill)
    scene.at(16.4, job.pods[0].kill)
    job.again(2, 30)
    job.again(0, 31)


# ---- the mark of completion ------------------------------------------------------------------------------------------


@scenario
def hub_lost_after_the_mark(scene: Scene) -> None:
    """The hub is killed when the mark is written and before it says finish: the others read the mark."""
    job = Job(scene).start()
    scene.when(job.pods[0], "file", "/complete", job.pods[0].kill)


@scenario
def hub_lost_before_the_mark(scene: Scene) -> None:
    """The hub is killed while the mark is being written: the others have trained and do not know of all."""
    job = Job(scene).start()
    scene.when(job.pods[0], "in", '"word":"trained"', job.pods[0].stall, 100)
    scene.at(32, job.pods[0].kill)


@scenario
def hub_told_to_stop_before_the_mark(scene: Scene) -> None:
    """The hub is told to stop while the mark is being written: the job is complete all the same."""
    job = Job(scene).start()
    scene.when(job.pods[0], "in", '"word":"trained"', job.pods[0].stall, 3)
    scene.at(31.5, job.pods[0].signal)


@scenario
def told_to_stop_when_complete(scene: Scene) -> None:
    """A member is told to stop when it has heard finish and ends its servers."""
    job = Job(scene, program=Program(ends=3)).start()
    scene.at(32, job.pods[1].signal)


# ---- two roles -------------------------------------------------------------------------------------------------------


def roles(scene: Scene, environment: Mapping[str, str] | None = None) -> Job:
    """Two trainers and one server, each in a pod of its own."""
    return Job(scene, 2, pservers=1, command=COMMAND, program=Program(passes=2), identity="", environment=environment)


@scenario
def two_roles(scene: Scene) -> None:
    """Two trainers and a server: the server ends when all have trained."""
    roles(scene).start()


@scenario
def two_roles_server_dies(scene: Scene) -> None:
    """The server of two trainers is killed."""
    job = roles(scene).start()
    scene.at(5, job.pods[2].dies, "pserver", _KILLED)


@scenario
def two_roles_server_launcher_lost(scene: Scene) -> None:
    """The launcher of the server is killed, and another pod takes its place."""
    job = roles(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"}).start()
    scene.at(5, job.pods[2].kill)
    job.again(2, 20)


@scenario
def two_roles_hub_lost_after_the_mark(scene: Scene) -> None:
    """The hub is killed when the mark is written: trainer and server read the mark."""
    job = roles(scene).start()
    scene.when(job.pods[0], "file", "/complete", job.pods[0].kill)


@scenario
def two_roles_failed_for_good(scene: Scene) -> None:
    """The configuration is missing on the server's side for good; the trainers come later, and do not wait."""
    job = roles(scene, environment={"TRAIN_CONFIG_DIR": "conf"}).start(2)
    job.pods[2].staging_fails = "VOLUME/job/conf: no such folder"
    job.start(0, 1, after=40)


# ---- one folder ------------------------------------------------------------------------------------------------------


@scenario
def submitted_twice(scene: Scene) -> None:
    """The same job twice: the second gang waits for the end of the first, and finds it complete."""
    Job(scene).start()
    Job(scene).start(after=5)


@scenario
def another_job_waits(scene: Scene) -> None:
    """Another job of the same name waits for the slowest member of the one before, which is told to stop."""
    first, second = Job(scene, environment={"LAUNCHER_STOP_GRACE": "10"}), Job(scene, identity="job-2")
    first.pods[2].program = Program(ends=6)
    first.start()
    second.start(after=5)
    for pod in first.pods:
        scene.at(15, pod.signal)


@scenario
def gang_killed_while_another_waits(scene: Scene) -> None:
    """All launchers of the gang that trains are killed: the other one waits until that must be over."""
    first, second = (Job(scene, environment={"LAUNCHER_SILENCE": "30", "LAUNCHER_STOP_GRACE": "5"}) for _ in range(2))
    first.start()
    second.start(after=5)
    for pod in first.pods:
        scene.at(15, pod.kill)


@scenario
def frozen_hub_finds_another_gang(scene: Scene) -> None:
    """The launchers of a gang are frozen for so long that another one takes the folder over."""
    told = {"LAUNCHER_SILENCE": "30", "LAUNCHER_STOP_GRACE": "5"}
    first, second = Job(scene, program=Program(each=100), environment=told), Job(scene, environment=told)
    for pod in first.pods:
        scene.at(15, pod.machine.freeze, 150)
    first.start()
    second.start(after=5)


@scenario
def lease_taken_by_a_cancelled_start(scene: Scene) -> None:
    """The pserver of rank 1 dies while the hub takes the lease on a slow volume: the next start takes it again."""
    job = Job(scene, environment={"LAUNCHER_MAX_RESTARTS": "3"})
    scene.volume.delay = 0.4
    job.start()
    scene.when(job.pods[0], "out", '"word":"welcome"', job.pods[1].dies, "pserver", 139)


@scenario
def told_to_stop_while_the_lease_is_taken(scene: Scene) -> None:
    """The hub is told to stop while a slow volume still makes its lease, which is ended all the same."""
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
    """The connection of rank 1 ends, and it returns within a second."""
    job = Job(scene).start()
    pods = job.pods
    scene.at(15, lambda: scene.world.cut(pods[1].machine, pods[0].machine, 0.0, 0.3))


@scenario
def cut_off_while_a_child_dies(scene: Scene) -> None:
    """Rank 1 is cut off for good, and its trainer dies: it has no verdict in time and ends by itself."""
    job = Job(scene).start()
    pods = job.pods
    scene.at(15, lambda: scene.world.silence(pods[1].machine, pods[0].machine, 60))
    scene.at(15, lambda: scene.world.silence(pods[0].machine, pods[1].machine, 60))
    scene.at(16, pods[1].dies, "trainer", 1)
