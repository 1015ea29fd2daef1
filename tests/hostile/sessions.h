// What malicious clients do, by name, and how it must end.
#pragma once

#include <span>

#include "tests/hostile/stranger.h"

namespace gpurun::hostile {

struct Session {
  const char* name;  // Says what it does.
  // "served": the calls were refused or did no harm, and the session still answers. "gone": the
  // client went by itself. Else what is in the worker's goodbye; several with | between.
  const char* wanted;
  // False: an answer was not what it must be.
  bool (*act)(Stranger& stranger);
};

std::span<const Session> framing_sessions();  // Frames, records, bulk.
// Calls that are well-formed, and mean ill.
std::span<const Session> handle_sessions();
std::span<const Session> memory_sessions();
std::span<const Session> code_sessions();
std::span<const Session> flood_sessions();
std::span<const Session> array_sessions();
std::span<const Session> link_sessions();

}  // namespace gpurun::hostile
