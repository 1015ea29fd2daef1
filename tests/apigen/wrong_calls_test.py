#!/usr/bin/env python3
"""Sources of the table of wrong calls (tools/gpu-probe/wrong_calls.txt): its quotations of cuda.h
are in cuda.h. An expected code without a source is an opinion, and probably an answer of our own
driver.

usage: wrong_calls_test.py [FOLDER_OF_CUDA_H]
"""
import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROBE = os.path.join(ROOT, "tools/gpu-probe")
sys.path.insert(0, PROBE)
import wrong_calls  # noqa: E402

INCLUDE = sys.argv.pop(1) if len(sys.argv) > 1 else ""
WITH_SOURCE_MIN = 600
FAMILIES = ("cuInit", "cuDevice", "cuCtx", "cuModule", "cuLibrary", "cuMem", "cuMemcpy", "cuMemset",
            "cuMemPool", "cuMemMap", "cuStream", "cuEvent", "cuLaunch", "cuFunc", "cuGraph",
            "cuOccupancy", "cuLaunchHostFunc", "cuIpc", "cuPointer", "cuKernel", "cuLink",
            "cuStreamBeginCapture")


def words(text):
    """Words without the decoration of comments."""
    return re.sub(r"[\s*]+|\\p\b|::", " ", text).split()


def base(function):
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", function)


class Header:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.comments = {}
        for comment, name in re.findall(
                r"/\*\*((?:(?!\*/).)*?)\*/\s*(?:#[^\n]*\n\s*)*(?:__CUDA_DEPRECATED\s+)?"
                r"CUresult\s+CUDAAPI\s+(\w+)\(", text, re.S):
            self.comments.setdefault(base(name), []).append(comment)
        self.codes = {}
        enumeration = text.split("typedef enum cudaError_enum {")[1].split("} CUresult")[0]
        for comment, name in re.findall(r"/\*\*((?:(?!\*/).)*?)\*/\s*CUDA_(?:ERROR_)?(\w+)", enumeration, re.S):
            self.codes[name] = comment

    def lists(self, function, code):
        """Returns whether the code is among the values that the function returns."""
        return any(re.search(rf"::CUDA_(ERROR_)?{code}\b", comment[comment.rfind("\\return"):])
                   for comment in self.comments.get(base(function), []))

    def says(self, function, quoted):
        return any(" ".join(words(quoted)) in " ".join(words(comment))
                   for comment in self.comments.get(base(function), []))


class WrongCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = list(wrong_calls.read(os.path.join(PROBE, "wrong_calls.txt")))

    def test_most_rows_have_a_source_and_every_family_has_rows(self):
        sourced = [row for row in self.rows if row.source != "open"]
        self.assertGreaterEqual(len(sourced), WITH_SOURCE_MIN)
        for family in FAMILIES:
            self.assertTrue(any(row.function.startswith(family) for row in sourced), family)
        self.assertTrue(any(row.function.endswith(("_ptsz", "_ptds")) for row in sourced))
        self.assertGreater(len([row for row in sourced if row.level == "kLost"]), 30)

    def test_quotations_match_cuda_h(self):
        path = os.path.join(INCLUDE, "cuda.h")
        if not os.path.exists(path):
            self.skipTest("no cuda.h of CUDA 13 on this machine")
        header = Header(path)
        wrong = []
        for row in self.rows:
            name = f"{row.function} | {row.how} | {row.expected} | {row.source}"
            if row.source == "list" and not header.lists(row.function, row.expected):
                wrong.append(name)
            if row.source == "code" and row.expected not in header.codes:
                wrong.append(name)
            if row.source.startswith("says: ") and not header.says(row.function, row.source[6:]):
                wrong.append(name)
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_header_search_rejects_false_source(self):
        path = os.path.join(INCLUDE, "cuda.h")
        if not os.path.exists(path):
            self.skipTest("no cuda.h of CUDA 13 on this machine")
        header = Header(path)
        self.assertTrue(header.lists("cuMemAlloc_v2", "OUT_OF_MEMORY"))
        self.assertFalse(header.lists("cuMemAlloc_v2", "INVALID_HANDLE"))
        self.assertFalse(header.says("cuMemAlloc_v2", "will be clamped"))
        self.assertFalse(header.lists("cuNoSuchFunction", "INVALID_VALUE"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
