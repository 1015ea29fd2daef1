"""World: shared parts of tests that run gpurun and gpurund as processes. Use `import world`, with
--build among the test's words. Modules: arguments.py (paths of the parts), processes.py (processes
from outside), run.py (gpurun as a process), server.py (a gpurund), starting.py (round trips of a
start), transports.py (transports of sessions), wire.py (links with a delay)."""
import signal
import unittest

from .arguments import ARGS, DRIVERS, GPUCTL, GPURUN, GPURUND, HOME, SECONDS  # noqa: F401
from .processes import (alive, can_be, can_lend_users, children, command_line,  # noqa: F401
                        descriptors, is_spare, name_of, running, server_of, stat_fields, status_of, until, wait)
from .run import (Statistics, client_environment, crash_kills, environment, gpurun,  # noqa: F401
                  holdings, measured, start, without_meeting)
from .server import THREADS_ALONE, Gpurund  # noqa: F401
from .starting import start_trips  # noqa: F401
from .wire import DelayedLink  # noqa: F401


def main():
    # A shell starts its `&` processes with these signals ignored, and the programs of a test would
    # inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    unittest.main(verbosity=2)
