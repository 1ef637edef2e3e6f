"""What `stoker doctor --inbox` checks: whether rows get through, and which ones were set aside."""

from stoker.cli.formatting import plain
from stoker.inbox.upkeep import look
from stoker.maintenance import Finding
from stoker.model.errors import StokerError
from stoker.model.wording import lasting, many

OLD_S = 60.0
"""A row that has waited longer is read by no reader, or refused for now."""
SHOWN_MAX = 5


def check_inbox(url: str) -> list[Finding]:
    try:
        status, refused = look(url, SHOWN_MAX)
    except StokerError as error:
        return [Finding("inbox", "problem", plain(error.message), "nothing else of the inbox could be checked")]
    oldest = f", the oldest for {lasting(status.oldest_s * 1_000)}" if status.waiting + status.sending else ""
    found = f"{many(status.waiting, 'row')} waiting, {status.sending} being sent{oldest}"
    if status.oldest_s > OLD_S:
        advice = "start a reader (stoker inbox run), or read in its log why the queue takes no rows"
        findings = [Finding("inbox", "warning", found, advice)]
    else:
        findings = [Finding("inbox", "ok", found)]
    if refused:
        shown = "; ".join(f"row {id}: {plain(error)}" for id, error in refused)
        findings.append(
            Finding(
                "inbox refused",
                "warning",
                f"{many(status.refused, 'row')} set aside, the latest: {shown}",
                "mend their cause; then UPDATE stoker_inbox SET error = NULL, batch = NULL WHERE id = ..., or DELETE"
                " them. A row that says unknown may be a job already: look for it first",
            )
        )
    return findings
