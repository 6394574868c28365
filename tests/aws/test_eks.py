"""The AWS commands of docs/eks.md, as written there, with the AWS CLI against moto's server on this machine.

Stand-ins: docker and kubectl, whose calls are only written down; and for eksctl, `cloud.py` creates in moto what eksctl
would create. `make test-aws` makes the environment with the AWS CLI and moto that AWS_TOOLS names.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.eks_page import Follower, page_blocks
from tests.support.pages import Block

CLOUD = Path(__file__).with_name("cloud.py")
START_SECONDS = 30

# docker build -f FILE ... | login ... | push NAME
DOCKER = """\
case "$*" in
login*) cat > "$CALLS/password" ;;
esac
"""
KUBECTL = """\
case "$*" in
*" -f -") cat > /dev/null ;;
"get pvc paddle "*) echo pvc-1 ;;
esac
"""


def tools() -> Path:
    given = os.environ.get("AWS_TOOLS")
    if not given:
        pytest.fail("AWS_TOOLS must name the folder of `aws` and `moto_server`: `make test-aws` makes one", False)
    return Path(given)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a new server of moto."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("w") as file:
        command = [str(tools() / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def credentials(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the AWS CLI and boto3 need. No file of the user is read."""
    none = str(tmp_path_factory.mktemp("none") / "none")
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_CONFIG_FILE": none,
        "AWS_SHARED_CREDENTIALS_FILE": none,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Reader(Follower):
    """A reader of the page. What stands for AWS is empty at first."""

    def __init__(self, folder: Path, credentials: dict[str, str]) -> None:
        super().__init__(folder, PATH=f"{tools()}{os.pathsep}{os.environ['PATH']}", **credentials)
        self.stand_in("docker", DOCKER)
        self.stand_in("kubectl", KUBECTL)
        choices = self.run("echo $REGION $CLUSTER $TAG").stdout
        self.region, self.cluster, self.tag = choices.split()
        self._cloud = credentials | {"AWS_DEFAULT_REGION": self.region}

    def cloud(self, *arguments: str) -> str:
        done = subprocess.run(
            [tools() / "python", CLOUD, *arguments], env=self._cloud, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sees(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = json.loads(self.cloud("show"))
        return found

    def follow_all(self, page: list[Block]) -> list[str]:
        """Run blocks in order, and return what they print. In the place of eksctl, `cloud.py` does its work."""
        printed = []
        for block in page:
            if not block.unrun:
                printed.append(self.follow(block).output)
            elif "eksctl create cluster" in block.commands:
                self.cloud("create", str(self.folder / "my" / "cluster.yaml"))
            else:
                assert "eksctl delete cluster" in block.commands
                self.cloud("delete", self.cluster)
        return printed


def halves() -> tuple[list[Block], list[Block]]:
    """Return the blocks that create and use, and those that delete."""
    page = page_blocks()
    first = next(number for number, block in enumerate(page) if "delete namespace" in block.commands)
    return page[:first], page[first:]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, credentials: dict[str, str]) -> Reader:
    """Return a reader who has followed the page up to its half that deletes."""
    made = Reader(tmp_path_factory.mktemp("page"), credentials)
    made.follow_all(halves()[0])
    return made


def ids(found: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Return the id of everything that exists."""
    keys = {"clusters": "arn", "file systems": "FileSystemId", "mount targets": "MountTargetId"}
    keys |= {"security groups": "GroupId", "subnets": "SubnetId", "repositories": "repositoryArn"}
    return {kind: sorted(each[keys[kind]] for each in found[kind]) for kind in found}


def test_the_file_system_can_be_reached_by_the_nodes_only(reader: Reader) -> None:
    found = reader.sees()
    (cluster,), (system,), (target,) = found["clusters"], found["file systems"], found["mount targets"]
    assert (system["CreationToken"], system["Encrypted"], system["ThroughputMode"]) == (reader.cluster, True, "elastic")
    zone = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in found["subnets"]}
    assert zone[target["SubnetId"]] == f"{reader.region}a"
    (group,) = (each for each in found["security groups"] if each["GroupName"] == f"{reader.cluster}-efs")
    assert target["SecurityGroups"] == [group["GroupId"]]
    (rule,) = group["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"], rule["IpRanges"]) == ("tcp", 2049, 2049, [])
    nodes = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == [nodes]


def test_images_are_built_on_each_other_and_pushed_to_the_registry_of_the_account(reader: Reader) -> None:
    found = {each["repositoryName"]: each["repositoryUri"] for each in reader.sees()["repositories"]}
    launcher, data = (f"{found[f'{reader.cluster}/{name}']}:{reader.tag}" for name in ("launcher", "data"))
    base, image, data_image, login, *pushes = (call for call in reader.calls_of("docker") if call != "info")
    dockerfile = "paddle-launcher/docker/paddle.Dockerfile"
    assert base == f"build -f {dockerfile} --build-arg PADDLE=2.6.2 -t paddle:2.6.2 paddle-launcher"
    assert (reader.folder / dockerfile).exists()
    assert image == f"build -f docker/Dockerfile --build-arg BASE=paddle:2.6.2 -t {launcher} ."
    assert f"--build-arg LAUNCHER={launcher} -t {data} " in data_image
    assert login == f"login --username AWS --password-stdin {launcher.partition('/')[0]}"
    assert (reader.calls / "password").read_text().strip()
    assert pushes == [f"push {launcher}", f"push {data}"]


def test_the_manifests_name_the_images_and_the_file_system(reader: Reader) -> None:
    def written(part: str) -> dict[str, Any]:
        made: dict[str, Any] = yaml.safe_load((reader.folder / "my" / part / "kustomization.yaml").read_text())
        assert all((reader.folder / "my" / part / each).is_dir() for each in made["resources"])
        return made

    found = reader.sees()
    uris = {each["repositoryUri"] for each in found["repositories"]}
    for part in ("shell", "data", "ps"):
        images = written(part)["images"]
        assert {each["newName"] for each in images} == uris
        assert {each["newTag"] for each in images} == {reader.tag}
    (patch,) = written("volume")["patches"]
    assert yaml.safe_load(patch["patch"])[0]["value"] == found["file systems"][0]["FileSystemId"]


def test_kubectl_reaches_the_new_cluster_only(reader: Reader) -> None:
    config = yaml.safe_load((reader.folder / "my" / "kubeconfig").read_text())
    assert config["current-context"] == reader.cluster
    assert [each["name"] for each in config["contexts"]] == [reader.cluster]


def test_every_block_that_creates_can_be_run_again(reader: Reader) -> None:
    before = ids(reader.sees())
    reader.follow_all([block for block in halves()[0] if "aws " in block.commands and "docker" not in block.commands])
    assert ids(reader.sees()) == before


def test_everything_is_deleted_and_every_block_that_deletes_can_be_run_again(reader: Reader) -> None:
    *_, last = reader.follow_all(halves()[1])
    assert last == ""
    assert "wait --for=delete pv/pvc-1 --timeout=120s" in reader.calls_of("kubectl")
    left = ids(reader.sees())
    assert not left["clusters"] + left["file systems"] + left["mount targets"] + left["repositories"]
    reader.follow_all([block for block in halves()[1] if not block.unrun])
