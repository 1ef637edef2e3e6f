"""The newest report of the pipeline, as it was written."""

import asyncio

from stoker.model.errors import NotFound
from stoker.server.dashboard.lake import read_report
from stoker.server.dashboard.page import GUARDS, POLICY_HEADER, Answer, DashboardPage

POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""A report is one file with its style inside, made by another program, so the policy of our own pages would show it
bare. In a sandbox its styles work, but it has no scripts, no forms, and an origin of its own: it cannot reach this
dashboard or its cookies, whatever is in the file.
"""


async def report(page: DashboardPage) -> Answer:
    if not page.settings.lake:
        raise NotFound("this dashboard knows no lake: set dashboard.lake to its directory")
    body = await asyncio.to_thread(read_report, page.settings.lake)
    headers = [(name, POLICY.encode() if name == POLICY_HEADER else value) for name, value in GUARDS]
    return Answer(body, headers=headers)
