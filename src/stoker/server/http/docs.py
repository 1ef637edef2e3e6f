"""The documentation page, made from the API's description: no scripts, nothing from other sites, readable in any
browser.
"""

from html import escape
from typing import Any

import msgspec

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #b5451b; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .7rem; overflow-x: auto; border-radius: 6px; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: .3rem .7rem; }
summary { cursor: pointer; } summary b { display: inline-block; min-width: 4.5rem; color: var(--accent); }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
"""


def page(description: dict[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            sections.setdefault(operation["tags"][0], []).append(_operation(method.upper(), path, operation))
    info = description["info"]
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}</title><link rel=stylesheet href='/docs/style.css'></head><body>",
        f"<h1>{escape(info['title'])}</h1><p>{escape(info['description'])}</p>",
        "<p>The same for programs: <a href='/openapi.json'>openapi.json</a>, OpenAPI 3.1.</p>",
    ]
    for tag in description["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        parts += sections.get(tag["name"], [])
    return "\n".join([*parts, "</body></html>"])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<details><summary><b>{method}</b> <code>{escape(path)}</code> {escape(operation['summary'])}</summary>"]
    if operation.get("description"):
        parts.append(f"<p>{escape(operation['description'])}</p>")
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
            f"<td>{escape(one.get('description', ''))}</td></tr>"
            for one in parameters
        ]
        parts.append(f"<table>{''.join(rows)}</table>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts += _example(f"Body, {kind}", content)
    for status, response in operation["responses"].items():
        for content in response.get("content", {}).values():
            parts += _example(f"Answer, {status}", content)
    return "".join([*parts, "</details>"])


def _example(title: str, content: dict[str, Any]) -> list[str]:
    if "example" not in content:
        return []
    example = content["example"]
    text = example if isinstance(example, str) else msgspec.json.format(msgspec.json.encode(example), indent=2).decode()
    return [f"<p>{escape(title)}</p><pre>{escape(text)}</pre>"]
