"""Integrations with web frameworks: each module knows one of them, and the rest of Stoker knows none."""
