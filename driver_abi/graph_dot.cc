// Graph dot: the text in Graphviz's language.
#include "driver_abi/graph_dot.h"

#include <array>
#include <cstdio>

namespace gpurun::driver_abi {
namespace {

// By CUgraphNodeType.
constexpr std::array<const char*, 14> kTypes = {
    "KERNEL",    "MEMCPY",     "MEMSET",       "HOST",       "GRAPH",
    "EMPTY",     "WAIT_EVENT", "EVENT_RECORD", "EXT_SIGNAL", "EXT_WAIT",
    "MEM_ALLOC", "MEM_FREE",   "BATCH_MEM_OP", "CONDITIONAL"};

const char* name_of(CUgraphNodeType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kTypes.size() ? kTypes[index] : "UNKNOWN";
}

// Inside a quoted text.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char each : text) {
    if (each == '"' || each == '\\') out.push_back('\\');
    out.push_back(each);
  }
  return out;
}

}  // namespace

std::string dot_of(std::span<const DotNode> nodes, std::span<const DotEdge> edges) {
  std::string text = "digraph graph_0 {\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string number = std::to_string(i);
    text += "  node_" + number + " [shape=box label=\"" + number + "\\n" + name_of(nodes[i].type);
    if (!nodes[i].kernel.empty()) text += "\\n" + escaped(nodes[i].kernel);
    text += "\"];\n";
  }
  for (const DotEdge& edge : edges) {
    text += "  node_" + std::to_string(edge.from) + " -> node_" + std::to_string(edge.to) + ";\n";
  }
  return text + "}\n";
}

int write_dot(const char* path, const std::string& text) {
  std::FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  return written && closed ? 0 : int{CUDA_ERROR_OPERATING_SYSTEM};
}

}  // namespace gpurun::driver_abi
