// Check: one result of `gpuctl health`. Every name has a section in docs/network.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gpurun::tools {

enum class Verdict {
  kOk,
  kWarning,        // Programs run. Something is slow, missing or unusual.
  kFailed,         // Programs do not run, or not on that server.
  kNotApplicable,  // This machine has nothing that the check is about.
};

struct Check {
  std::string name;  // "memlock".
  Verdict verdict = Verdict::kOk;
  std::string text;      // One line: what was found, and why it counts.
  std::string fix = {};  // What to do. Present in failures and warnings.
};

using Checks = std::vector<Check>;

inline Check ok(std::string name, std::string text) {
  return {std::move(name), Verdict::kOk, std::move(text)};
}
inline Check warning(std::string name, std::string text, std::string fix) {
  return {std::move(name), Verdict::kWarning, std::move(text), std::move(fix)};
}
inline Check failed(std::string name, std::string text, std::string fix) {
  return {std::move(name), Verdict::kFailed, std::move(text), std::move(fix)};
}
inline Check not_applicable(std::string name, std::string text) {
  return {std::move(name), Verdict::kNotApplicable, std::move(text)};
}

inline void append(Checks* all, Checks more) {
  for (Check& each : more) all->push_back(std::move(each));
}

}  // namespace gpurun::tools
