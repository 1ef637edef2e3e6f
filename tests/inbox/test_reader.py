"""A reader pushes every committed row once, whatever happens to it, to the queue or to the rows."""

import pytest

from tests.inbox.stories import STORIES, Story
from tests.inbox.world import InboxWorld


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_reader_keeps_its_promise(world: InboxWorld, story: Story):
    story(world)
