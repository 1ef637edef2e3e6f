"""Workers: they pull jobs, run handlers in coroutines, threads and processes, and settle what came of it.

A worker knows clients and the model; how a function becomes a handler is the business of `stoker.app`.
"""
