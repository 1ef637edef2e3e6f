"""Workers pull jobs, run handlers in coroutines, threads and processes, and settle the outcomes.

A worker knows clients and the model; `stoker.app` turns a function into a handler.
"""
