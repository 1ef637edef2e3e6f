"""What people ask about an inbox: how many rows there are, and why rows were set aside."""

from stoker.inbox.schema import check_format, has_inbox, opened
from stoker.inbox.table import COUNT_MAX, STATUS, InboxStatus

# The rows that were set aside, latest first.
REFUSED = "SELECT id, error FROM stoker_inbox WHERE error IS NOT NULL ORDER BY id DESC LIMIT %s"


def look(url: str, refused_max: int) -> tuple[InboxStatus, list[tuple[int, str]]]:
    """The numbers, and ids and errors of rows that were set aside. Raises if there is no inbox."""
    with opened(url) as connection:
        if not has_inbox(connection):
            check_format(None, False)
        found = connection.execute(STATUS.encode(), {"most": COUNT_MAX}).fetchone()
        assert found is not None
        return InboxStatus(*found), connection.execute(REFUSED, (refused_max,)).fetchall()
