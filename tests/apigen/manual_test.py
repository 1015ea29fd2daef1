#!/usr/bin/env python3
"""Parameter order and directions of every row, against cuda.h and the manual's text in it. A wrong
row is packed wrong at both ends, so only another source can reveal it. Names and their order come
from cuda.h's prototypes, also of older versions. The manual's text in cuda.h says whether a
function writes through a pointer. Where the text gives no answer, a person has read it, and the
answer is in WRITTEN and READ below. One of the two judges every pointer of every served row, so
that no direction can flip unseen. mutation_test.py injects such faults.
"""

import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLES = os.path.join(ROOT, "driver_abi")
sys.path.insert(0, os.path.join(TABLES, "apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402

SAYS_OUTPUT = re.compile(r"[Rr]eturn|[Oo]utput|[Rr]etriev|[Rr]eceiv|Created|to store")
# Outputs that have no description, or one without any of those words.
WRITTEN = set("""
cuCtxCreate_v2.pctx cuCtxCreate_v3.pctx cuCtxGetDevice.device cuCtxGetDevice_v2.device
cuDeviceGetDefaultMemPool.pool_out cuDeviceGetMemPool.pool cuDeviceGetUuid.uuid cuGetProcAddress.pfn
cuGraphExecUpdate.hErrorNode_out cuGraphExecUpdate.updateResult_out cuGraphGetEdges.from
cuGraphGetEdges.to cuGraphGetEdges.numEdges cuGraphInstantiateWithFlags.phGraphExec
cuGraphInstantiate_v2.phGraphExec cuGraphInstantiate_v2.phErrorNode cuGraphInstantiate_v2.logBuffer
cuGraphNodeGetDependencies.dependencies cuGraphNodeGetDependencies.numDependencies
cuGraphNodeGetDependentNodes.dependentNodes cuGraphNodeGetDependentNodes.numDependentNodes
cuMemGetDefaultMemPool.pool_out cuMemGetMemPool.pool cuMemPoolCreate.pool
cuStreamGetCaptureInfo.captureStatus_out cuStreamGetCaptureInfo.id_out
cuStreamGetCaptureInfo_v2.captureStatus_out cuStreamGetCaptureInfo_v2.id_out
cuStreamGetCaptureInfo_v2.graph_out cuStreamGetCaptureInfo_v2.numDependencies_out cuStreamGetCtx.pctx
cuGetErrorName.pStr cuGetErrorString.pStr cuGetExportTable.ppExportTable
cuStreamGetCaptureInfo_v2.dependencies_out cuStreamGetCtx_v2.pCtx cuStreamGetCtx_v2.pGreenCtx
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
cuSurfObjectCreate.pSurfObject cuSurfObjectGetResourceDesc.pResDesc cuTexObjectCreate.pTexObject
cuTexObjectGetResourceDesc.pResDesc cuTexObjectGetResourceViewDesc.pResViewDesc cuTexObjectGetTextureDesc.pTexDesc
cuThreadExchangeStreamCaptureMode.mode
cuMemcpyBatchAsync.failIdx cuDevSmResourceSplit.remainder cuDevSmResourceSplit.groupParams
cuGraphExecGetId.graphId cuGraphGetId.graphId cuGraphNodeGetContainingGraph.phGraph
cuGraphNodeGetToolsId.toolsNodeId cuTensorMapSetAllocationClass.tensorMap cuLinkCreate_v2.stateOut
cuGraphAddNode.phGraphNode cuGraphAddNode.nodeParams cuGraphAddNode_v2.nodeParams
cuGraphInstantiateWithParams.instantiateParams cuGraphAddKernelNode.phGraphNode
cuGraphKernelNodeGetParams.nodeParams
""".split())
# Inputs without a description and of a type that lets the function write.
READ = set("""
cuCtxCreate_v3.paramsArray cuMemcpyBatchAsync.attrs cuMemcpyBatchAsync.attrsIdxs
cuMemcpyBatchAsync.dsts cuMemcpyBatchAsync.sizes cuMemcpyBatchAsync.srcs cuMemGetDefaultMemPool.location cuMemGetMemPool.location
cuMemSetMemPool.location cuStreamUpdateCaptureDependencies.dependencies cuLaunchHostFunc.userData
""".split())
# Pointers that the function reads and then writes.
IN_AND_OUT = set("""
cuCoredumpGetAttribute.size cuCoredumpGetAttributeGlobal.size cuDevSmResourceSplitByCount.nbGroups
cuGraphGetEdges.numEdges cuGraphGetEdges_v2.numEdges cuGraphGetNodes.numNodes
cuGraphGetRootNodes.numRootNodes cuGraphNodeGetDependencies.numDependencies
cuGraphNodeGetDependencies_v2.numDependencies cuGraphNodeGetDependentNodes.numDependentNodes
cuGraphNodeGetDependentNodes_v2.numDependentNodes cuLogsDumpToMemory.iterator
cuLogsDumpToMemory.size cuTensorMapReplaceAddress.tensorMap cuThreadExchangeStreamCaptureMode.mode
cuDevSmResourceSplit.groupParams cuDeviceGetCliqueInfo.count cuTensorMapSetAllocationClass.tensorMap
cuGraphAddMemAllocNode.nodeParams cuGraphAddNode.nodeParams cuGraphAddNode_v2.nodeParams
cuGraphInstantiateWithParams.instantiateParams
""".split())
# Parameters that later versions of cuda.h renamed.
RENAMED = {
    "cuDevSmResourceSplitByCount": {"remainder": "remaining", "flags": "useFlags"},
}
# Functions that have the text of another version's parameters before their names.
OTHER_VERSION = {"cuCtxGetDevice", "cuCtxSynchronize", "cuGraphInstantiate", "cuStreamGetCtx"}
JUDGED_BY_TEXT_MIN = 175


def read_manual(folder):
    """Returns function -> (parameter names in order, {parameter: (tag, text)})."""
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


def read_prototypes(folder, compiler):
    """Returns symbol -> parameter names in order, for every version that the driver exports.
    Internally, cuda.h declares some stream functions twice. The renamed copy is the documented one."""
    source = "#define __CUDA_API_VERSION_INTERNAL\n" + "".join(
        "#include <%s>\n" % name for name in
        ("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
        if os.path.isfile(os.path.join(folder, name)))
    text = subprocess.run([compiler, "-E", "-P", "-x", "c++", "-I", os.path.join(ROOT, "tests/apigen/graphics"),
                           "-I", folder, "-"], input=source, check=True, capture_output=True,
                          text=True, timeout=50).stdout
    prototypes = {}
    for match in re.finditer(r"CUresult\s+(\w+)\s*\(([^;{}]*?)\)\s*;", text):
        declared = match.group(2).strip()
        names = [] if declared in ("void", "") else [
            re.search(r"(\w+)\s*(?:\[\d*\])?$", p.strip()).group(1) for p in declared.split(",")]
        prototypes.setdefault(re.sub("_ptds$|_ptsz$", "", match.group(1)), names)
    return prototypes


def newest_versions(rows):
    newest = {}  # The manual describes the newest version of each function.
    for row in rows:
        if not row.variant and (row.base not in newest or
                                newest[row.base].version < row.version):
            newest[row.base] = row
    return {row.symbol for row in newest.values()} - OTHER_VERSION


def name_faults(rows, prototypes):
    for row in rows:
        names = [p.name for p in row.parameters]
        theirs = prototypes.get(row.symbol)
        renamed = RENAMED.get(row.symbol, {})
        if names not in (theirs, [renamed.get(name, name) for name in theirs or []]):
            yield "%s: cuda.h has %s" % (row.symbol, prototypes.get(row.symbol))


def should_be(name, said):
    """Returns in, out or inout, and whether the manual's text gave it. None: neither source knows."""
    if name in WRITTEN or name in READ:
        written = name in WRITTEN
    elif said is not None:
        tag, text = said
        written = "out" in tag if tag else bool(SAYS_OUTPUT.search(text))
    else:
        return None
    return "inout" if name in IN_AND_OUT else "out" if written else "in"


def direction_faults(rows, manual, counts=None):
    newest = newest_versions(rows)
    for row in rows:
        if row.completion == "refused" or row.target is not row:
            continue
        said = manual[row.base][1] if row.symbol in newest and row.base in manual else {}
        for p in row.parameters:
            if not p.pointers or (p.const and p.pointers < 2) or p.address:
                continue
            name = "%s.%s" % (row.symbol, p.name)
            should = should_be(name, said.get(p.name))
            if counts is not None and p.name in said:
                counts.append(name)
            if should != p.direction:
                yield "%s: is %s, should be %s: %s" % (name, p.direction, should, said.get(p.name))


def of_toolkit(rows):
    """Returns the rows that this machine's cuda.h can judge. It may be older than the table."""
    version = int(os.environ.get("GPURUN_CUDA_H_VERSION") or 0)
    return [row for row in rows if row.version <= version]


def load_rows(source=os.path.join(TABLES, "cuda_driver.toml")):
    return table.load(source, cuda_types.CudaTypes(os.path.join(TABLES, "cuda_types.toml")))


class Manual(unittest.TestCase):
    def setUp(self):
        self.folder = os.environ.get("GPURUN_CUDA_INCLUDE", "")
        if os.environ.get("GPURUN_CUDA_H_MATCHES") != "TRUE":
            self.skipTest("no cuda.h of CUDA 13 on this machine")
        newest = cuda_types.CudaTypes(os.path.join(TABLES, "cuda_types.toml")).constants["CUDA_VERSION"]
        if int(os.environ["GPURUN_CUDA_H_VERSION"]) > int(newest):
            self.skipTest("cuda.h is newer than the table, which knows CUDA up to %s" % newest)
        self.rows = of_toolkit(load_rows())

    def test_parameter_names_match_cuda_h_prototypes(self):
        prototypes = read_prototypes(self.folder, os.environ.get("GPURUN_COMPILER", "c++"))
        self.assertEqual(list(name_faults([r for r in self.rows if r.target is r], prototypes)), [])

    def test_directions_match_manual_or_reviewed_lists(self):
        by_text = []
        faults = list(direction_faults(self.rows, read_manual(self.folder), by_text))
        self.assertEqual(faults, [])
        self.assertGreater(len(by_text), JUDGED_BY_TEXT_MIN)


if __name__ == "__main__":
    unittest.main(verbosity=2)
