"""Reports of sanitizers, of every process that a command starts: each goes into a file, whatever
becomes of the process's own output and exit status."""
import contextlib
import glob
import os
import re
import tempfile

# Under gpurun our library stands before all others in the list of libraries, the sanitizer's too.
# The session of our client library lives until the process ends, and its threads with it.
# In a process that has both, UndefinedBehaviorSanitizer does not find its log_path with g++ 12 (with
# clang it does): it ends the process by abort(), which AddressSanitizer reports, with the stack.
OPTIONS = {"ASAN_OPTIONS": "verify_asan_link_order=0:handle_abort=1",
           "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
           # A process with threads would else sleep for a second before it ends. One with a report
           # ends by it, as with AddressSanitizer: what names functions for it is a child of gpurun's
           # own otherwise, for which gpurun waits. It takes a send for a read when that has returned: by
           # then the peer may have acknowledged the bytes, which the kernel has copied, and their
           # place in the log be another record's.
           "TSAN_OPTIONS": "report_thread_leaks=0:atexit_sleep_ms=20:halt_on_error=1:intercept_send=0"}


# A leak check says so of a thread that ends, or begins, under its eyes. It then cannot see what that
# thread's stack holds, and takes it for leaked: what such a check finds is no finding.
UNSEEN_THREAD = re.compile(r"^==.*==(Unable to get registers from thread|Could not attach to thread|"
                           r"Running thread \d+ was not suspended\.) .*\n", re.M)
ERROR = re.compile(r"(?:ERROR|WARNING): (\w+Sanitizer)")


def finding(text):
    """What of one process's report counts; empty: nothing."""
    if not UNSEEN_THREAD.search(text):
        return text
    rest = UNSEEN_THREAD.sub("", text)
    only_leaks = all(kind == "LeakSanitizer" for kind in ERROR.findall(rest))
    return "" if only_leaks and "runtime error" not in rest else rest


class Reports:
    def __init__(self, folder):
        self.folder = folder

    def environment(self, base):
        """`base`, in which a process is told to leave its reports here; what it said already stays."""
        where = f"log_path={self.folder}/report:log_exe_name=1"
        added = {name: ":".join(filter(None, (options, base.get(name), where)))
                 for name, options in OPTIONS.items()}
        return {**base, **added}

    def found(self):
        """Process name -> what was reported by processes of that name."""
        texts = {}
        for path in sorted(glob.glob(glob.escape(self.folder) + "/report.*")):
            name = os.path.basename(path).split(".", 1)[1].rpartition(".")[0]
            with open(path, encoding="utf-8", errors="replace") as file:
                text = finding(file.read())
            if text.strip():
                texts[name] = texts.get(name, "") + text
        return texts


@contextlib.contextmanager
def collected():
    """A folder for reports that everybody may write to: a worker of root's daemon is another user."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Reports(folder)
