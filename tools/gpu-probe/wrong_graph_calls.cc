// Wrong calls: graphs, texture objects, and functions that need what this machine lacks.
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr char kGraph[] = "Graph Management";
constexpr char kTexture[] = "Texture Object Management";

CUgraph graph(WrongStage& s) {
  CUgraph made = nullptr;
  must(CU(s.driver, cuGraphCreate)(&made, 0), "cuGraphCreate");
  return made;
}
CUgraph destroyed_graph(WrongStage& s) {
  CUgraph made = graph(s);
  must(CU(s.driver, cuGraphDestroy)(made), "cuGraphDestroy");
  return made;
}

constexpr WrongCall kCalls[] = {
    WRONG(cuGraphCreate, "NULL output", 1, kGraph, kContext, (nullptr, 0)),
    WRONG(cuGraphCreate, "flags are not 0", 1, kGraph, kContext, (s.out<CUgraph>(), 7)),
    WRONG(cuGraphDestroy, "NULL", 1, kGraph, kContext, (nullptr)),
    WRONG(cuGraphDestroy, "twice", 1, kGraph, kContext, (destroyed_graph(s))),
    WRONG(cuGraphAddEmptyNode, "NULL graph", 1, kGraph, kContext,
          (s.out<CUgraphNode>(), nullptr, nullptr, 0)),
    WRONG(cuGraphAddEmptyNode, "dependency of zeros", 1, kGraph, kContext,
          (s.out<CUgraphNode>(), graph(s), s.zeroed<CUgraphNode>(), 1)),
    WRONG(cuGraphAddKernelNode_v2, "NULL parameters", 1, kGraph, kContext,
          (s.out<CUgraphNode>(), graph(s), nullptr, 0, nullptr)),
    WRONG(cuGraphAddMemsetNode, "NULL parameters", 1, kGraph, kContext,
          (s.out<CUgraphNode>(), graph(s), nullptr, 0, nullptr, s.context)),
    WRONG(cuGraphInstantiateWithFlags, "NULL graph", 1, kGraph, kContext,
          (s.out<CUgraphExec>(), nullptr, 0)),
    WRONG(cuGraphInstantiateWithFlags, "unknown flags", 1, kGraph, kContext,
          (s.out<CUgraphExec>(), graph(s), 0xff0000)),
    WRONG(cuGraphLaunch, "NULL", 1, kGraph, kContext, (nullptr, s.stream)),
    WRONG(cuGraphExecDestroy, "NULL", 1, kGraph, kContext, (nullptr)),
    WRONG(cuGraphGetNodes, "NULL count", 1, kGraph, kContext, (graph(s), nullptr, nullptr)),
    WRONG(cuGraphNodeGetType, "NULL node", 1, kGraph, kContext,
          (nullptr, s.out<CUgraphNodeType>())),
    WRONG(cuGraphAddDependencies_v2, "NULL lists", 1, kGraph, kContext,
          (graph(s), nullptr, nullptr, nullptr, 1)),
    WRONG(cuTexObjectCreate, "NULL description", 1, kTexture, kContext,
          (s.out<CUtexObject>(), nullptr, nullptr, nullptr)),
    WRONG(cuTexObjectDestroy, "unknown object", kNotInTheManual, "", kContext, (0x4711)),
    WRONG(cuSurfObjectCreate, "NULL description", 1, "Surface Object Management", kContext,
          (s.out<CUsurfObject>(), nullptr)),
};

}  // namespace

std::span<const WrongCall> wrong_graph_calls() { return kCalls; }

}  // namespace gpurun::probe
