"""What tests share that run gpurun and gpurund as processes: `import world`, with --build among the
test's words. arguments.py: where the parts are; processes.py: who lives; run.py: gpurun as a
process; server.py: a gpurund of the test's own; transports.py: what sessions go over; wire.py: links with a
delay."""
import signal
import unittest

from .arguments import ARGS, DRIVERS, GPUCTL, GPURUN, GPURUND, HOME, SECONDS  # noqa: F401
from .processes import (alive, can_be, can_lend_users, children, command_line,  # noqa: F401
                        descriptors, name_of, running, server_of, stat_fields, status_of, until, wait)
from .run import (Statistics, client_environment, crash_kills, environment, gpurun,  # noqa: F401
                  holdings, measured, start, without_meeting)
from .server import THREADS_ALONE, Gpurund  # noqa: F401
from .starting import start_trips  # noqa: F401
from .wire import DelayedLink  # noqa: F401


def main():
    # A shell's `&` starts what it starts with these ignored, and so would be the programs of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    unittest.main(verbosity=2)
