#!/usr/bin/env python3
"""The runner of pages: it refuses a page that it cannot read whole, and fails for each way in which
a page can be wrong.

Each block of commands in the docs is on a page that is run, or says why no test runs it.

usage: runner_test.py --root ROOT --build BUILD --pages PAGE ...
"""
import argparse
import glob
import os
import sys
import unittest

import markdown_blocks
import two_hosts

ARGUMENTS = None


def page(*lines):
    return markdown_blocks.commands("page.md", "\n".join(lines) + "\n")


class Parser(unittest.TestCase):
    def test_comment_applies_to_next_block(self):
        first, second = page("text", "<!-- on server, exit 2 -->", "<!-- prints: a, b | input: c -->", "```sh", "false", "```",
                             "```toml", "x = 1", "```", "    ```sh", "true", "    ```")
        self.assertEqual((first.host, first.status, first.prints, first.inputs, first.text),
                         ("server", 2, ["a, b"], ["c"], "false\n"))
        self.assertEqual((second.host, second.status, second.prints, second.text), ("client", 0, [], "true\n"))

    def test_parser_rejects_malformed_page(self):
        for lines in (("```", "ls", "```"), ("```sh", "ls"), ("<!-- on server -->", "text"),
                      ("<!-- on servers -->", "```sh", "ls", "```"), ("<!-- not run: -->", "```sh", "ls", "```"),
                      ("<!-- prints: a -->", "```text", "a", "```")):
            with self.assertRaises(markdown_blocks.PageError, msg=lines):
                page(*lines)

    def test_parser_ignores_other_comments(self):
        self.assertEqual(len(page("<!-- a note -->", "```sh", "true", "```")), 1)


class Pages(unittest.TestCase):
    def test_every_command_block_is_run_or_marked_not_run(self):
        every = ["README.md", *sorted(glob.glob("docs/*.md", root_dir=ARGUMENTS.root))]
        self.assertLess(len(ARGUMENTS.pages), len(every))
        for name in every:
            with open(os.path.join(ARGUMENTS.root, name), encoding="utf-8") as file:
                blocks = markdown_blocks.commands(name, file.read())  # Refuses a block without a language.
            left_out = [block.where() for block in blocks if not block.not_run]
            self.assertEqual(bool(left_out), name in ARGUMENTS.pages, left_out or name)


class Runner(unittest.TestCase):
    def setUp(self):
        lacking = two_hosts.missing_tools()
        if lacking:
            self.skipTest(f"two hosts need {lacking}")

    def test_runner_reports_each_kind_of_failure(self):
        with two_hosts.TwoHosts(ARGUMENTS.build, {}) as hosts:
            for lines, wrong in (
                    (("```sh", "false", "true", "```"), "exit status 1, not 0"),
                    (("<!-- on client, exit 125 -->", "```sh", "true", "```"), "exit status 0, not 125"),
                    (("<!-- prints: b -->", "```sh", "echo a", "```"), "does not print 'b'"),
                    (("<!-- on server, keeps running -->", "```sh", "gpurund --no-such", "```"), "does not serve"),
                    (("<!-- on server, keeps running -->", "<!-- prints: 3 GPUs -->", "```sh",
                      "gpurund", "```"), "does not print ['3 GPUs']")):
                found = hosts.run(page(*lines)[0])
                self.assertIsNotNone(found, lines)
                self.assertIn(wrong, found)

    def test_client_and_server_are_separate_hosts(self):
        with two_hosts.TwoHosts(ARGUMENTS.build, {}) as hosts:
            for lines in (
                    ("<!-- prints: laptop -->", "```sh", "hostname", "```"),
                    ("<!-- on server -->", "<!-- prints: gpu.example.org -->", "```sh", "hostname",
                     "mkdir /etc/gpurun", "```"),
                    ("```sh", "test ! -e /etc/gpurun", "```"),
                    ("<!-- on server, keeps running -->", "```sh", "gpurund --listen 0.0.0.0", "```"),
                    ("<!-- on client, exit 125 -->", "<!-- prints: wants a token -->", "```sh",
                     "gpurun -l gpu.example.org -- true", "```"),
                    ("<!-- input: first -->", "<!-- input: second -->", "```sh", "read -rp 'a: ' a",
                     "read -rp 'b? ' b", "test \"$a-$b\" = first-second", "```")):
                self.assertIsNone(hosts.run(page(*lines)[0]), lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True, type=os.path.abspath)
    parser.add_argument("--build", required=True, type=os.path.abspath)
    parser.add_argument("--pages", required=True, nargs="+")
    ARGUMENTS = parser.parse_args()
    sys.argv[1:] = []
    unittest.main(verbosity=2)
