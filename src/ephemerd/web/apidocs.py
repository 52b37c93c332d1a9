"""The OpenAPI document for people: one page without scripts, and the generated part of `docs/API.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment

Json = dict[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>API – ephemerd</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 0 auto; padding: 1rem }
code, pre { font: .9em/1.45 ui-monospace, monospace; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .25rem .75rem
.25rem 0; border-top: 1px solid color-mix(in srgb, currentcolor 20%, transparent) }
section section { border-top: 2px solid color-mix(in srgb, currentcolor 30%, transparent); margin-top: 1.5rem }
h3 code { font-size: 1rem } .scroll { overflow-x: auto } .role { font-size: .85rem }
</style></head>
<body><header><h1>{{ info.title }} API</h1><p>Version {{ info.version }} ·
<a href="/api/v1/openapi.json">OpenAPI document</a></p><p>{{ info.description }}</p>
<nav aria-label="Operations"><ul>{% for group in groups %}
<li>{{ group.text }}<ul>{% for one in group.operations %}
<li><a href="#{{ one.name }}"><code>{{ one.method }} {{ one.path }}</code></a> {{ one.summary }}</li>{% endfor %}
</ul></li>{% endfor %}</ul></nav></header>
<main>{% for group in groups %}<section><h2>{{ group.text }}</h2>{% for one in group.operations %}
<section id="{{ one.name }}"><h3><code>{{ one.method }} {{ one.path }}</code></h3>
<p>{{ one.summary }} {{ one.text }}</p><p class="role">{{ one.access }}</p>
{% if one.params %}<div class="scroll"><table><thead><tr><th scope="col">Parameter</th><th scope="col">In</th>
<th scope="col">Value</th><th scope="col">Meaning</th></tr></thead><tbody>{% for param in one.params %}
<tr><td><code>{{ param.name }}</code></td><td>{{ param.where }}</td><td>{{ param.value }}</td>
<td>{{ param.text }}</td></tr>{% endfor %}</tbody></table></div>{% endif %}
{% if one.body %}<p>Body: <a href="#schema-{{ one.body }}"><code>{{ one.body }}</code></a>, as JSON.</p>{% endif %}
<p>Answers: {% for answer in one.answers %}<strong>{{ answer.status }}</strong>
{% if answer.schema %}<a href="#schema-{{ answer.schema }}"><code>{{ answer.schema }}</code></a>{% else %}{{
answer.media }}{% endif %}{{ "; " if not loop.last else "." }}{% endfor %} Problems: {{ one.problems }}.</p>
</section>{% endfor %}</section>{% endfor %}
<section><h2>Shapes</h2>{% for shape in shapes %}<section id="schema-{{ shape.name }}">
<h3><code>{{ shape.name }}</code></h3><p>{{ shape.text }}</p><div class="scroll"><table><thead><tr>
<th scope="col">Field</th><th scope="col">Value</th></tr></thead><tbody>{% for name, value in shape.fields %}
<tr><td><code>{{ name }}</code></td><td>{{ value }}</td></tr>{% endfor %}</tbody></table></div></section>
{% endfor %}</section></main></body></html>
"""


def page(found: Json) -> str:
    """Return the document as a page."""
    template = Environment(autoescape=True).from_string(TEMPLATE)
    return template.render(info=found["info"], groups=_groups(found), shapes=_shapes(found))


def markdown(found: Json) -> str:
    """Return the document as tables: operations by group, then shapes."""
    lines: list[str] = []
    for group in _groups(found):
        lines += [f"### {group['text']}", ""]
        for one in group["operations"]:
            lines += [
                f"#### `{one['method']} {one['path']}`",
                "",
                f"{one['summary']} {one['text']}".strip(),
                "",
            ]
            lines += [one["access"], ""]
            if one["params"]:
                lines += ["| parameter | in | value | meaning |", "|---|---|---|---|"]
                lines += [
                    f"| `{param['name']}` | {param['where']} | {param['value']} | {param['text']} |"
                    for param in one["params"]
                ]
                lines.append("")
            if one["body"]:
                lines += [f"Body: `{one['body']}`.", ""]
            answers = "; ".join(
                f"{answer['status']} `{answer['schema'] or answer['media']}`" for answer in one["answers"]
            )
            lines += [f"Answers: {answers}. Problems: {one['problems']}.", ""]
    lines += ["### Shapes", ""]
    for shape in _shapes(found):
        lines += [f"#### `{shape['name']}`", "", shape["text"], "", "| field | value |", "|---|---|"]
        lines += [f"| `{name}` | {value} |" for name, value in shape["fields"]]
        lines.append("")
    return "\n".join(lines)


def _groups(found: Json) -> list[Json]:
    groups = [{"name": tag["name"], "text": tag["description"], "operations": []} for tag in found["tags"]]
    for path, by_method in found["paths"].items():
        for method in METHODS:
            if method in by_method:
                one = _operation(method, path, by_method[method])
                next(group for group in groups if group["name"] == one["group"])["operations"].append(one)
    return [group for group in groups if group["operations"]]


def _operation(method: str, path: str, one: Json) -> Json:
    answers, problems = [], []
    for status, told in one["responses"].items():
        for media, content in told.get("content", {"nothing": {}}).items():
            if media == "application/problem+json":
                problems.append(status)
            else:
                answers.append({"status": status, "media": media, "schema": _ref(content.get("schema", {}))})
    role = one.get("x-role")
    return {
        "name": one["operationId"],
        "group": one["tags"][0],
        "method": method.upper(),
        "path": path,
        "summary": one["summary"],
        "text": one.get("description", ""),
        "access": f"Needs the role {role}." if role else "Answered to everybody.",
        "params": [
            {
                "name": param["name"],
                "where": param["in"],
                "value": _value(param["schema"]),
                "text": param["description"],
            }
            for param in one.get("parameters", [])
        ],
        "body": _ref(_body_of(one)),
        "answers": answers,
        "problems": ", ".join(problems),
    }


def _body_of(one: Json) -> Json:
    found: Json = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _shapes(found: Json) -> Iterator[Json]:
    for name, schema in found["components"]["schemas"].items():
        yield {
            "name": name,
            "text": " ".join(schema.get("description", "").split()),
            "fields": [(field, _value(inner)) for field, inner in schema.get("properties", {}).items()],
        }


def _ref(schema: Json) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _value(schema: Json) -> str:
    """Say in words what a value is."""
    if "$ref" in schema:
        return _ref(schema)
    if "anyOf" in schema:
        return " or ".join(_value(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(word) or "nothing" for word in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_value(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"table of {_value(schema['additionalProperties'])}"
    return str(kind) + (f", default {schema['default']}" if "default" in schema else "")
