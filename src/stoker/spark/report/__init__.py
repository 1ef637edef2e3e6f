"""What a lake tells after an incident: its numbers, charts of them, and one page with both."""
