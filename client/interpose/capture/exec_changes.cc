// Exec changes: the accepted changes of each executable, and those that are under way.
#include "client/interpose/capture/exec_changes.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "client/interpose/capture/capture_count.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/capture/ordered_changes.h"

namespace gpurun::client::interpose {
namespace {

// Changes that are remembered of all executables. Beyond, all are forgotten, and each costs a round
// trip once more.
constexpr std::size_t kChangesMax = std::size_t{1} << 16;
// Executables with posted changes. A program may end them and keep their graph for ever.
constexpr std::size_t kUnderWayMax = 64;

// The posted changes of one executable.
struct UnderWay {
  std::uint64_t last = 0;
  std::set<Handle> uses;  // Their graphs and child graphs. 0: a graph that is not known.
  bool has_child = false;
  bool has_memory = false;
};

struct Known {
  std::mutex mutex;
  std::map<Handle, std::set<ExecChange>> accepted;  // By executable. Guarded by mutex.
  std::size_t count = 0;                            // Of changes in `accepted`. Guarded by mutex.
  std::map<Handle, UnderWay> under_way;             // By executable. Guarded by mutex.
  std::uint64_t last_change = 0;                    // Guarded by mutex.
  std::atomic<bool> any_under_way{false};
  std::atomic<bool> child_under_way{false};   // One of them uses a child graph.
  std::atomic<bool> memory_under_way{false};  // One of them uses memory.
};

// Never destroyed, because programs call us after exit handlers have run.
Known& known() {
  static auto* const all = new Known;
  return *all;
}

// The place of the graph in an ExecChange. 0 there: it is not known.
constexpr std::size_t kGraphOfChange = 1;

std::atomic<std::uint64_t> g_ends{0};
std::atomic<std::uint64_t> g_changes{0};
std::atomic<std::uint64_t> g_memory_ends{0};
std::atomic<bool> g_nested_graphs{false};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool changes_graph(std::string_view function) {
  if (function.substr(0, 13) == "cuStreamBegin" || function.substr(0, 11) == "cuStreamEnd")
    return true;
  if (function.substr(0, 7) != "cuGraph" || function.substr(0, 11) == "cuGraphExec") return false;
  return has(function, "Add") || has(function, "Remove") || has(function, "Set") ||
         has(function, "Destroy") || has(function, "CopyAttributes");
}

// The calls that end memory of memory_change_of(), or change which devices reach it.
bool ends_memory(std::string_view function) {
  for (const std::string_view begin :
       {"cuMemFree", "cuMemPoolDestroy", "cuMemPoolSetAccess", "cuCtxDestroy", "cuCtxDetach",
        "cuCtxDisablePeerAccess", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset",
        "cuGreenCtxDestroy"}) {
    if (function.substr(0, begin.size()) == begin) return true;
  }
  return false;
}

// A graph of the program that nothing but a call of the program ends. 0: not known to be one.
Handle living_graph_of(const HandleTable& handles, Handle node) {
  if (g_nested_graphs.load() || conditional_nodes_exist()) return 0;
  const Handle graph = handle_of(handles.object_of(node));
  return graph != 0 && handles.check(graph, HandleKind::kGraph) == 0 ? graph : 0;
}

// Settles the executables with changes that are `wanted`. Another thread may settle the same ones.
// Each waits by itself, without a lock.
template <typename Wanted>
int settle(const EntryContext& here, Wanted wanted) {
  Known& all = known();
  if (!all.any_under_way.load()) return 0;
  std::vector<std::pair<Handle, std::uint64_t>> under_way;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (const auto& [exec, own] : all.under_way) {
      if (wanted(own)) under_way.emplace_back(exec, own.last);
    }
  }
  int earlier = 0;
  for (const auto& [exec, last] : under_way) {
    CallSite site = exec_site(here, exec);
    site.opcode = opcode::cuGraphExecKernelNodeSetParams_v2;
    site.form = protocol::Form::kRaw;
    Reply reply;
    // Without a node it changes nothing. Its reply comes behind the changes, and also behind the
    // end of the executable.
    const int result = here.session().call(*here.lane, site, ByteView(), &reply);
    if (result != reply.result && earlier == 0) earlier = result;
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.under_way.find(exec);
    if (found != all.under_way.end() && found->second.last == last) all.under_way.erase(found);
    all.any_under_way.store(!all.under_way.empty());
    const auto any = [&all](bool UnderWay::*part) {
      return std::any_of(all.under_way.begin(), all.under_way.end(),
                         [part](const auto& each) { return each.second.*part; });
    };
    all.child_under_way.store(any(&UnderWay::has_child));
    all.memory_under_way.store(any(&UnderWay::has_memory));
  }
  return earlier;
}

}  // namespace

