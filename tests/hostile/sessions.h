// Sessions: the acts of malicious clients by name, and their expected end.
#pragma once

#include <span>

#include "tests/hostile/stranger.h"

namespace gpurun::hostile {

struct Session {
  const char* name;  // Describes the act.
  // "served": the calls were refused or did no harm, and the session still answers. "gone": the
  // client closed it. Otherwise a text in the worker's goodbye, or several with | between.
  const char* wanted;
  // Returns false for a wrong answer.
  bool (*act)(Stranger& stranger);
};

std::span<const Session> framing_sessions();  // Frames, records and bulk.
// Well-formed calls with malicious contents.
std::span<const Session> handle_sessions();
std::span<const Session> memory_sessions();
std::span<const Session> code_sessions();
std::span<const Session> flood_sessions();
std::span<const Session> array_sessions();
std::span<const Session> link_sessions();

}  // namespace gpurun::hostile
