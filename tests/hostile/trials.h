// Trials: the loop of the programs that try malicious acts one by one.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "client/attach/session_data.h"

namespace gpurun::hostile {

// Calls `attempt(trial, data, &how)` for each trial with its name in `names`, or for all where that
// is empty. It returns whether the trial ended right. `how` describes the end in both cases. Prints
// a line "NAME: right: end" or "NAME: WRONG: how" for each. Returns the number of wrong ones.
template <typename Trial, typename Attempt>
int run_trials(std::span<const Trial> trials, std::span<char* const> names, Attempt attempt) {
  const Result<client::SessionData> data = client::session_data_from_environment();
  int wrong = 0;
  for (const Trial& trial : trials) {
    bool named = names.empty();
    for (const std::string_view name : names) named = named || name == trial.name;
    if (!named) continue;
    std::string how = data.status().to_string();
    const bool right = data.ok() && attempt(trial, *data, &how);
    std::printf("%s: %s: %s\n", trial.name, right ? "right" : "WRONG", how.c_str());
    std::fflush(stdout);
    wrong += right ? 0 : 1;
  }
  return wrong;
}

}  // namespace gpurun::hostile
