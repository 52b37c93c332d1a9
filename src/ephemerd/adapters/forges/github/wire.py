"""GitHub's REST API as pure functions: what to send, and what an answer says in the words of the domain.

Sources: GitHub's REST reference (self-hosted runners, workflow jobs), where nothing else is named. No I/O and no
clock. Runs and what is listed are in `runs`; what went wrong, and what to do about it, is in `faults`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import msgspec

from ephemerd.adapters.forges.github.jobs import MAX_LABELS, JobWire, job_report, repository_name
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import JobReport
from ephemerd.ports.errors import Refused, RetryLater
from ephemerd.ports.forge import ForgeRunner, Registration

API_VERSION = "2022-11-28"  # supported for 24 months after its successor of March 2026
ACCEPT = "application/vnd.github+json"
WORK_FOLDER = "_work"
DEFAULT_GROUP = 1  # "Default"; required even where there are no groups (cloudbase/garm, ubicloud/ubicloud)
PER_PAGE = 100
MAX_PAGES = 120  # a runner group holds 10,000 registrations at most
APP = "/app"  # the account of requests that a GitHub App signs itself
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))', re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `target` is a path with its query below the base URL, or a checked absolute URL.

    endpoint  method and path as a template, for metrics and messages
    about     what it concerns, for messages
    hint      what to check where GitHub answers 404, or "" where 404 means that the one thing is not there
    conditional  whether it is asked again and again, so that its answer is worth keeping for a 304. Such listings
              are the first to yield where little is left of a limit
    whole     whether that answer is kept with its body, so that a 304 gives it once more; else a 304 is told as such
    account   the path whose owner's token is to be sent, such as `/repos/OWNER/NAME` or `/orgs/NAME`
    reserved  whether a read is part of a registration or fence, and may use what is kept for these
    """

    method: str
    target: str
    endpoint: str
    about: str
    hint: str = ""
    body: bytes = field(default=b"", repr=False)
    account: str = ""
    conditional: bool = False
    whole: bool = True
    reserved: bool = False

    @property
    def writes(self) -> bool:
        """Whether it creates or destroys, and so must never be repeated."""
        return self.method != "GET"


def headers(user_agent: str, token: str, *, body: bool) -> dict[str, str]:
    """Return the headers of a request; `User-Agent` is mandatory at GitHub, the version is pinned."""
    named = {
        "Accept": ACCEPT,
        "Authorization": f"Bearer {token}",
        "User-Agent": user_agent,
        "X-GitHub-Api-Version": API_VERSION,
    }
    if body:
        named["Content-Type"] = "application/json"
    return named


# -- what to send -------------------------------------------------------------------------------------------


def register(scope: Scope, name: str, labels: tuple[str, ...], group: int = DEFAULT_GROUP) -> Request:
    """Ask for a just-in-time configuration. `Refused` where GitHub would refuse name or labels anyway."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name!r} is no name for a runner: at most 63 of a-z, 0-9 and -")
    if not 1 <= len(labels) <= MAX_LABELS:
        raise Refused(f"runner {name} has {len(labels)} labels; GitHub takes 1 to {MAX_LABELS}")
    document = {"name": name, "runner_group_id": group, "labels": list(labels), "work_folder": WORK_FOLDER}
    return Request(
        "POST",
        f"{scope_path(scope)}/actions/runners/generate-jitconfig",
        "POST {scope}/actions/runners/generate-jitconfig",
        f"runner {name} in {scope.path}",
        f"check that {scope.path} exists, that it has runner group {group}, and that the token may administer "
        "its runners (Administration: write)",
        msgspec.json.encode(document),
        account=scope_path(scope),
    )


def get_runner(scope: Scope, registration: int) -> Request:
    """Ask for one registration; 404 means that there is none (or that it may not be seen)."""
    return Request(
        "GET",
        f"{scope_path(scope)}/actions/runners/{registration:d}",
        "GET {scope}/actions/runners/{id}",
        f"registration {registration} in {scope.path}",
        account=scope_path(scope),
    )


def delete_runner(scope: Scope, registration: int) -> Request:
    """Ask to delete one registration: the fence."""
    return Request(
        "DELETE",
        f"{scope_path(scope)}/actions/runners/{registration:d}",
        "DELETE {scope}/actions/runners/{id}",
        f"registration {registration} in {scope.path}",
        account=scope_path(scope),
    )


def list_runners(scope: Scope, name: str = "") -> Request:
    """Ask for the registrations of a scope, or for those of one name.

    `name` is documented without saying whether it matches exactly: compare the answer's names.
    """
    query = urlencode({"name": name, "per_page": PER_PAGE} if name else {"per_page": PER_PAGE})
    return Request(
        "GET",
        f"{scope_path(scope)}/actions/runners?{query}",
        "GET {scope}/actions/runners",
        f"runner {name} in {scope.path}" if name else f"the runners of {scope.path}",
        f"check that {scope.path} exists and that the token may administer its runners (Administration: write)",
        account=scope_path(scope),
        conditional=not name,
    )


def get_repository(repository: str) -> Request:
    """Ask for the repository itself: whether it is there and to be seen at all."""
    return Request(
        "GET",
        repository_path(repository),
        "GET /repos/{owner}/{repo}",
        f"repository {repository}",
        f"check that {repository} exists and that the token may read it",
        account=repository_path(repository),
    )


def get_job(key: JobKey) -> Request:
    """Ask for one job."""
    return Request(
        "GET",
        f"{repository_path(key.repository)}/actions/jobs/{key.id:d}",
        "GET /repos/{owner}/{repo}/actions/jobs/{id}",
        f"job {key.id} of {key.repository}",
        account=repository_path(key.repository),
    )


def scope_path(scope: Scope) -> str:
    """Return the path below which a scope's runners lie; `Refused` for a scope that GitHub does not know."""
    if scope.kind == "repo":
        return repository_path(scope.target)
    plural = {"org": "orgs", "enterprise": "enterprises"}.get(scope.kind)
    if plural is None or not _SEGMENT.fullmatch(scope.target) or scope.target in {".", ".."}:
        raise Refused(f"scope {scope.path!r} is none of repo:OWNER/NAME, org:NAME, enterprise:NAME")
    return f"/{plural}/{quote(scope.target, safe='')}"