CallSite exec_site(const EntryContext& here, Handle exec) {
  CallSite site = here.site(protocol::Order::kLane);
  site.subject = exec;
  site.flags = protocol::kFlagWritesSubject;
  site.work = Work::kNone;
  return site;
}

ExecChange change_of(const HandleTable& handles, Handle node) {
  const Handle graph = living_graph_of(handles, node);
  return {node, graph, graph != 0 ? 0 : g_ends.load()};
}

ExecChange child_change_of(const HandleTable& handles, Handle node, Handle child) {
  if (capturing_somewhere()) return {};
  ExecChange change = change_of(handles, node);
  change.push_back(child);
  change.push_back(graph_changes());
  return change;
}

bool was_accepted(Handle exec, const ExecChange& change) {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.accepted.find(exec);
  return found != all.accepted.end() && found->second.count(change) != 0;
}

void accepted(Handle exec, const ExecChange& change) {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.count >= kChangesMax) {
    all.accepted.clear();
    all.count = 0;
  }
  if (all.accepted[exec].insert(change).second) ++all.count;
}

void accepted_ordered(Handle exec, const ExecChange& change) {
  if (change.empty()) return;
  accepted(exec, change);
  g_ordered_changes.store(true);
}

void forget_changes(Handle exec) {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.accepted.find(exec);
  if (found == all.accepted.end()) return;
  all.count -= found->second.size();
  all.accepted.erase(found);
}

int changed_early(const EntryContext& here, Handle exec, const ExecChange& change,
                  ChangeUses uses) {
  Known& all = known();
  bool many = false;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    UnderWay& own = all.under_way[exec];
    own.last = ++all.last_change;
    own.uses.insert(change[kGraphOfChange]);
    if (uses.child != 0) own.uses.insert(uses.child);
    own.has_child = own.has_child || uses.child != 0;
    own.has_memory = own.has_memory || uses.memory;
    all.any_under_way.store(true);
    if (uses.child != 0) all.child_under_way.store(true);
    if (uses.memory) all.memory_under_way.store(true);
    many = all.under_way.size() > kUnderWayMax || own.uses.size() > kUnderWayMax;
  }
  return many ? settle_changes(here) : 0;
}

int settle_changes(const EntryContext& here) {
  return settle(here, [](const UnderWay&) { return true; });
}

int end_of_graph_part(const EntryContext& here, Handle ending) {
  g_ends.fetch_add(1);
  Known& all = known();
  if (!all.any_under_way.load()) return 0;
  const bool node = claimed_kind(ending) == HandleKind::kGraphNode;
  const Handle graph = node ? living_graph_of(here.handles(), ending) : ending;
  // 0: the client does not know the graph, and any change may use it.
  return settle(here, [graph](const UnderWay& own) {
    return graph == 0 || own.uses.count(graph) != 0 || own.uses.count(0) != 0;
  });
}

std::uint64_t graph_changes() noexcept { return g_changes.load(); }

int settle_before(const driver_abi::Row& row) {
  const bool graph = changes_graph(row.base);
  if (graph) g_changes.fetch_add(1);
  const bool children = graph && known().child_under_way.load();
  const bool ends = ends_memory(row.base);
  // A free in a stream ends one allocation, and no other one gets its number.
  if (ends && std::string_view(row.base) != "cuMemFreeAsync") g_memory_ends.fetch_add(1);
  const bool memory = ends && known().memory_under_way.load();
  EntryContext here;
  if ((!children && !memory) || here.enter() != 0) return 0;
  if (here.enter_context() != 0) here.context = nullptr;
  return settle(here, [children, memory](const UnderWay& own) {
    return (children && own.has_child) || (memory && own.has_memory);
  });
}

std::uint64_t memory_ends() noexcept { return g_memory_ends.load(); }

void note_nested_graph() noexcept { g_nested_graphs.store(true); }

}  // namespace gpurun::client::interpose
