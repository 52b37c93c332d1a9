"""The pure parts: references, specification, networks, rules, images, and what failures of an engine mean."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.docker import sidecar, specification
from ephemerd.adapters.runtimes.docker.collecting import Known, plan
from ephemerd.adapters.runtimes.docker.engine import About, failure
from ephemerd.adapters.runtimes.docker.images import with_tag
from ephemerd.adapters.runtimes.docker.notebook import GRAIN, Notebook
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.adapters.runtimes.docker.reference import Reference, parse_reference, place_of
from ephemerd.adapters.runtimes.docker.rules import Exceptions, render, without_counts
from ephemerd.adapters.runtimes.docker.stock import kind_of
from ephemerd.adapters.runtimes.docker.subnets import free_subnets
from ephemerd.adapters.runtimes.docker.tunnel import arguments
from ephemerd.domain.ids import RunnerId
from ephemerd.ports.errors import Broken, Gone, Refused, RetryLater
from ephemerd.ports.runtime import StartOrder

ORDER = StartOrder(RunnerId("eph-store-b1-1"), "linux", "store", "blob-secret")
OPTIONS = DockerOptions(image="image:1", logs_dir=Path("/logs"), files_dir=Path("/files"))
ID = "0123456789abcdef" * 4


# References


def test_a_reference_survives_being_text():
    reference = Reference("eph-a-1", "lin:ux", "store 1", "AB:CD:unix:///x", ID)
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "process:1:a:b:c:d:e:f",
        f"docker:1:a:b:../x:e:{ID}",
        "docker:1:a:b:c:e:0123",
        "docker:2:::::",
    ],
)
def test_anything_else_is_none(text):
    assert parse_reference(text) is None


def test_a_name_cannot_leave_its_folder():
    with pytest.raises(ValueError, match="no runner name"):
        place_of("../etc", Path("/files"), Path("/logs"))


# What a container is created as


def test_nothing_of_the_machine_is_given_to_a_container_by_default():
    made = specification.container(ORDER, OPTIONS, {"TOOLS": "x"}, "net")
    host = made["HostConfig"]
    assert host["Mounts"] == []
    assert (host["Privileged"], host["CapDrop"], host["CapAdd"]) == (False, ["ALL"], [])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["NetworkMode"] == "net"
    assert not made["OpenStdin"]


def test_the_credential_is_in_no_part_of_it():
    assert "blob-secret" not in json.dumps(specification.container(ORDER, OPTIONS, {}, "net"))
    assert "blob-secret" not in json.dumps(
        specification.network(ORDER.runner, ORDER.store, specification.labels(ORDER), "10.0.0.0/29")
    )


def test_limits_are_handed_on():
    options = replace(
        OPTIONS,
        memory=1024,
        cpus=1.5,
        pids=7,
        shm=64,
        disk=99,
        work_tmpfs=5,
        dns=("1.1.1.1",),
        network="host",
    )
    host = specification.container(ORDER, options, {}, None)["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (1024, 1024, 1_500_000_000)
    assert (host["PidsLimit"], host["ShmSize"], host["StorageOpt"]) == (7, 64, {"size": "99"})
    assert host["Tmpfs"] == {"/home/runner/_work": "rw,exec,nosuid,nodev,mode=1777,size=5"}
    assert (host["Dns"], host["NetworkMode"]) == (["1.1.1.1"], "host")


def test_what_is_mounted_is_read_only(tmp_path):
    (tmp_path / "externals").mkdir()
    options = replace(OPTIONS, application=tmp_path, tool_cache=Path("/tools"))
    mounts = specification.container(ORDER, options, {}, "net")["HostConfig"]["Mounts"]
    assert [(mount["Target"], mount["ReadOnly"]) for mount in mounts] == [
        ("/home/runner/bin", True),
        ("/home/runner/externals", True),
        ("/opt/hostedtoolcache", True),
    ]


def test_only_the_containers_user_can_read_what_is_handed_over():
    with tarfile.open(fileobj=io.BytesIO(specification.handover("blob", (1001, 100)))) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
    assert {name: entry.mode for name, entry in entries.items()} == {
        ".ephemerd": 0o700,
        ".ephemerd/parent": 0o500,
        ".ephemerd/jit": 0o600,
    }
    assert {(entry.uid, entry.gid) for entry in entries.values()} == {(1001, 100)}


@pytest.mark.parametrize("credential", ["", "two\nlines", "nul\0"])
def test_a_credential_that_a_shell_could_not_read_is_refused(credential):
    with pytest.raises(Broken) as refused:
        specification.handover(credential, (0, 0))
    assert not credential or credential not in str(refused.value)


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        ("runner", (1001, 121)),
        ("1001", (1001, 121)),
        ("runner:docker", (1001, 121)),
        ("77", (77, 0)),
        ("root", (0, 0)),
        ("x", None),
    ],
)
def test_a_user_is_looked_up_in_the_image(user, owner):
    passwd = b"root:x:0:0::/root:/bin/sh\nbroken\nrunner:x:1001:121::/home/runner:/bin/sh\n"
    assert specification.account_in(passwd, user) == owner


# An engine for jobs

GRANTED = replace(OPTIONS, docker="sidecar", docker_rights="capabilities", memory=1024, user="runner")
ABOUT = About("ID", "20", False, False, False, "cgroupfs", "overlay2", "/var/lib/docker", True)


def test_an_engine_for_jobs_shares_with_its_runner_what_jobs_need_and_nothing_of_the_machine():
    made = specification.container(ORDER, GRANTED, {}, "container:net")
    sidecar.share(made, ORDER, GRANTED)
    beside = sidecar.container(ORDER, GRANTED, {}, "container:net", ("1.1.1.1",))
    ours, its = made["HostConfig"]["Mounts"], beside["HostConfig"]["Mounts"]
    assert [mount for mount in its if mount["Type"] != "volume"] == []
    assert {mount["Target"] for mount in ours} == {
        *("/run/ephemerd-engine", "/home/runner/_work", "/home/runner/externals")
    }
    assert [mount["Target"] for mount in its if mount not in ours] == ["/var/lib/docker"]
    labels = {str(mount["VolumeOptions"]["Labels"]) for mount in its}
    assert labels == {str(specification.labels(ORDER))}
    assert "DOCKER_HOST=unix:///run/ephemerd-engine/docker.sock" in made["Env"]
    assert made["HostConfig"]["CapDrop"] == ["ALL"], "the runner itself gets no right more"
    assert beside["HostConfig"]["Memory"] == 1024
    assert beside["Cmd"][-2:] == ["--dns", "1.1.1.1"]
    assert "Hostname" not in beside
    assert beside["Labels"]["ephemerd.role"] == "engine"


def test_an_engine_for_jobs_has_no_more_rights_than_the_pool_grants():
    image = {"Config": {"Entrypoint": ["dockerd-entrypoint.sh"]}}
    some = sidecar.container(ORDER, GRANTED, image, "net", ())
    assert "Privileged" not in some["HostConfig"]
    assert some["Entrypoint"][-1] == "dockerd-entrypoint.sh"
    every = sidecar.container(ORDER, replace(GRANTED, docker_rights="privileged"), image, "net", ())
    assert every["HostConfig"]["Privileged"]
    assert "Entrypoint" not in every


@pytest.mark.parametrize(
    ("options", "about", "words"),
    [
        (replace(GRANTED, docker_rights="refused"), ABOUT, "docker_rights"),
        (replace(GRANTED, network="host"), ABOUT, "network of the runner's own"),
        (GRANTED, replace(ABOUT, podman=True), "Docker Engine"),
        (GRANTED, replace(ABOUT, contained=True), "user namespace"),
    ],
)
def test_an_engine_for_jobs_is_refused_where_it_cannot_be(options, about, words):
    sidecar.check(ABOUT, GRANTED)
    sidecar.check(about, replace(options, docker="none"))
    with pytest.raises(Broken, match=words):
        sidecar.check(about, options)


# Networks


def test_ready_networks_suit_pools_that_make_them_alike():
    assert kind_of(OPTIONS) == kind_of(replace(OPTIONS, memory=7, network="bridge"))
    for change in ({"subnets": "10.0.0.0/16"}, {"dns": ("1.1.1.1",)}, {"image": "other:1"}):
        assert kind_of(OPTIONS) != kind_of(replace(OPTIONS, **change))


def test_free_parts_overlap_nothing_and_differ_by_runner():
    taken = ["10.0.0.0/29", "172.17.0.0/16", "fd00::/64"]
    found = list(free_subnets("10.0.0.0/28", taken, "a"))
    assert found == ["10.0.0.8/29"]
    assert next(free_subnets("10.0.0.0/16", [], "a")) != next(free_subnets("10.0.0.0/16", [], "b"))
    assert list(free_subnets("10.0.0.0/28", ["10.0.0.0/24"], "a")) == []


def test_exceptions_are_in_the_rules_by_kind():
    rules = render("store", Exceptions(("10.1.0.5", "fd00::5", "10.1.0.5"), ("192.168.1.1",)))
    assert "set allow4 { type ipv4_addr; flags interval; auto-merge; elements = { 10.1.0.5/32 } }" in rules
    assert "elements = { fd00::5/128 }" in rules
    assert "set dns4 { type ipv4_addr; flags interval; auto-merge; elements = { 192.168.1.1/32 } }" in rules
    assert rules.index("jump refuse") < rules.index("jump allowed"), "no exception joins two runners"


def test_counters_and_handles_are_no_change():
    one = '{"nftables": [{"rule": {"handle": 4, "expr": [{"counter": {"packets": 1, "bytes": 9}}, {"accept": null}]}}]}'
    other = one.replace('"handle": 4', '"handle": 7').replace('"packets": 1', '"packets": 8')
    assert without_counts(one) == without_counts(other)
    assert without_counts(one) != without_counts(one.replace("accept", "drop"))


# Ways to an engine


def test_ssh_is_called_with_the_machine_alone():
    command = arguments("ssh://me@box:2222", Path("/x/engine.sock"))
    assert command[-2:] == ["--", "box"]
    assert command[command.index("-L") + 1] == "/x/engine.sock:/var/run/docker.sock"
    assert command[command.index("-l") + 1] == "me"
    assert command[command.index("-p") + 1] == "2222"
    assert "/run/user/1/podman.sock" in " ".join(arguments("ssh://box/run/user/1/podman.sock", Path("/x")))


@pytest.mark.parametrize("url", ["ssh://", "ssh://-oProxyCommand=x", "ssh://-x@box"])
def test_no_machines_name_becomes_an_option_of_ssh(url):
    with pytest.raises(Broken):
        arguments(url, Path("/x"))


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "No such container: x", Gone),
        (409, "Conflict. The container name is already in use", Refused),
        (409, "removal of container x is already in progress", RetryLater),
        (400, "OCI runtime create failed", Broken),
        (403, "Pool overlaps with other one on this address space", Broken),
        (403, "forbidden", Refused),
        (500, "write /var/lib/docker: no space left on device", Broken),
        (500, "--storage-opt is supported only for overlay over xfs with 'pquota' mount option", Broken),
        (500, "context deadline exceeded", RetryLater),
        (503, "busy", RetryLater),
    ],
)
def test_each_failure_of_an_engine_has_its_remedy(status, message, kind):
    assert type(failure(status, message, "what")) is kind


# Images


def known(name: str, used: float, size: int = 100) -> Known:
    return Known(f"id-{name}", name, size, used)


def test_images_go_by_age_and_by_size_the_least_recently_used_first():
    images = [known("new", 900.0), known("old", 100.0), known("middle", 500.0)]
    gone = plan(images, (), now=1_000.0, unused=600.0, size=10_000)
    assert [removal.image.name for removal in gone] == ["old"]
    gone = plan(images, (), now=1_000.0, unused=10_000.0, size=150)
    assert [removal.image.name for removal in gone] == ["old", "middle"]
    assert plan(images, (), now=1_000.0, unused=10_000.0, size=300) == []


def test_what_is_used_never_goes_whatever_the_limits():
    images = [known("used", 0.0), known("free", 0.0)]
    gone = plan(images, {"id-used"}, now=1e9, unused=1.0, size=0)
    assert [removal.image.name for removal in gone] == ["free"]


def test_uses_are_noted_and_found_again(tmp_path):
    notebook = Notebook(tmp_path / "containers")
    notebook.used("id-1", "image:1", 1_000.0)
    notebook.used("id-1", "image:1", 1_000.0 + GRAIN - 1)
    assert Notebook(tmp_path / "containers").notes() == {"id-1": ("image:1", 1_000.0)}
    notebook.used("id-1", "image:1", 1_000.0 + GRAIN)
    notebook.forget("id-2")
    assert Notebook(tmp_path / "containers").notes() == {"id-1": ("image:1", 1_000.0 + GRAIN)}
    notebook.forget("id-1")
    assert Notebook(tmp_path / "containers").notes() == {}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": ["x"]}', "\\xff"])
def test_notes_that_cannot_be_read_are_none(tmp_path, text):
    (tmp_path / ".images.json").write_text(text, encoding="utf-8")
    assert Notebook(tmp_path).notes() == {}


@pytest.mark.parametrize(
    ("name", "whole"),
    [("a", "a:latest"), ("host:5000/a", "host:5000/a:latest"), ("a:1", "a:1"), ("a@sha256:0", "a@sha256:0")],
)
def test_one_tag_is_fetched_and_not_all_of_them(name, whole):
    assert with_tag(name) == whole
