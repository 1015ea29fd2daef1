// NUMA nodes: lists of sysfs, and sets of sched_setaffinity(2).
#include "base/numa_nodes.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>

namespace gpurun {
namespace {

struct FreeCpus {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpus>;

bool holds(const std::vector<int>& sorted, int cpu) {
  return std::binary_search(sorted.begin(), sorted.end(), cpu);
}

// Takes a number from the front of `text`. -1: the text begins with no such number.
int take_number(std::string_view* text) {
  int number = -1;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), number);
  if (parsed.ec != std::errc() || number < 0 || number >= kCpusMax) return -1;
  text->remove_prefix(static_cast<std::size_t>(parsed.ptr - text->data()));
  return number;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const int first = take_number(&text);
    int last = first;
    if (!text.empty() && text.front() == '-') {
      text.remove_prefix(1);
      last = take_number(&text);
    }
    if (first < 0 || last < first || (!cpus.empty() && first <= cpus.back())) return std::nullopt;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (text.empty()) break;
    if (text.front() != ',' || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return cpus;
}

std::vector<NumaNode> numa_nodes(const SystemFiles& files) {
  std::vector<NumaNode> nodes;
  const std::string all = "/sys/devices/system/node";
  for (const std::string& name : files.entries(all)) {
    std::string_view rest = name;
    if (rest.rfind("node", 0) != 0) continue;
    rest.remove_prefix(4);
    const int number = take_number(&rest);
    if (number < 0 || !rest.empty()) continue;
    auto cpus = parse_cpu_list(files.text(all + "/" + name + "/cpulist").value_or(""));
    if (cpus) nodes.push_back({number, *std::move(cpus)});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& one, const NumaNode& other) { return one.number < other.number; });
  return nodes;
}

std::vector<int> allowed_cpus(pid_t thread) {
  const CpuSet set(CPU_ALLOC(kCpusMax));
  const std::size_t bytes = CPU_ALLOC_SIZE(kCpusMax);
  std::vector<int> cpus;
  if (set == nullptr || sched_getaffinity(thread, bytes, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kCpusMax; ++cpu) {
    if (CPU_ISSET_S(static_cast<unsigned>(cpu), bytes, set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

Status allow_cpus(pid_t thread, const std::vector<int>& cpus) {
  const CpuSet set(CPU_ALLOC(kCpusMax));
  if (set == nullptr) return Status(Code::kResourceExhausted, "no memory for a set of processors");
  const std::size_t bytes = CPU_ALLOC_SIZE(kCpusMax);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < kCpusMax) CPU_SET_S(static_cast<unsigned>(cpu), bytes, set.get());
  }
  if (sched_setaffinity(thread, bytes, set.get()) == 0) return {};
  return Status::from_errno(errno, "the processors of a thread");
}

int node_of(const std::vector<NumaNode>& nodes, const std::vector<int>& allowed, int current) {
  if (nodes.size() < 2) return -1;
  const auto has_all = [&](const NumaNode& node) {
    return !allowed.empty() && std::all_of(allowed.begin(), allowed.end(),
                                           [&](int cpu) { return holds(node.cpus, cpu); });
  };
  for (const NumaNode& node : nodes) {
    if (has_all(node)) return node.number;
  }
  for (const NumaNode& node : nodes) {
    if (holds(node.cpus, current)) return node.number;
  }
  return -1;
}

int node_of_this_thread(const SystemFiles& files) {
  return node_of(numa_nodes(files), allowed_cpus(), sched_getcpu());
}

}  // namespace gpurun
