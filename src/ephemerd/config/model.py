"""The settings: every key of the configuration, its kind, its default and why.

The texts are the reference: `docs/CONFIGURATION.md` is generated from them. `None` as a default means that
the value is found when the configuration is read (`effective.py` says how).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from ephemerd.config.container import ContainerSettings, EngineUrl
from ephemerd.config.policy import PolicySettings
from ephemerd.config.types import (
    Count,
    Duration,
    Kind,
    Labels,
    Listen,
    Name,
    OptionalDuration,
    OptionalListen,
    OptionalPositiveCount,
    PositiveCount,
    PositiveDuration,
    RunnerName,
    Scopes,
    ScopeText,
    Section,
    Share,
    Size,
    StoreUrl,
)
from ephemerd.domain.pool import DAY, HOUR, MINUTE, SECOND, Policy

File = Annotated[Path, Kind("path")]
SecretFile = Annotated[Path, Kind('path or "credential:NAME"')]
Secret = Annotated[SecretStr, Kind('"credential:NAME" or "env:NAME"; the secret itself only by environment')]


class ForgeSettings(Section):
    """`[forge.NAME]`: where jobs come from. NAME is also the end of its webhook address."""

    kind: Annotated[Literal["github"], Kind("github")] = Field(
        "github", description="Which product it is; GitHub and GitHub Enterprise Server are one kind."
    )
    url: Annotated[str, Kind("URL")] = Field(
        "https://api.github.com",
        description="The API's base address; of an Enterprise Server https://HOST/api/v3.",
    )
    ca_file: File | None = Field(
        None, description="Certificates to trust instead of the system's, for a server with its own."
    )
    scope: Scopes = Field(
        description='Where runners are registered: "repo:OWNER/NAME", "org:NAME" or "enterprise:NAME". Only '
        "these scopes' jobs are served."
    )
    token: Secret | None = Field(
        None, description="The token that registers runners. Prefer token_file: a file can be guarded."
    )
    token_file: SecretFile | None = Field(
        None,
        description="File with the token; what it must be allowed to do is in docs/GITHUB.md.",
    )
    app_id: Annotated[int, Field(ge=1), Kind("number")] | None = Field(
        None,
        description="GitHub App that registers runners, instead of a token; found on its settings' page.",
    )
    private_key: Secret | None = Field(None, description="That App's private key. Prefer private_key_file.")
    private_key_file: SecretFile | None = Field(
        None, description="File with that key, a .pem; no other account may read it."
    )
    webhook_secret: Secret | None = Field(
        None, description="Secret that signs this forge's deliveries. Without one the daemon does not start."
    )
    webhook_secret_file: SecretFile | None = Field(None, description="File with that secret.")
    webhook_url: Annotated[str, Kind("URL")] | None = Field(
        None,
        description="Where the forge reaches this daemon, https://HOST/webhooks/NAME. `ephemerd webhook` makes the "
        "hook that leads here, and the daemon fetches what could not be delivered by it.",
    )
    webhook_owner: Annotated[Literal["scope", "app"], Kind("scope or app")] = Field(
        "scope",
        description="Whose hook tells of jobs. scope: each repository or organization has one of its own. app: the "
        "GitHub App's one hook tells of all scopes.",
    )
    discovery: Annotated[Literal["webhook", "poll", "scale-set"], Kind("webhook or poll")] = Field(
        "webhook",
        description="How jobs are heard of. webhook: by deliveries, repaired by a listing every reconcile_every. poll: "
        "by listings alone, without any port that the forge has to reach. scale-set comes later.",
    )
    polled: Annotated[tuple[ScopeText, ...], Kind("list of scopes")] = Field(
        (),
        description='Those of its scopes that are polled although discovery is "webhook": ones that no hook tells of.',
    )
    runner_group: Annotated[str, Kind("name")] = Field(
        "Default",
        description="Name of the runner group for organizations and enterprises; a repository has none.",
    )
    repositories: Annotated[tuple[str, ...], Kind("list of patterns")] = Field(
        (),
        description="Which repositories may use these machines, as OWNER/NAME patterns with *; default: all of the "
        "scopes. A public repository is served only where it is named here without *. A repository scope that none "
        "of them allows is refused.",
    )
    repositories_denied: Annotated[tuple[str, ...], Kind("list of patterns")] = Field(
        (), description="Repositories that may not, whatever repositories says."
    )
    forks: Annotated[tuple[str, ...], Kind("list of patterns")] = Field(
        (),
        description="Repositories whose runs of commits from forks, above all pull requests, are served too. Whoever "
        "can open one then runs code on these machines.",
    )
    workflows: Annotated[tuple[str, ...], Kind("list of patterns")] = Field(
        (),
        description="Names of the workflows that are served (the path where one has no name); default: all.",
    )
    branches: Annotated[tuple[str, ...], Kind("list of patterns")] = Field(
        (),
        description="Branches and tags that are served; default: all. What comes from a fork is on none of them.",
    )
    repository_runners: OptionalPositiveCount = Field(
        None, description="Most runners that are made for one repository at a time, over all pools."
    )

    def is_polled(self, scope: str) -> bool:
        """Say whether jobs of a scope are heard of by listings alone."""
        return self.discovery == "poll" or scope.lower() in {one.lower() for one in self.polled}


class HostSettings(Section):
    """`[hosts.NAME]`: where environments are placed. Processes run on this machine, containers where the engine is."""

    slots: Count | None = Field(
        None, description="Environments at one time; default: the sum of its pools' max_concurrent."
    )
    engine: EngineUrl = Field(
        "unix:///var/run/docker.sock",
        description="Docker Engine, or Podman's socket, of this host; for pools whose runtime is docker.",
    )
    engine_tls: File | None = Field(
        None, description="Folder with ca.pem, cert.pem and key.pem for an engine at tcp://."
    )
    disk_reserve: Size = Field(
        2 * 1024**3,
        description="What has to be free on a local engine's disk; below it no container is started.",
    )
    images_unused: PositiveDuration = Field(
        14 * DAY,
        description="Images that our runners used go after so long without use; pools' own images stay.",
    )
    images_size: Size = Field(
        40 * 1024**3, description="Beyond this size of them all the least recently used ones go."
    )


class PoolSettings(Section):
    """`[pools.NAME]`: a kind of runner."""

    forge: Name | None = Field(None, description="Its [forge.NAME]; may be left out where there is one.")
    scope: ScopeText | None = Field(
        None, description="Which of the forge's scopes; may be left out where there is one."
    )
    host: Name = Field("local", description="Its [hosts.NAME]; local exists without being written.")
    labels: Labels = Field(
        description="What the runner offers. It takes a job whose labels are a subset of these; nothing is "
        "implied."
    )
    runtime: Literal["process", "docker"] = Field(
        description="What an environment is. process: plain processes on this machine. docker: a container for each "
        "runner, on the engine of its host."
    )
    user: Annotated[str, Kind("user name")] | None = Field(
        None,
        description="The account that jobs run as; only root can use another than its own. As root one is "
        "required unless runner.allow_root. In a container one of the image's accounts; default: the image's own.",
    )
    max_concurrent: PositiveCount = Field(4, description="Most runners of this pool at one time.")
    min_idle: Count = Field(
        0,
        description="Runners to keep listening in advance, replaced as they are taken and at policy.max_idle_age. They "
        "hold slots, and take none that a job waits for.",
    )
    orphan_grace: Duration | None = Field(
        None,
        description="A runner that listens for so long without a job is nominated as expired; default: "
        "runner.orphan_sweep.grace.",
    )
    surplus_grace: Duration = Field(
        30 * SECOND,
        description="A runner that nobody needs any more is nominated after this; 0 is at once.",
    )
    job_timeout: OptionalDuration = Field(
        None,
        description="Ends jobs that run longer. Set one only if longer jobs should really be ended.",
    )
    unlabelled: bool = Field(False, description="Also serve jobs that name no label at all.")
    registered_labels: Literal["all", "job"] = Field(
        "all",
        description="What a runner is registered with. all: the pool's labels, so that it may be given any job that "
        "they satisfy. job: exactly the labels of the job that it is made for, so that the forge gives it no job that "
        "asks for more; runners that min_idle keeps have all of them.",
    )
    runner_name: RunnerName = Field(
        "{id}",
        description="What its runners are called at the forge. {id} comes first and tells whose they are, and that no "
        "name comes twice; after it a-z, 0-9, -, {pool} and {host}, cut to 63 signs in all.",
    )
    follow: Literal["all", "listening"] = Field(
        "all",
        description="What is followed of the listener's files. listening: only that it listens; for tests "
        "and demonstrations, since jobs are then learned from the forge alone.",
    )
    container: ContainerSettings = ContainerSettings()


class OrphanSweepSettings(Section):
    """`[runner.orphan_sweep]`: nomination of runners that got no job."""

    enabled: bool = Field(
        True,
        description="Off: the rules expired, surplus, displaced and leaked rest, so an idle runner stays until "
        "a job takes it.",
    )
    grace: Duration = Field(10 * MINUTE, description="orphan_grace of pools that set none.")


class ClaimRetrySettings(Section):
    """`[runner.claim_retry]`: what happens when a runner cannot be registered or started."""

    backoff: Annotated[tuple[Duration, ...], Field(min_length=1), Kind("list of durations")] = Field(
        Policy().backoff, description="Pauses between tries, the last one repeated. Demand is never lost."
    )
    jitter: Share = Field(
        Policy().jitter, description="By how much of itself a pause is spread, so that tries do not align."
    )


class DownloadSettings(Section):
    """`[runner.download]`: how the runner application is kept current where `application = "download"`."""

    every: PositiveDuration = Field(
        6 * HOUR,
        description="How often the forge is asked which version it expects; where nothing changed that costs nothing.",
    )
    unverified: bool = Field(
        False,
        description="Also use a version for which the forge states no checksum, which then is as good as the "
        "connection that it came over.",
    )


class RunnerSettings(Section):
    """`[runner]`: the runner application and where it runs."""

    application: Annotated[str, Kind('path or "download"')] = Field(
        "/opt/actions-runner",
        description="The unpacked runner application; read only, each runner gets a copy. download: the version that "
        "the forge expects is fetched, verified and kept current (docs/APPLICATION.md).",
    )
    download: DownloadSettings = DownloadSettings()
    work_dir: File | None = Field(
        None, description="Where runners get their own folder; default: runners in the state folder."
    )
    extra_env: Annotated[dict[str, str], Kind("table of texts")] = Field(
        {}, description="Added to the listener's environment, hence visible to jobs: no secrets here."
    )
    allow_root: bool = Field(
        False, description="Let jobs run as root. Then a job can do anything to this machine."
    )
    orphan_sweep: OrphanSweepSettings = OrphanSweepSettings()
    claim_retry: ClaimRetrySettings = ClaimRetrySettings()


class ServerSettings(Section):
    """`[server]`: where the daemon listens and keeps its state."""

    webhook_listen: Listen = Field(
        "127.0.0.1:8080",
        description="Webhooks and health, nothing else. Put a TLS proxy before it to face the internet.",
    )
    api_socket: File | None = Field(
        None, description="The API's unix socket, mode 0600; default: api.sock in the runtime folder."
    )
    api_listen: OptionalListen = Field(
        None,
        description="The API and the dashboard over TCP, off unless set. Callers need a token (ephemerd token create), "
        "browsers a login link (ephemerd token login). Put a TLS proxy before any other address than loopback.",
    )
    metrics_listen: OptionalListen = Field("127.0.0.1:9464", description="Metrics for Prometheus.")
    store: StoreUrl | None = Field(
        None, description="The database; default: state.db in the state folder. One daemon a store."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Kind("level")] = Field(
        "info",
        description="Least level of log lines: debug, info, warning or error; --log-level goes before it.",
    )
    loop_limit: OptionalDuration = Field(
        2 * MINUTE,
        description="How long the main loop may stand still before the daemon ends itself with code 9, to be "
        "started again by the service manager. Runners live on. At least 1m.",
    )


class RetentionSettings(Section):
    """`[retention]`: how much history is kept. What the daemon still needs is never removed."""

    history: PositiveDuration = Field(
        14 * DAY,
        description="For how long journal and decisions are kept, by whole segments of a day or less; and what "
        "is in quarantine. Delivery ids are kept for 8 days in any case.",
    )
    store_size: Size = Field(
        2 * 1024**3,
        description="Beyond this size of the store its oldest history goes, whatever its age. The open segment "
        "stays.",
    )
    logs: PositiveDuration = Field(
        14 * DAY, description="For how long the logs of runners that are over are kept; 1000 of them at most."
    )
    logs_size: Size = Field(2 * 1024**3, description="Beyond this size of all those logs the oldest go.")


class Settings(Section):
    """The whole configuration."""

    forge: dict[Name, ForgeSettings] = {}
    hosts: dict[Name, HostSettings] = {}
    pools: dict[Name, PoolSettings] = {}
    runner: RunnerSettings = RunnerSettings()
    policy: PolicySettings = PolicySettings()
    retention: RetentionSettings = RetentionSettings()
    server: ServerSettings = ServerSettings()
