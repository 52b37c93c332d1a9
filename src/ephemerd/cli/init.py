"""`init`: write a first configuration and a webhook secret. Few questions, no secret on the screen."""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ephemerd.cli import output
from ephemerd.cli.asking import Asking
from ephemerd.cli.failure import Exit, Failure, complain

if TYPE_CHECKING:
    from ephemerd.config.findings import Finding
    from ephemerd.config.first import First

PRIVATE = 0o600
SECRET_BYTES = 32
LONGEST_TOKEN = 4096
RUNTIMES = ("process", "docker")
DISCOVERIES = ("webhook", "poll")
WHOSE = "Whose jobs (OWNER/NAME of a repository, or an organization)?"
SCOPE = re.compile(r"repo:[^/:\s]+/[^/:\s]+|(org|enterprise):[^/:\s]+")
ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm"}


Place = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Write here; default: where the daemon looks."),
]
ScopeName = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="Whose jobs: OWNER/NAME, or an organization's name.")
]
Server = Annotated[
    str, typer.Option("--url", metavar="URL", help="API of an Enterprise Server: https://HOST/api/v3.")
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Where the token is, or will be.")
]
TokenStdin = Annotated[
    bool, typer.Option("--token-stdin", help="Read the token from standard input into its file.")
]
AppId = Annotated[int | None, typer.Option("--app-id", metavar="N", help="A GitHub App instead of a token.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--private-key-file", metavar="FILE", help="That App's key, or where it will be."),
]
Discovery = Annotated[
    str,
    typer.Option(
        "--discovery", metavar="HOW", help="How jobs are heard of: webhook, or poll without a port."
    ),
]
Runtime = Annotated[str, typer.Option("--runtime", metavar="RUNTIME", help=f"One of {', '.join(RUNTIMES)}.")]
Application = Annotated[
    Path | None,
    typer.Option(
        "--application",
        metavar="FOLDER",
        help="An unpacked runner application; else the version that the forge expects is downloaded and kept current.",
    ),
]
Image = Annotated[str, typer.Option("--image", metavar="IMAGE", help="Image of the runners, for docker.")]
User = Annotated[str, typer.Option("--user", metavar="ACCOUNT", help="The account that jobs run as.")]
Root = Annotated[bool, typer.Option("--allow-root", help="Let jobs run as root.")]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="LABEL", help="What the runners offer; may be repeated."),
]
Most = Annotated[int, typer.Option("--runners", metavar="N", min=1, help="Most runners at one time.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a configuration that is there.")]


def init(
    config: Place = None,
    scope: ScopeName = "",
    url: Server = "",
    token_file: TokenFile = None,
    token_stdin: TokenStdin = False,
    app_id: AppId = None,
    private_key_file: KeyFile = None,
    discovery: Discovery = "",
    runtime: Runtime = "",
    application: Application = None,
    image: Image = "",
    user: User = "",
    allow_root: Root = False,
    label: Label = None,
    runners: Most = 4,
    yes: Yes = False,
    force: Force = False,
) -> int:
    """Write a first, commented configuration and a secret for webhooks, and say what comes next."""
    from ephemerd.config.first import DEFAULT_URL, First

    path = _place(config, force=force)
    asking = Asking(not yes)
    if asking.possible:
        output.note(f"{path} will be written after the last question; Enter takes what is in brackets")
    scope = _scope(scope or asking.text(WHOSE, option="--scope", check=_wrong_scope))
    discovery = discovery or asking.choice("How to hear of jobs, webhook or poll?", DISCOVERIES)
    _one_of("--discovery", discovery, DISCOVERIES)
    runtime = runtime or asking.choice("Runtime, process or docker?", RUNTIMES)
    _one_of("--runtime", runtime, RUNTIMES)
    process = runtime == "process"
    if process and not user and not allow_root and os.geteuid() == 0:
        question = "Which account do jobs run as (not root)?"
        user = asking.text(question, option="--user", check=_wrong_account)
    if app_id is None and token_file is None and private_key_file is None and not token_stdin:
        app_id, private_key_file = _app(path, asking)
    token = _credential(app_id, private_key_file, token_file, path, asking, stdin=token_stdin)
    first = First(
        scope=scope,
        url=url or DEFAULT_URL,
        credential_file=token.path,
        app_id=app_id,
        webhook_secret_file=path.with_name("webhook") if discovery == "webhook" else None,
        pool="macos" if sys.platform == "darwin" and process else "linux",
        labels=tuple(label or _labels(here=process)),
        runtime=runtime,
        user=user,
        allow_root=allow_root and process,
        image=image,
        application="download" if application is None else str(application.expanduser().absolute()),
        runners=runners,
    )
    left = _write(path, first, token)
    _tell(path, first, left, named=config is not None)
    return Exit.DONE


@dataclass(frozen=True, slots=True)
class _Token:
    """Where the token's file is, and what to put there; nothing where `value` is empty."""

    path: Path
    value: str = ""

    def __repr__(self) -> str:
        return f"_Token({str(self.path)!r})"


def _place(config: Path | None, *, force: bool) -> Path:
    """Return where to write; Failure 2 where a file is there that may not be replaced."""
    from ephemerd.config.paths import SYSTEM_CONFIG, config_candidates, is_root

    path = config or (SYSTEM_CONFIG if is_root() else config_candidates(os.environ)[0])
    path = path.expanduser().absolute()
    if path.exists() and not force:
        raise Failure(
            Exit.USAGE, f"{path} is there already", "add --force to replace it, or name another by --config"
        )
    return path


