"""What the test of docs/eks.md does in moto besides the commands of the page. Runs with the Python that has boto3.

create FILE     creates what eksctl creates from this file, as far as the commands of the page can see it
delete NAME     deletes it again
show            prints what exists, as JSON
"""

from __future__ import annotations

import json
import sys
from typing import Any

import boto3
import yaml

_TRUSTED = "arn:aws:iam::123456789012:role/any"


def _with_network(vpc: str, group: str) -> Any:
    """Return a handler that adds to a request what EKS itself decides: the network, and the nodes' security group."""

    def add(params: dict[str, Any], **_: Any) -> None:
        body = json.loads(params["body"])
        body["resourcesVpcConfig"] |= {"vpcId": vpc, "clusterSecurityGroupId": group}
        params["body"] = json.dumps(body).encode()

    return add


def create(path: str) -> None:
    with open(path) as file:
        config = yaml.safe_load(file)
    name, zones = config["metadata"]["name"], config["availabilityZones"]
    ec2, eks = boto3.client("ec2"), boto3.client("eks")
    vpc = ec2.create_vpc(CidrBlock="192.168.0.0/16")["Vpc"]["VpcId"]
    subnets = {
        zone: ec2.create_subnet(VpcId=vpc, AvailabilityZone=zone, CidrBlock=f"192.168.{32 * number}.0/19")
        for number, zone in enumerate(zones)
    }
    ids = {zone: made["Subnet"]["SubnetId"] for zone, made in subnets.items()}
    group = ec2.create_security_group(GroupName=f"eks-cluster-sg-{name}", VpcId=vpc, Description="nodes")["GroupId"]
    eks.meta.events.register("before-call.eks.CreateCluster", _with_network(vpc, group))
    eks.create_cluster(name=name, roleArn=_TRUSTED, resourcesVpcConfig={"subnetIds": list(ids.values())})
    for nodes in config["managedNodeGroups"]:
        eks.create_nodegroup(
            clusterName=name,
            nodegroupName=nodes["name"],
            nodeRole=_TRUSTED,
            subnets=[ids[zone] for zone in nodes["availabilityZones"]],
        )


def delete(name: str) -> None:
    """Delete the cluster and its network. Fails while a mount target or another security group is in the network."""
    ec2, eks = boto3.client("ec2"), boto3.client("eks")
    vpc = eks.describe_cluster(name=name)["cluster"]["resourcesVpcConfig"]["vpcId"]
    within = [{"Name": "vpc-id", "Values": [vpc]}]
    assert not ec2.describe_network_interfaces(Filters=within)["NetworkInterfaces"], "a mount target is left"
    for nodes in eks.list_nodegroups(clusterName=name)["nodegroups"]:
        eks.delete_nodegroup(clusterName=name, nodegroupName=nodes)
    eks.delete_cluster(name=name)
    groups = ec2.describe_security_groups(Filters=within)["SecurityGroups"]
    assert {group["GroupName"] for group in groups} <= {"default", f"eks-cluster-sg-{name}"}, groups


def show() -> None:
    ec2, efs, eks, ecr = (boto3.client(name) for name in ("ec2", "efs", "eks", "ecr"))
    systems = efs.describe_file_systems()["FileSystems"]
    found = {
        "clusters": [eks.describe_cluster(name=name)["cluster"] for name in eks.list_clusters()["clusters"]],
        "file systems": systems,
        "mount targets": [
            target | efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])
            for system in systems
            for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]
        ],
        "security groups": ec2.describe_security_groups()["SecurityGroups"],
        "subnets": ec2.describe_subnets()["Subnets"],
        "repositories": ecr.describe_repositories()["repositories"],
    }
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["create", path]:
            create(path)
        case ["delete", name]:
            delete(name)
        case ["show"]:
            show()
