// Custom rows: each row with its own code in client and worker reaches the driver as the program
// meant it. Such code can exchange two parameters, omit a field, or use the wrong handle.
//
// The test calls each such row, unless the client alone answers it, by its symbol in the client
// library. The library is attached over TCP to a worker that drives the recording device. All
// arguments are valid. Then the test makes the same call directly through cuda.h's prototype, and
// the device must have seen the same. Where the client changes the call on purpose, the row's trial
// gives the calls that must be seen. Copies of a row for the per-thread default stream are called
// too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "driver_abi/row.h"
#include "tests/parity/custom/trial_cuda.h"

#ifdef GPURUN_ASAN
// A driver ends user objects together with their graph, and the recording device's graphs never
// end. LeakSanitizer checks everything else. Its library looks these functions up here.
#define GPURUN_FOUND extern "C" __attribute__((visibility("default")))
GPURUN_FOUND const char* __lsan_default_suppressions();
GPURUN_FOUND const char* __lsan_default_suppressions() {
  return "leak:gpurun::server::GraphHosts::give\nleak:user_objects.cc\n";
}
GPURUN_FOUND const char* __lsan_default_options();
// Threads of client and server may still be ending at that point. LeakSanitizer sometimes crashes
// when it reads the thread-local storage of such a thread.
GPURUN_FOUND const char* __lsan_default_options() { return "print_suppressions=0:use_tls=0"; }
#endif

namespace gpurun::parity {
namespace {

using driver_abi::Completion;
using driver_abi::Row;

constexpr int kRounds = 4;  // Each round draws other arguments.

// Rows that no trial can compare, and the reason.
const std::map<std::string, std::string>& left_out() {
  static const char* const answers =
      "the device has no parameters to give back (tests/programs/behaviour/node_parameters.cc)";
  static const std::map<std::string, std::string> all = {
      {"cuGraphDebugDotPrint", "the client writes the file, and asks by other calls"},
      {"cuGraphKernelNodeGetParams", answers},
      {"cuGraphKernelNodeGetParams_v2", answers},
      {"cuGraphNodeGetParams", answers},
      {"cuGraphHostNodeGetParams", answers},
      {"cuGraphMemcpyNodeGetParams", answers},
  };
  return all;
}

const TrialTable& trials() {
  static const TrialTable table = [] {
    TrialTable all;
    add_stream_trials(all);
    add_event_trials(all);
    add_memory_trials(all);
    add_array_trials(all);
    add_host_memory_trials(all);
    add_copy_trials(all);
    add_box_copy_trials(all);
    add_copy_batch_trials(all);
    add_memset_trials(all);
    add_launch_trials(all);
    add_module_trials(all);
    add_library_trials(all);
    add_link_trials(all);
    add_graph_trials(all);
    add_graph_host_node_trials(all);
    add_graph_memory_trials(all);
    add_graph_batch_trials(all);
    add_capture_trials(all);
    add_context_trials(all);
    return all;
  }();
  return table;
}

// Functions that are not implemented yet: refused, whatever the arguments.
std::set<std::string> not_yet() {
  std::ifstream list(NOT_YET_LIST);
  std::set<std::string> names;
  for (std::string line; std::getline(list, line);) names.insert(line);
  return names;
}

// Whether the row has code of its own and the client does not answer it alone.
bool is_ours(const Row& row) {
  return row.implementation == driver_abi::Implementation::kCustom &&
         row.completion != Completion::kRefused && row.completion != Completion::kLocal;
}

const char* only_row() { return std::getenv("GPURUN_EVERY_ROW"); }

class CustomRows : public testing::Test {
 protected:
  static void TearDownTestSuite() { World::end(); }

  static std::vector<const Row*> symbols_of(const std::string& name) {
    std::vector<const Row*> all;
    const Row* own = driver_abi::find_row(name.c_str());
    for (const Row& row : driver_abi::rows()) {
      if (own != nullptr && row.alias_opcode == own->opcode) all.push_back(&row);
    }
    return all;
  }
};

TEST_F(CustomRows, ForwardedCallsMatchDirectCalls) {
  std::size_t rows = 0, copies = 0, translated = 0;
  for (const TrialTable::Entry& entry : trials().entries()) {
    if (only_row() != nullptr && entry.symbol != only_row()) continue;
    for (const Row* row : symbols_of(entry.symbol)) {
      SCOPED_TRACE(row->symbol);
      const auto variant =
          row->variant == driver_abi::StreamVariant::kPlain ? Variant::kPlain : Variant::kPerThread;
      for (int round = 0; round < kRounds; ++round) {
        Trial trial(entry.symbol, row->symbol, variant);
        (void)trial.context();
        ASSERT_NO_THROW(entry.run(trial));
        ASSERT_GT(trial.compared(), 0u) << "this trial compares nothing";
      }
      copies += row->symbol != entry.symbol ? 1 : 0;
    }
    ++rows;
    if (!entry.translation.empty()) {
      std::printf("translated: %-36s %s\n", entry.symbol.c_str(), entry.translation.c_str());
      ++translated;
    }
  }
  std::printf(
      "%zu custom rows compared with direct calls, %zu of them as a translation says, and "
      "%zu other names of theirs\n",
      rows, translated, copies);
}

TEST_F(CustomRows, EachRowIsComparedOrListed) {
  std::set<std::string> tried;
  for (const TrialTable::Entry& entry : trials().entries()) {
    EXPECT_TRUE(tried.insert(entry.symbol).second) << entry.symbol << " stands there twice";
    const Row* row = driver_abi::find_row(entry.symbol.c_str());
    EXPECT_TRUE(row != nullptr && is_ours(*row)) << entry.symbol << " is no such row";
  }
  const std::set<std::string> missing = not_yet();
  for (const Row& row : driver_abi::rows()) {
    if (!is_ours(row) || row.alias_opcode != row.opcode) continue;
    const auto listed = left_out().find(row.symbol);
    if (missing.count(row.symbol) != 0) {
      std::printf("not served yet: %s\n", row.symbol);
    } else if (listed != left_out().end()) {
      std::printf("left out: %s: %s\n", row.symbol, listed->second.c_str());
      EXPECT_EQ(tried.count(row.symbol), 0u) << row.symbol << " is compared and listed";
    } else {
      EXPECT_EQ(tried.count(row.symbol), 1u) << row.symbol << " is neither compared nor listed";
    }
  }
}

}  // namespace
}  // namespace gpurun::parity
