"""Sanitizer reports of every process that a command starts. Each goes into a file, independent of the
process's own output and exit status."""
import contextlib
import glob
import os
import re
import tempfile

# Under gpurun our library comes before all others in the list of libraries, also before the sanitizer's. The
# session of our client library lives until the process ends, and its threads with it. With g++ 12,
# UndefinedBehaviorSanitizer does not find its log_path in a process that has both (with clang it does). It
# ends the process by abort(), which AddressSanitizer reports with the stack.
OPTIONS = {"ASAN_OPTIONS": "verify_asan_link_order=0:handle_abort=1",
           "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
           # Without atexit_sleep_ms a process with threads would sleep for a second before it ends. A report
           # ends its process, as with AddressSanitizer. Otherwise the symbolizer is a child of gpurun's own,
           # and gpurun waits for it. ThreadSanitizer counts a send as a read of its bytes at its return. By
           # then the peer may have acknowledged the bytes, which the kernel has copied, and another record
           # may use their place in the log.
           "TSAN_OPTIONS": "report_thread_leaks=0:atexit_sleep_ms=20:halt_on_error=1:intercept_send=0"}
# Reports that ThreadSanitizer does not make. OpenSSL is built without it, so it does not see the atomic
# operations by which OpenSSL's table of algorithms is read without a lock. It sees the table's memcpy and
# memcmp, and would count them as a race. A list in our library (__tsan_default_suppressions) does not reach a
# program that lists the sanitizer's library before ours.
THREAD_SUPPRESSIONS = "race:^ossl_ht_\n"


# A leak check prints this about a thread that begins or ends during the check. It cannot see what that
# thread's stack holds, and reports it as leaked. Such a finding does not count.
UNSEEN_THREAD = re.compile(r"^==.*==(Unable to get registers from thread|Could not attach to thread|"
                           r"Running thread \d+ was not suspended\.) .*\n", re.M)
ERROR = re.compile(r"(?:ERROR|WARNING): (\w+Sanitizer)")


def finding(text):
    """The part of one process's report that counts. Empty: none."""
    if not UNSEEN_THREAD.search(text):
        return text
    rest = UNSEEN_THREAD.sub("", text)
    only_leaks = all(kind == "LeakSanitizer" for kind in ERROR.findall(rest))
    return "" if only_leaks and "runtime error" not in rest else rest


class Reports:
    def __init__(self, folder):
        self.folder = folder
        self.suppressions = os.path.join(folder, "suppressions")
        with open(self.suppressions, "w", encoding="ascii") as file:
            file.write(THREAD_SUPPRESSIONS)
        os.chmod(self.suppressions, 0o444)

    def environment(self, base):
        """`base`, with options that make a process write its reports here. Options of `base` stay in effect."""
        where = f"log_path={self.folder}/report:log_exe_name=1"
        added = {name: ":".join(filter(None, (options, base.get(name), where)))
                 for name, options in OPTIONS.items()}
        added["TSAN_OPTIONS"] += f":suppressions={self.suppressions}"
        return {**base, **added}

    def found(self):
        """Process name -> the reports of processes of that name."""
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
    """A folder for reports to which everyone may write, because a worker of root's daemon runs as another
    user."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Reports(folder)