def _wrong_scope(answer: str) -> str:
    if SCOPE.fullmatch(_scope(answer)):
        return ""
    return "write OWNER/NAME for a repository, NAME for an organization, enterprise:NAME for an enterprise"


def _wrong_account(name: str) -> str:
    import pwd

    try:
        root = pwd.getpwnam(name).pw_uid == 0
    except KeyError:
        made = f"useradd --create-home {output.clean(name)}"
        return f"there is no such account here; make it by '{made}', or name another"
    return "that is root; a job could do anything to this machine" if root else ""


def _app(config: Path, asking: Asking) -> tuple[int | None, Path | None]:
    """Ask for a GitHub App; nothing where a token is there already, or is to be used."""
    if config.with_name("token").exists():
        return None, None
    wrong = "it is a number, on the App's page"
    number = asking.optional(
        "GitHub App's ID (empty: a token)?", check=lambda answer: "" if answer.isdecimal() else wrong
    )
    if not number:
        return None, None
    return int(number), Path(
        asking.text("File of its private key?", default=str(config.with_name("app.pem")))
    )


def _scope(scope: str) -> str:
    """Return a scope as the configuration has it: a name with a slash is a repository."""
    if ":" in scope:
        return scope
    return f"repo:{scope}" if "/" in scope else f"org:{scope}"


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise Failure(Exit.USAGE, f"{option} {value!r} is not known", f"use one of {', '.join(known)}")


def _labels(*, here: bool) -> list[str]:
    """Return what runners of this machine offer; a container is Linux."""
    system, machine = platform.system().lower() if here else "linux", platform.machine().lower()
    return ["self-hosted", {"darwin": "macos"}.get(system, system), ARCHITECTURES.get(machine, machine)]


def _credential(
    app_id: int | None,
    key_file: Path | None,
    token_file: Path | None,
    config: Path,
    asking: Asking,
    *,
    stdin: bool,
) -> _Token:
    """Return the file of the App's key, which GitHub hands out as a file, or of the token."""
    if app_id is None:
        if key_file is not None:
            raise Failure(Exit.USAGE, "--private-key-file is given without --app-id", "add --app-id")
        return _token(token_file, config, asking, stdin=stdin)
    if token_file is not None or stdin:
        raise Failure(Exit.USAGE, "an App and a token are both given", "keep one of them")
    return _Token((key_file or config.with_name("app.pem")).expanduser().absolute())


def _token(named: Path | None, config: Path, asking: Asking, *, stdin: bool) -> _Token:
    """Find the token; it comes from a file, standard input or a hidden answer, never from the command line."""
    path = (named or config.with_name("token")).expanduser().absolute()
    if path.exists():
        if stdin:
            raise Failure(Exit.USAGE, f"{path} is there already", "leave --token-stdin out, or move it away")
        return _Token(path)
    value = sys.stdin.readline(LONGEST_TOKEN).strip() if stdin else ""
    if stdin and not value:
        raise Failure(
            Exit.CREDENTIALS, "there is no token on standard input", "feed it the token on one line"
        )
    return _Token(path, value or asking.hidden(f"Token (not shown; empty: put it into {path} later)?"))


def _write(path: Path, first: First, token: _Token) -> tuple[Finding, ...]:
    """Write all files, each whole or not at all; return what `check` still finds. Failure 3 or 5 leaves none
    of a configuration."""
    from ephemerd.config.effective import examine
    from ephemerd.config.findings import Code
    from ephemerd.config.first import text

    beside = path.with_name(f"{path.name}.{os.getpid()}")
    made: list[Path] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if token.value and private_file(token.path, token.value + "\n"):
            made.append(token.path)
        hook = first.webhook_secret_file
        if hook is not None and private_file(hook, secrets.token_hex(SECRET_BYTES) + "\n"):
            made.append(hook)
        beside.unlink(missing_ok=True)
        made.append(beside)
        private_file(beside, text(first))
        wrong = [one for one in examine(beside, os.environ).findings if one.code == Code.CONFIGURATION]
        if wrong:
            for file in made:
                file.unlink(missing_ok=True)
            raise Failure(Exit.CONFIGURATION, f"{_key(wrong[0].where)}: {wrong[0].what}", wrong[0].todo)
        beside.replace(path)
    except OSError as error:
        for file in made:
            file.unlink(missing_ok=True)
        what = f"{error.filename or path} cannot be written: {error.strerror}"
        raise Failure(Exit.ENVIRONMENT, what, "choose another place by --config, or ask root") from None
    return examine(path, os.environ).findings


def _key(where: str) -> str:
    """Return the key alone: the file that it stood in is not there any more."""
    return where.partition(" (")[0]


def private_file(path: Path, text: str) -> bool:
    """Make a file that its owner alone can read; False where there is one already, which stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return True


def _tell(path: Path, first: First, left: tuple[Finding, ...], *, named: bool) -> None:
    """Say what was written, what is left to do, and the next command."""
    lines = [f"wrote {path}"]
    if first.webhook_secret_file is not None:
        lines += [
            f"the secret for webhooks is in {first.webhook_secret_file}",
            "GitHub wants it too, under Settings, Webhooks: content type application/json, the event 'Workflow jobs',",
            "  and an address that leads to port 8080 of this machine, such as https://YOUR-NAME/webhooks/github",
        ]
    for line in lines:
        print(output.clean(line))
    sys.stdout.flush()
    for one in left:
        complain(f"{one.where}: {one.what}", one.todo, word="to do" if one.code else "warning")
    print(output.clean(f"next: ephemerd doctor{f' --config {path}' if named else ''}"), flush=True)
