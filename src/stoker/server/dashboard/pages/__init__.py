"""The handlers of the pages: each asks the queue, and hands the replies to its template."""
