#!/usr/bin/env python3
"""Image cache: a server receives a code image once, from any process, whatever user the worker runs
as. It receives it again only when its file on the disk is no longer the image. The client's own
statistics count the bytes."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import can_be, environment, gpurun  # noqa: E402

IMAGE_BYTES = 300_000
ALL_ELSE_BYTES = 20_000  # More than a run without an image sends.


def bytes_sent(server, *credential, **changes):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "statistics")
        done = gpurun("-l", server.address, *(credential or server.secret_options), "--",
                      world.ARGS.client, "load", str(IMAGE_BYTES),
                      env=environment(GPURUN_STATS="1", GPURUN_STATS_FILE=path, **changes))
        assert done.returncode == 0, done.stderr
        with open(path, encoding="utf-8") as file:
            (process,) = [json.loads(line) for line in file]
    return process["bytes"]


def images_in(cache, user="default"):
    folder = os.path.join(cache, "images", user)
    return [os.path.join(folder, name) for name in os.listdir(folder)]


def await_image(cache, user="default"):
    """The worker writes the image while the program runs, and after its end."""
    world.until(lambda: [name for name in images_in(cache, user) if is_whole(name)],
                f"an image of {user} is kept")


def is_whole(path):
    return re.fullmatch("[0-9a-f]{64}", os.path.basename(path)) is not None


class ImageCache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = os.path.join(folder.name, "cache")

    def server(self, *words):
        return world.Gpurund(*words, cache=self.cache)

    def check_sent_once(self, *words):
        with self.server(*words) as server:
            self.assertGreater(bytes_sent(server), IMAGE_BYTES)
            await_image(self.cache)
            self.assertLess(bytes_sent(server), ALL_ELSE_BYTES)
        with self.server(*words) as server:  # The image is on the disk, not in a process.
            self.assertLess(bytes_sent(server), ALL_ELSE_BYTES)
        (image,) = images_in(self.cache)
        about = os.stat(image)
        self.assertEqual((about.st_mode & 0o777, about.st_uid), (0o600, os.geteuid()))
        self.assertEqual(os.stat(os.path.dirname(image)).st_mode & 0o777, 0o700)
        with open(image, "r+b") as file:
            file.seek(IMAGE_BYTES // 2)
            file.write(b"y")
        with self.server(*words) as server:
            self.assertGreater(bytes_sent(server), IMAGE_BYTES)
            await_image(self.cache)
            self.assertLess(bytes_sent(server), ALL_ELSE_BYTES)
        self.assertIn("does not match its name", server.errors)

    def test_server_receives_image_once(self):
        self.check_sent_once("--worker-uids", "none")

    def test_server_receives_image_once_with_separate_worker_users(self):
        first = 2_000_000_400
        if os.getuid() != 0 or not can_be(first):
            self.skipTest("needs root in a user namespace that knows the worker's users")
        self.check_sent_once("--worker-uids", f"{first}-{first + 9}")

    def test_users_do_not_share_cached_images(self):
        with self.server() as server:
            self.assertGreater(bytes_sent(server), IMAGE_BYTES)
            for user in ("anna", "ben"):
                token = os.path.join(server.folder.name, user)
                subprocess.run([world.GPUCTL, "token", "create", user, "-o", token, "--tokens",
                                server.tokens_file], check=True, capture_output=True,
                               timeout=world.SECONDS)
                self.assertGreater(bytes_sent(server, "--token-file", token), IMAGE_BYTES)
                await_image(self.cache, os.path.join("users", user))
                self.assertLess(bytes_sent(server, "--token-file", token), ALL_ELSE_BYTES)

    def test_client_with_cache_sends_image_once(self):
        """The first time it sends the image without a query, because a query would be a wait of its
        own."""
        with self.server() as server, tempfile.TemporaryDirectory() as kept:
            keeping = {"GPURUN_CACHE": None, "XDG_CACHE_HOME": kept}
            self.assertGreater(bytes_sent(server, **keeping), IMAGE_BYTES)
            await_image(self.cache)
            self.assertLess(bytes_sent(server, **keeping), ALL_ELSE_BYTES)
            self.assertLess(bytes_sent(server), ALL_ELSE_BYTES)  # This client queries.

    def test_each_process_sends_image_without_server_cache(self):
        for cache, words in (("none", []), (self.cache, ["--cache-bytes", "100KiB"])):
            with world.Gpurund(*words, cache=cache) as server:
                for _ in range(2):
                    self.assertGreater(bytes_sent(server), IMAGE_BYTES)

    def test_unusable_named_folder_stops_server(self):
        os.makedirs(os.path.join(self.cache, "images", "default"), mode=0o755)
        with self.server() as server:
            self.assertEqual(server.address, "")
        self.assertIn("mode 0700", server.errors)

    def test_unusable_default_folder_does_not_stop_server(self):
        base = os.path.dirname(self.cache)
        os.makedirs(os.path.join(base, "gpurun", "images", "default"), mode=0o755)
        with world.Gpurund(cache=None, env=environment(XDG_CACHE_HOME=base,
                                                       CACHE_DIRECTORY=None)) as server:
            self.assertGreater(bytes_sent(server), IMAGE_BYTES)
        self.assertIn("mode 0700", server.errors)

    def test_cache_directory_variable_sets_default_folder(self):
        with world.Gpurund(cache=None, env=environment(CACHE_DIRECTORY=self.cache)) as server:
            self.assertGreater(bytes_sent(server), IMAGE_BYTES)
            await_image(self.cache)
            self.assertLess(bytes_sent(server), ALL_ELSE_BYTES)
        self.assertEqual(len(images_in(self.cache)), 1)


if __name__ == "__main__":
    world.main()