def repository_path(repository: str) -> str:
    """Return the path of a repository; `Refused` where the text is no `owner/name`."""
    if repository_name(repository) is None:
        raise Refused(f"{repository!r} is no repository; it is written OWNER/NAME")
    return "/repos/" + "/".join(quote(part, safe="") for part in repository.split("/"))


# -- where to go on -----------------------------------------------------------------------------------------


def base_url(url: str) -> str:
    """Return the API's base URL without a trailing slash; `Refused` where the text is none.

    The web address of github.com is taken for its API.
    """
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise Refused("the forge's url must be like https://api.github.com or https://HOST/api/v3")
    if parts.username is not None or parts.password is not None:
        raise Refused("the forge's url must hold no user or password; set token_file")
    if parts.hostname in {"github.com", "www.github.com"}:
        return "https://api.github.com"
    return url.strip().rstrip("/")


def absolute(base: str, request: Request) -> str:
    """Return the URL to send a request to."""
    return base + request.target if request.target.startswith("/") else request.target


def moved(base: str, request: Request, location: str) -> Request:
    """Return the same request at another place of the same origin; `Refused` for any other origin.

    A token must never travel to where an answer points. The path may differ: GitHub's links say
    `/repositories/ID/…` for what was asked as `/repos/OWNER/NAME/…`.
    """
    url = urljoin(absolute(base, request), location)
    if _origin(url) != _origin(base):
        raise Refused(
            f"{request.endpoint} was answered with a link to another host than {base}; "
            "set the forge's url to the address by which GitHub names itself"
        )
    return replace(request, target=url)


def next_page(base: str, request: Request, named: Mapping[str, str]) -> Request | None:
    """Return the request for the next page by the `Link` header; None on the last page."""
    for target, parameters in _LINK.findall(named.get("link", "")):
        for quoted, plain in _REL.findall(parameters):
            if "next" in (quoted or plain).lower().split():
                return moved(base, request, target)
    return None


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.password is not None:
        return None
    return parts.scheme, (parts.hostname or ""), port or {"http": 80, "https": 443}.get(parts.scheme, 0)


# -- what an answer says ------------------------------------------------------------------------------------


class _Label(msgspec.Struct):
    name: Any = None


class _Runner(msgspec.Struct):
    id: int
    name: str
    busy: bool
    status: Any = None
    labels: list[_Label] | None = None
    version: Any = msgspec.UNSET


class _RunnerPage(msgspec.Struct):
    runners: list[_Runner]


class _Named(msgspec.Struct):
    id: int


class _Registered(msgspec.Struct):
    runner: _Named
    encoded_jit_config: str


def read_registration(request: Request, answer: Answer) -> Registration:
    """Read what registering gave; `RetryLater` where it is not usable (the registration may exist)."""
    found = _registration(read(request, answer, _Registered))
    if found is None:
        raise RetryLater(f"GitHub answered {request.endpoint} without a usable configuration")
    return found


def read_runner(request: Request, answer: Answer) -> ForgeRunner:
    """Read one registration."""
    return _runner(read(request, answer, _Runner))


def read_runners(request: Request, answer: Answer) -> list[ForgeRunner]:
    """Read one page of registrations."""
    return [_runner(entry) for entry in read(request, answer, _RunnerPage).runners]


def read_job(request: Request, answer: Answer, key: JobKey) -> JobReport:
    """Read one job; `Refused` where it is one that we cannot use, `RetryLater` where it is another."""
    report = job_report(read(request, answer, JobWire), key.forge, key.repository)
    if isinstance(report, str):
        raise Refused(f"GitHub's answer on {request.about} is not usable: {report}")
    if report.key != key:
        raise RetryLater(f"GitHub answered {request.about} with another job")
    return report


def _registration(answer: _Registered) -> Registration | None:
    credential = answer.encoded_jit_config
    sound = bool(credential) and credential.isascii() and credential.isprintable()
    return Registration(answer.runner.id, credential) if sound else None


def _runner(entry: _Runner) -> ForgeRunner:
    labels = [label.name for label in entry.labels or [] if isinstance(label.name, str)]
    connected = None if entry.version is msgspec.UNSET else entry.version is not None
    return ForgeRunner(entry.id, entry.name, entry.status == "online", entry.busy, tuple(labels), connected)


def read(request: Request, answer: Answer, kind: type[T]) -> T:
    """Decode a body; `RetryLater` where it is not what it should be."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.ValidationError as error:
        reason = str(error)  # names a path and types, never a value
    except (msgspec.DecodeError, RecursionError):
        reason = "no JSON"
    raise RetryLater(f"GitHub's answer to {request.endpoint} on {request.about} is not understood: {reason}")
