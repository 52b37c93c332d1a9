"""The operations on runners' logs: which there are, and one piece of one of them."""

from __future__ import annotations

from starlette.responses import Response

from ephemerd.app.logs import LEAST, MOST, Logs, NoLogs
from ephemerd.ports.views import LogPieceView, LogsView
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.operations import PREFIX, Given, Number, Operation, Param
from ephemerd.web.views import RUNNER


def log_operations(logs: Logs) -> list[Operation]:
    """Declare them; `start` and `most` count bytes."""

    async def files(given: Given) -> Response:
        try:
            return json_answer(await logs.files(given.text("id")))
        except NoLogs as error:
            return problem(404, str(error), near=[])

    async def piece(given: Given) -> Response:
        try:
            view = await logs.read(
                given.text("id"), given.text("name"), given.number("start"), given.number("most")
            )
        except NoLogs as error:
            return problem(404, str(error), near=[])
        return json_answer(view)

    path = f"{PREFIX}/runners/{{id}}/logs"
    return [
        Operation(
            "logs", "GET", path, "Which logs of a runner are kept.", files, {200: LogsView}, params=(RUNNER,)
        ),
        Operation(
            *("log", "GET", f"{path}/{{name}}", "Whole lines of one log, secrets hidden."),
            piece,
            {200: LogPieceView},
            params=(
                RUNNER,
                Param("name", "The log's name, as the list of logs has it.", path=True, example="output"),
                Number("start", "The byte to read from: the `next` of the piece before."),
                Number("most", "Most bytes of the piece.", default=MOST, least=LEAST, most=MOST),
            ),
        ),
    ]
