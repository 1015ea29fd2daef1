#!/usr/bin/env python3
"""Completions: the files of bash, zsh and fish have the options that --help prints, and complete as a user
expects. Each shell that is installed runs its file.

usage: shell_completions_test.py SOURCE BIN
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
FOLDER = f"{SOURCE}/packaging/completions"
LINES = {  # What is typed, and words that must and must not be among the answers.
    "gpurun --tim": ({"--timeout"}, {"--tls"}),
    "gpurun --device ": ({"real", "emulated"}, {"login"}),
    "gpurun log": ({"login"}, set()),
    "gpurun -l ": ({"gpu1.example.org", "gpu2.example.org"}, {"login", "#gpu3.example.org"}),
    "gpurun login --f": ({"--fingerprint"}, {"--stats"}),
    "gpurun login ": ({"gpu1.example.org"}, {"list"}),
    "gpuctl ": ({"list", "report", "trace", "health", "netperf", "info", "topo", "token"}, {"create", "netperf-session"}),
    "gpuctl netperf --s": ({"--seconds", "--secret-file", "--server-fingerprint"}, {"--local"}),
    "gpuctl health ": ({"gpu1.example.org", "gpu2.example.org"}, {"list"}),
    "gpuctl list --j": ({"--json"}, set()),
    "gpuctl token ": ({"create", "list", "revoke"}, {"report"}),
    "gpuctl token create --e": ({"--expires"}, {"--json"}),
    "gpuctl token revoke --": ({"--user", "--keep-running"}, {"--expires"}),
    "gpurund --confinement ": ({"full", "none"}, {"mapped"}),
    "gpurund --spare-": ({"--spare-level", "--spare-workers"}, {"--log"}),
}
ALL = [("gpurun",), ("gpurun", "login"), ("gpurund",), ("gpuctl",), ("gpuctl", "list"), ("gpuctl", "report"),
       ("gpuctl", "trace"), ("gpuctl", "health"), ("gpuctl", "netperf"), ("gpuctl", "info"), ("gpuctl", "topo"),
       ("gpuctl", "token"), ("gpuctl", "token", "create"), ("gpuctl", "token", "list"),
       ("gpuctl", "token", "revoke")]
BASH = """
source "$1"
read -r -a COMP_WORDS <<< "$2"
case "$2" in *" ") COMP_WORDS+=("") ;; esac
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"_${COMP_WORDS[0]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Stand-ins for zsh's own functions print what they get.
ZSH = """
_arguments() { print -rl -- "$@" }
_describe() { : }
_command_names() { : }
fpath=($1 $fpath)
autoload -Uz $2
words=($2) CURRENT=2
$2
for name in ${(k)functions[(I)$2_*]}; do
  [[ $name == *_servers ]] || { print -r -- "function $name"; $name }
done
"""


def run(words, home):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": f"{home}/config"})
    return done.stdout, done.stderr


def help_options(*words):
    text = subprocess.run([f"{BIN}/{words[0]}", *words[1:], "--help"], capture_output=True, text=True, timeout=60,
                          check=True).stdout
    return {name for names in re.findall(r"(?m)^  (-\S+)", text) for name in names.split(",")}


class Completions(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.home)
        os.makedirs(f"{self.home}/config/gpurun")
        with open(f"{self.home}/config/gpurun/servers", "w", encoding="utf-8") as file:
            file.write("# GPUs\ngpu1.example.org\ngpu2.example.org # the old one\n#gpu3.example.org\n")

    def need(self, shell):
        if shutil.which(shell) is None:
            self.skipTest(f"SKIPPED: {shell} is not installed")

    def check_lines(self, answer):
        for line, (wanted, unwanted) in LINES.items():
            with self.subTest(line=line):
                words, errors = answer(line)
                self.assertEqual(errors, "")
                self.assertLessEqual(wanted, words)
                self.assertFalse(unwanted & words)

    def test_files_are_generated_from_help(self):
        done = subprocess.run([f"{FOLDER}/generate", BIN, self.home], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        names = [name for name in os.listdir(FOLDER) if name != "generate"]
        self.assertEqual(len(names), 9)
        for name in names:
            with open(f"{FOLDER}/{name}", encoding="utf-8") as old, open(f"{self.home}/{name}", encoding="utf-8") as new:
                self.assertEqual(old.read(), new.read(), f"run packaging/completions/generate {BIN}")

    def test_bash_completes(self):
        def answer(line):
            stdout, stderr = run(["bash", "-c", BASH, "bash", f"{FOLDER}/{line.split()[0]}.bash", line], self.home)
            return set(stdout.split("\n")), stderr
        self.check_lines(answer)

    def test_bash_skips_values_before_program(self):
        tail = 'COMP_WORDS=(gpurun -l host : 4790 --timeout = 5m ./program --x) COMP_CWORD=9; ' \
               '_command_offset() { echo "offset $1"; }; source "$1"; _gpurun'
        self.assertEqual(run(["bash", "-c", tail, "bash", f"{FOLDER}/gpurun.bash"], self.home), ("offset 8\n", ""))

    def test_fish_completes(self):
        self.need("fish")

        def answer(line):
            stdout, stderr = run(["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
                                  f"{FOLDER}/{line.split()[0]}.fish", line], self.home)
            return {each.split("\t")[0] for each in stdout.split("\n")}, stderr
        self.check_lines(answer)

    def test_zsh_knows_each_option(self):
        self.need("zsh")
        for command in ("gpurun", "gpuctl", "gpurund"):
            with self.subTest(command=command):
                stdout, stderr = run(["zsh", "-f", "-c", ZSH, "zsh", FOLDER, f"_{command}"], self.home)
                self.assertEqual(stderr, "")
                parts = re.split(r"(?m)^function (\S+)$", f"function _{command}\n" + stdout)
                known = set()
                for name, text in zip(parts[1::2], parts[2::2]):
                    words = name[1:].split("_")
                    if words == ["gpurun", "program"]:
                        continue
                    known.add(name[1:])
                    options = set(re.findall(r"(?m)^(?:\([^)]*\))?(-\S+?)\[", text))
                    self.assertEqual(options, help_options(*words), name)
                self.assertEqual(known, {"_".join(words) for words in ALL if words[0] == command})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
