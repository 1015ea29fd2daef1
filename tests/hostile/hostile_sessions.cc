// hostile_sessions: started by gpurun, attaches once for each malicious session, lets it act, and
// prints its end in a line "NAME: right: end" or "NAME: WRONG: how". Arguments: the names of
// sessions, or nothing for all. Exit status: the number of wrong ones.
#include <chrono>
#include <string>
#include <string_view>

#include "tests/hostile/sessions.h"
#include "tests/hostile/trials.h"

namespace gpurun::hostile {
namespace {

constexpr std::chrono::seconds kPatience{30};

bool matches(const std::string& text, std::string_view wanted) {
  while (!wanted.empty()) {
    const std::size_t bar = wanted.find('|');
    if (text.find(wanted.substr(0, bar)) != std::string::npos) return true;
    wanted.remove_prefix(bar == std::string_view::npos ? wanted.size() : bar + 1);
  }
  return false;
}

// Returns false for a wrong end. `how` describes the end in both cases.
bool try_one(const Session& session, const client::SessionData& data, std::string* how) {
  Result<client::Attached> attached = client::attach(data, {});
  if (!attached.ok()) {
    *how = "no attach: " + attached.status().to_string();
    return false;
  }
  Stranger stranger(*std::move(attached));
  const bool right = session.act(stranger);
  const std::string_view wanted = session.wanted;
  const bool served = wanted.find("served") != std::string_view::npos && stranger.answers();
  const std::string end = served ? "served" : wanted == "gone" ? "gone" : stranger.end(kPatience);
  *how = end;
  if (!matches(end, wanted)) {
    *how += " where due was " + std::string(wanted);
    return false;
  }
  if (!right) *how += "; an answer was not what it must be";
  return right;
}

}  // namespace
}  // namespace gpurun::hostile

int main(int argc, char** argv) {
  using namespace gpurun::hostile;
  int wrong = 0;
  for (const std::span<const Session> sessions :
       {framing_sessions(), handle_sessions(), memory_sessions(), code_sessions(), flood_sessions(),
        array_sessions(), link_sessions()}) {
    wrong += run_trials(sessions, {argv + 1, static_cast<std::size_t>(argc - 1)}, &try_one);
  }
  return wrong;
}
