"""Fetching: gets the packages that tests need from PyPI and Debian. A machine without network is
not a failure of ours. The test is then a skip that names what was missing, and tools/check names
and counts it."""
import os
import re
import subprocess
import sys

SKIPPED = 77  # As ctest's SKIP_RETURN_CODE.
# A network that drops all packets must not use up a fixture's own time limit.
PIP = ["-q", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"]
APT = ["-qq", "-oAcquire::Retries=1", "-oAcquire::http::Timeout=20"]


def skip(what, why):
    print(f"skipped: {what} could not be fetched: {why}")
    sys.exit(SKIPPED)


def reason(output):
    """The most informative line, because without a connection both tools end with "no such
    package"."""
    said = [line.strip() for line in output.splitlines() if line.strip()]
    cause = re.compile(r"refused|resolv|resolution|timed out|unreachable|could not connect|failed to fetch",
                       re.IGNORECASE)
    return next(filter(cause.search, said), said[-1] if said else "")


def fetch(what, *commands, **options):
    """Runs the commands. Ends this process as a skip if one fails."""
    output = ""
    for command in commands:
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", stdin=subprocess.DEVNULL, **options)
        except FileNotFoundError as error:  # This machine has no apt.
            skip(what, error)
        sys.stdout.write(done.stdout)
        output += done.stdout
        if done.returncode != 0:
            skip(what, reason(output) or f"exit status {done.returncode}")


def make_environment(folder):
    """Makes a virtual environment there, unless it exists. Returns the words that install into it."""
    if not os.path.exists(os.path.join(folder, "bin/pip")):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return [os.path.join(folder, "bin/pip"), *PIP, "install"]
