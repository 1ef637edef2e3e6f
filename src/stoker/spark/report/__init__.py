"""The report of a lake: its numbers, charts of them, and one page with both."""
