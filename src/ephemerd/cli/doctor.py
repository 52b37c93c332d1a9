"""`doctor`: look at this machine and at the engines; one line what, one line what to do. Changes nothing."""

from __future__ import annotations

import asyncio

from ephemerd.cli import output
from ephemerd.cli.check import examined
from ephemerd.cli.failure import complain
from ephemerd.cli.options import Config, Json, Set

Row = tuple[str, str, str, str]


def doctor(config: Config = None, override: Set = None, as_json: Json = False) -> int:
    """Check this machine and its engines, with a fix for each finding."""
    from ephemerd.config.findings import Code, exit_code
    from ephemerd.placing import diagnose

    found = examined(config, override or [])
    rows: list[Row] = [
        ("error" if one.code else "warning", one.where, one.what, one.todo) for one in found.findings
    ]
    code = exit_code(found.findings)
    if found.effective is not None:
        engines = asyncio.run(diagnose(found.effective))
        rows += engines
        if not code and any(level == "error" for level, *_ in engines):
            code = Code.ENVIRONMENT
    if as_json:
        keys = ("level", "where", "what", "todo")
        output.emit_json({"findings": [dict(zip(keys, row, strict=True)) for row in rows], "code": int(code)})
        return code
    for level, where, what, todo in rows:
        if level == "ok":
            print(f"ok: {output.clean(where)}: {output.clean(what)}")
        else:
            complain(f"{where}: {what}", todo, word=level)
    if not any(level != "ok" for level, *_ in rows):
        output.note("nothing to mend")
    return code
