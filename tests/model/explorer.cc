// Explorer: makes the choices. It searches all choices within the bounds, depth first, and then
// random ones.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/model.h"
#include "tests/model/report.h"
#include "tests/model/runtime.h"

namespace gpurun::model {
namespace {

struct Choice {
  unsigned chosen;
  unsigned count;
};
std::vector<Choice> path;  // The current path of the exhaustive search.
std::size_t depth = 0;
std::mt19937_64 random_source;
bool at_random = false;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// Moves to the next path. False: there are no more.
bool advance() {
  while (!path.empty() && path.back().chosen + 1 == path.back().count) path.pop_back();
  if (path.empty()) return false;
  ++path.back().chosen;
  return true;
}

void run_once(const Scenario& scenario, unsigned preemptions, unsigned stale_loads) {
  world.preemptions_left = preemptions;
  world.stale_left = stale_loads;
  depth = 0;
  run_world(scenario.run);
}

// The bounds of the exhaustive searches, in order. Few preemptions find most mistakes.
struct Bounds {
  unsigned preemptions;
  unsigned stale_loads;
};
constexpr Bounds kBounds[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {2, 1},
                              {1, 2}, {2, 2}, {3, 1}, {4, 2}, {8, 4}};

void explore_one(const Scenario& scenario, std::uint64_t executions, std::uint64_t seed) {
  std::uint64_t done = 0;
  std::string whole = "none";
  at_random = false;
  for (const Bounds& bounds : kBounds) {
    path.clear();
    bool more = true;
    for (; more && done < executions; ++done) {
      report::how = std::string(scenario.name) + ", execution " + std::to_string(done + 1);
      run_once(scenario, bounds.preemptions, bounds.stale_loads);
      if (depth != path.size()) violated("the scenario is not deterministic");
      more = advance();
    }
    if (more) break;
    const std::string this_one =
        std::to_string(bounds.preemptions) + "/" + std::to_string(bounds.stale_loads);
    whole = whole == "none" ? this_one : whole + " " + this_one;
  }
  std::printf("%-10s %8llu executions; all with these preemptions/old values: %s", scenario.name,
              static_cast<unsigned long long>(done), whole.c_str());
  std::fflush(stdout);
  at_random = true;
  for (std::uint64_t i = 0; i < executions; ++i) {
    random_source.seed(seed + i);
    report::how = std::string(scenario.name) +
                  ", at random with GPURUN_MODEL_SEED=" + std::to_string(seed + i);
    // Half of the runs have no bound in effect, the others a small one.
    const unsigned bound = i % 2 == 0 ? 1'000'000 : 4;
    run_once(scenario, bound, bound);
  }
  std::printf("; %llu at random from seed %llu\n", static_cast<unsigned long long>(executions),
              static_cast<unsigned long long>(seed));
}

}  // namespace

bool random_phase() { return at_random; }

unsigned next_choice(unsigned count, bool rare) {
  if (at_random) {
    if (rare && random_source() % 8 != 0) return 0;
    return static_cast<unsigned>(random_source() % count);
  }
  if (depth < path.size()) {
    if (path[depth].count != count) violated("the scenario is not deterministic");
  } else {
    path.push_back({0, count});
  }
  return path[depth++].chosen;
}

int explore(int argc, char** argv, const Scenario* scenarios, std::size_t count,
            std::uint64_t executions) {
  std::vector<std::string_view> names;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--finds" && i + 1 < argc) {
      report::finds = argv[++i];
    } else {
      names.emplace_back(argv[i]);
    }
  }
  executions = number_from("GPURUN_MODEL_EXECUTIONS", executions);
  const std::uint64_t seed = number_from("GPURUN_MODEL_SEED", std::random_device()() % 1'000'000);
  for (std::size_t i = 0; i < count; ++i) {
    bool wanted = names.empty();
    for (const std::string_view name : names) wanted = wanted || name == scenarios[i].name;
    if (!wanted) continue;
    // A flaw ends the search, so the search may take longer.
    const std::uint64_t most = report::finds == nullptr ? executions : 20 * executions;
    const std::uint64_t first = report::finds == nullptr ? executions : 100;
    for (std::uint64_t now = first; now <= most; now *= 2) explore_one(scenarios[i], now, seed);
  }
  if (report::finds == nullptr) return 0;
  std::printf("NOT FOUND: %s\n", report::finds);
  return 1;
}

}  // namespace gpurun::model
