"""What all tests need of their process."""

import signal

# A process that was started in the background ignores Ctrl-C, and hands that on to its children: tests that send it to
# themselves or to a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
