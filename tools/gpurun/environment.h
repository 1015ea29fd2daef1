// The environment of what gpurun starts. Pure functions over lists of "NAME=value".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/gpurun/places.h"

namespace gpurun::tools {

using Environment = std::vector<std::string>;

// The value of `name`, or "" when it is not set.
std::string_view value_of(const Environment& environment, std::string_view name);

// Tool chains that would make machine code for the GPU, and are told here to hand over PTX, which
// is all that an emulated device runs. A real GPU takes it, too, so that an inner gpurun may keep
// them.
struct Default {
  std::string_view name;
  std::string_view value;
};
inline constexpr Default kEmulatedDefaults[] = {
    // CuPy compiles what it does not ship by NVRTC, to machine code unless this is 1.
    {"CUPY_COMPILE_WITH_PTX", "1"},
};
// "off" leaves nvJitLink to itself; anything else is read by our stand-in for it
// (client/nvjitlink/real_library.h).
inline constexpr std::string_view kNvJitLinkVariable = "GPURUN_NVJITLINK";

struct ProgramSettings {
  std::vector<std::string> preload;  // Libraries, by absolute path, in this order.
  std::string library_folder;
  std::string session_file;
  bool stats = false;
  std::string trace_folder;        // Absolute; empty: nothing is recorded.
  bool emulated = false;           // The devices are: kEmulatedDefaults, and the stand-in.
  std::string nvjitlink_stand_in;  // By absolute path; "": it is not installed.
};

// What the program gets: ours before the user's in LD_PRELOAD and LD_LIBRARY_PATH, and the name of
// the session file. A variable that the user has set himself stays as it is, but for the session
// file: a gpurun within a gpurun has a lease of its own.
// With emulated devices the defaults above are set as well, but for those that the user has set, to
// nothing even; `*said`, unless null, gets what was, as a person would write it.
// kRefused: a path of ours cannot stand in these variables, which know no quoting.
Result<Environment> program_environment(const Environment& user, const ProgramSettings& settings,
                                        std::string* said = nullptr);

// What the private server gets: the user's environment without what a gpurun around us has added,
// and without CUDA_VISIBLE_DEVICES. The client library applies that variable, and a server that
// applied it too would number its devices anew.
Environment server_environment(const Environment& user, const Places& places);

// The value of CUDA_VISIBLE_DEVICES; empty: it is not set.
std::optional<std::string> visible_devices_of(const Environment& environment);
// Cuts its list after `count` entries, if it is set.
void show_first_devices(Environment* environment, std::size_t count);

}  // namespace gpurun::tools
