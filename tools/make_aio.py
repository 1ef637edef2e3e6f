"""Make `client/aio.py` from `client/sync.py`: the same methods as coroutines.

Run it after editing the synchronous client: `python tools/make_aio.py`. A test fails when the two differ.
"""

import re
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "stoker" / "client"

HEAD = '''"""The asynchronous client. Made from `sync.py` by `tools/make_aio.py`: edit that file, then run the tool."""
'''

REPLACEMENTS = (
    (r"from collections.abc import Iterable, Iterator,", "from collections.abc import AsyncIterator, Iterable,"),
    (r"Iterator\[Event\]", "AsyncIterator[Event]"),
    (r"\bClient\b", "AsyncClient"),
    (r"    def (?!__init__|as_tenant|broker)(?!__)", "    async def "),
    (r"def __enter__", "async def __aenter__"),
    (r"def __exit__", "async def __aexit__"),
    (r"return self\._broker\.execute\(", "return await self._broker.execute_async("),
    (r"raise_refused\(self\.execute\((.*)\)\.refused\)", r"raise_refused((await self.execute(\1)).refused)"),
    (r"= self\.(execute|read_events|kv_keys|kv_get_many)\(", r"= await self.\1("),
    (r"^        self\.(execute|close)\(", r"        await self.\1("),
    (r"return self\.(execute|fail|get_job|get_stats)\((.*)\)\.(\w+)$", r"return (await self.\1(\2)).\3"),
    (r"return self\.(execute|fail)\(", r"return await self.\1("),
)


def made_from(source: str) -> str:
    body = source.split('"""', 2)[2].lstrip("\n")
    body = body[: body.index("\ndef with_changes")].rstrip() + "\n"
    for pattern, replacement in REPLACEMENTS:
        body = re.sub(pattern, replacement, body, flags=re.MULTILINE)
    body = body.replace("import active_context, inject", "import inject")
    body = body.replace("import msgspec\n\n", "").replace("from stoker.model import errors\n", "")
    body = body.replace(
        "from stoker.model import commands as c\n",
        "from stoker.client.sync import raise_refused, schedule_with, traced, traced_steps, with_changes\n"
        "from stoker.model import commands as c\n",
    )
    return HEAD + "\n" + body


if __name__ == "__main__":
    (CLIENT / "aio.py").write_text(made_from((CLIENT / "sync.py").read_text()))
