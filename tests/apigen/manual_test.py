#!/usr/bin/env python3
"""A row that is wrong about a name's place or a direction would be packed wrong on both ends alike, so
nothing but another source can tell. This one compares every documented function with the manual's
text in cuda.h: names in their order, and for each pointer whether the text says that the function
writes there. Where the text is silent, the pointer is in WRITTEN below, read by a person.
"""

import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLES = os.path.join(ROOT, "driver_abi")
sys.path.insert(0, os.path.join(TABLES, "apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402

SAYS_OUTPUT = re.compile(r"[Rr]eturn|[Oo]utput|[Rr]etriev|[Rr]eceiv|Created|to store")
# Outputs whose description has none of those words.
WRITTEN = set("""
cuCoredumpGetAttribute.value cuCoredumpGetAttribute.size cuCoredumpGetAttributeGlobal.value
cuCoredumpGetAttributeGlobal.size cuCtxGetApiVersion.version cuDevSmResourceSplitByCount.nbGroups
cuDevSmResourceSplitByCount.remaining cuDeviceComputeCapability.major
cuDeviceComputeCapability.minor cuDeviceGetExecAffinitySupport.pi cuEventElapsedTime_v2.pMilliseconds
cuGraphExecUpdate_v2.resultInfo cuGraphGetEdges_v2.numEdges cuGraphGetNodes.numNodes
cuGraphGetRootNodes.numRootNodes cuGraphNodeGetDependencies_v2.numDependencies
cuGraphNodeGetDependentNodes_v2.numDependentNodes cuLibraryGetKernelCount.count
cuLogsDumpToMemory.iterator cuLogsDumpToMemory.buffer cuLogsDumpToMemory.size
cuMemRangeGetAttribute.data cuMemcpyAtoHAsync_v2.dstHost cuMemcpyAtoH_v2.dstHost
cuMemcpyDtoHAsync_v2.dstHost cuMemcpyDtoH_v2.dstHost cuModuleGetFunctionCount.count
cuPointerGetAttributes.data cuStreamEndCapture.phGraph cuSurfRefGetArray.phArray
cuTensorMapEncodeIm2col.tensorMap cuTensorMapEncodeIm2colWide.tensorMap
cuTensorMapEncodeTiled.tensorMap cuTensorMapReplaceAddress.tensorMap
cuTexObjectGetResourceViewDesc.pResViewDesc cuTexObjectGetTextureDesc.pTexDesc
cuThreadExchangeStreamCaptureMode.mode
""".split())
# The text before these names describes another version's parameters.
OTHER_VERSION = {"cuCtxGetDevice", "cuCtxSynchronize", "cuGraphInstantiate", "cuStreamGetCtx"}
DOCUMENTED_MIN = 350


def read_manual(folder):
    """Function -> (parameter names in order, {parameter: (tag, text)})."""
    text = ""
    for name in ("cuda.h", "cudaProfiler.h"):
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            text += stream.read()
    manual = {}
    for match in re.finditer(
            r"/\*\*(?P<doc>(?:(?!\*/).)*)\*/\s*(?:#[^\n]*\n\s*)*(?:__CUDA_DEPRECATED\s+)?"
            r"CUresult\s+CUDAAPI\s+(?P<name>\w+)\s*\((?P<parameters>[^;]*?)\)\s*;", text, re.S):
        said = {}
        for parameter in re.finditer(
                r"\\param\s*(?:\[([\w,]+)\]\s*)?(\w+)\s+-?\s*"
                r"((?:(?!\\param|\\return|\n \*\s*\n).)*)", match.group("doc"), re.S):
            said[parameter.group(2)] = (parameter.group(1), parameter.group(3))
        declared = match.group("parameters").strip()
        names = [] if declared in ("void", "") else [
            re.search(r"(\w+)\s*(?:\[\d*\])?$", p.strip()).group(1) for p in declared.split(",")]
        manual.setdefault(match.group("name"), (names, said))
    return manual


class Manual(unittest.TestCase):
    def setUp(self):
        folder = os.environ.get("GPURUN_CUDA_INCLUDE", "")
        if os.environ.get("GPURUN_CUDA_H_MATCHES") != "TRUE":
            self.skipTest("no cuda.h of CUDA 13.0 on this machine")
        self.manual = read_manual(folder)
        types = cuda_types.CudaTypes(os.path.join(TABLES, "cuda_types.toml"))
        newest = {}  # The manual describes the newest version of each function.
        for row in table.load(os.path.join(TABLES, "cuda_driver.toml"), types):
            if not row.variant and (row.base not in newest or
                                    newest[row.base].version < row.version):
                newest[row.base] = row
        self.rows = [row for base, row in newest.items()
                     if base in self.manual and base not in OTHER_VERSION]

    def test_names_stand_where_the_manual_has_them(self):
        self.assertGreater(len(self.rows), DOCUMENTED_MIN)
        for row in self.rows:
            with self.subTest(row.symbol):
                self.assertEqual([p.name for p in row.parameters], self.manual[row.base][0])

    def test_outputs_are_what_the_manual_says_is_written(self):
        judged = 0
        for row in self.rows:
            said = self.manual[row.base][1]
            for p in row.parameters:
                if row.completion == "refused" or not p.pointers or p.const or p.name not in said:
                    continue
                tag, text = said[p.name]
                written = "out" in tag if tag else bool(SAYS_OUTPUT.search(text))
                name = "%s.%s" % (row.symbol, p.name)
                with self.subTest(name):
                    self.assertEqual(p.direction != "in", written or name in WRITTEN, text)
                judged += 1
        self.assertGreater(judged, DOCUMENTED_MIN // 2)


if __name__ == "__main__":
    unittest.main()
