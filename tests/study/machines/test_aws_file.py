"""The file of `init aws`, taken by Ray's own bootstrap against a simulated AWS."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.machines.cluster_files import filled

boto3 = pytest.importorskip("boto3", reason="the file for AWS: boto3 is not installed")
moto = pytest.importorskip("moto", reason="the file for AWS: moto is not installed")

REGION = "eu-central-1"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "ec2.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray's key pair is in ~/.ssh
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "simulated")
        patch.delenv("AWS_PROFILE", raising=False)
        with moto.mock_aws():
            yield


@pytest.fixture(scope="module")
def config(aws: None) -> dict[str, Any]:
    """The template with its marked lines changed, after `ray up`'s bootstrap."""
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.util import prepare_config, validate_config

    ec2 = boto3.client("ec2", region_name=REGION)
    iam = boto3.client("iam")
    group = ec2.create_security_group(GroupName="calstudy", Description="calstudy")["GroupId"]
    ssh = {"FromPort": 22, "ToPort": 22, "IpProtocol": "tcp"}
    ssh["IpRanges"] = [{"CidrIp": "198.51.100.7/32"}]
    within = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[ssh, within])
    iam.create_role(RoleName="calstudy-head", AssumeRolePolicyDocument=json.dumps(TRUST))
    iam.create_instance_profile(InstanceProfileName="calstudy-head")
    iam.add_role_to_instance_profile(InstanceProfileName="calstudy-head", RoleName="calstudy-head")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    text = filled("aws.yaml", wheel="calstudy.whl").replace("sg-00000000000000000", group)
    plain = yaml.safe_load(text.replace("ami-00000000000000000", image))
    prepared: dict[str, Any] = prepare_config(plain)
    validate_config(prepared)
    made: dict[str, Any] = bootstrap_aws(prepared)
    return made


def test_ssh_is_open_to_one_address_and_the_profile_is_the_named_one(
    config: dict[str, Any],
) -> None:
    ec2 = boto3.client("ec2", region_name=REGION)
    groups = {each["GroupName"]: each for each in ec2.describe_security_groups()["SecurityGroups"]}
    assert set(groups) == {"default", "calstudy"}  # none of Ray's own
    opened = {
        (rule.get("FromPort"), source["CidrIp"])
        for rule in groups["calstudy"]["IpPermissions"]
        for source in rule["IpRanges"]
    }
    assert opened == {(22, "198.51.100.7/32")}
    for kind in config["available_node_types"].values():
        assert kind["node_config"]["SecurityGroupIds"] == [groups["calstudy"]["GroupId"]]
    assert "IamInstanceProfile" not in config["head_node"]  # what Ray would have made
    head = config["available_node_types"]["head"]["node_config"]
    assert head["IamInstanceProfile"] == {"Name": "calstudy-head"}
    roles = [role["RoleName"] for role in boto3.client("iam").list_roles()["Roles"]]
    assert roles == ["calstudy-head"]


def test_a_fleet_starts_with_no_worker_and_its_head_is_no_spot(config: dict[str, Any]) -> None:
    kinds = config["available_node_types"]
    assert kinds["gpu"]["min_workers"] == 0
    assert kinds["gpu"]["resources"]["GPU"] == 1
    assert kinds["gpu"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in kinds["head"]["node_config"]
    assert kinds["head"]["resources"] == {"CPU": 0}


def test_the_heads_permissions_are_enough_and_each_is_needed(config: dict[str, Any]) -> None:
    """moto refuses what a policy does not allow, as AWS does."""
    policy = json.loads(filled("aws-head-policy.json"))
    (statement,) = policy["Statement"]
    assert come_and_go(config, statement) == 1
    for action in statement["Action"]:
        rest = [each for each in statement["Action"] if each != action]
        assert come_and_go(config, {**statement, "Action": rest}) == 0, action


def come_and_go(config: dict[str, Any], statement: dict[str, Any]) -> int:
    """How many workers Ray's provider starts and ends as who may do so much; 0 if it may not."""
    from botocore.exceptions import ClientError
    from click import ClickException
    from moto.core import set_initial_no_auth_action_count
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler.node_launch_exception import NodeLaunchException

    iam = boto3.client("iam")
    user = f"head-{len(iam.list_users()['Users'])}"
    iam.create_user(UserName=user)
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=user, PolicyName="calstudy", PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    credentials = {
        "aws_access_key_id": key["AccessKeyId"],
        "aws_secret_access_key": key["SecretAccessKey"],
    }
    settings = {**config["provider"], "aws_credentials": credentials}
    kind = config["available_node_types"]["gpu"]["node_config"]
    tags = {"ray-node-type": "worker", "ray-node-name": "w", "ray-user-node-type": "gpu"}

    @set_initial_no_auth_action_count(0)
    def started_and_ended() -> int:
        provider = AWSNodeProvider(settings, config["cluster_name"])
        provider.create_node(dict(kind), tags, 1)
        nodes = provider.non_terminated_nodes({})
        provider.set_node_tags(nodes[0], {"ray-node-status": "up-to-date"})
        provider.terminate_nodes(nodes)
        assert not provider.non_terminated_nodes({})
        return len(nodes)

    try:
        return started_and_ended()
    except (ClientError, ClickException, NodeLaunchException):
        return 0


def test_mlflows_database_is_copied_to_the_storage(tmp_path: Path) -> None:
    """The loop of the head's command, with its minute shortened."""
    kinds = yaml.safe_load(filled("aws.yaml", wheel="calstudy.whl"))["head_start_ray_commands"]
    (command,) = (each for each in kinds if "mlflow server" in each)
    script = command.split('python -c "')[1].split('"; done')[0].replace('\\"', '"')
    home, storage = tmp_path / "home", tmp_path / "storage"
    (home / "calstudy").mkdir(parents=True)
    storage.mkdir()
    with sqlite3.connect(home / "calstudy/mlflow.db") as made:
        made.execute("create table runs (name text)")
        made.execute("insert into runs values ('focal/0001')")
    environment = {**os.environ, "HOME": str(home), "CALSTUDY_STORAGE": str(storage)}
    for _ in range(2):  # a second copy replaces the first
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    copied = sqlite3.connect(storage / "mlflow-copy.db")
    assert copied.execute("select name from runs").fetchall() == [("focal/0001",)]
    assert [path.name for path in storage.iterdir()] == ["mlflow-copy.db"]
