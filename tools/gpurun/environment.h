// Environment: the variables of the processes that gpurun starts. Pure functions over lists of
// "NAME=value".
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

// Variables that make tool chains produce PTX instead of machine code for the GPU. An emulated
// device runs only PTX. A real GPU also accepts it, so that an inner gpurun may keep these
// variables.
struct Default {
  std::string_view name;
  std::string_view value;
};
inline constexpr Default kEmulatedDefaults[] = {
    // CuPy compiles with NVRTC what it does not ship, to machine code unless this is 1.
    {"CUPY_COMPILE_WITH_PTX", "1"},
    // CuTe DSL's machine code carries its PTX if it has line information
    // (driver_abi/cubin_with_ptx.h).
    {"CUTE_DSL_LINEINFO", "1"},
};
// "off" leaves nvJitLink unchanged. Our stand-in for it reads any other value
// (client/nvjitlink/real_library.h).
inline constexpr std::string_view kNvJitLinkVariable = "GPURUN_NVJITLINK";
// "off" leaves each ptxas unchanged.
inline constexpr std::string_view kCudaToolsVariable = "GPURUN_CUDA_TOOLS";

// A library that is loaded into programs where the devices are emulated.
struct EmulatedLibrary {
  std::string path;           // Absolute. "": not installed.
  std::string_view variable;  // "off" in this variable of the user's leaves the library out.
  std::string_view effect;    // In words, behind the path.
};

struct ProgramSettings {
  std::vector<std::string> preload;  // Libraries, by absolute path, in this order.
  std::string library_folder;
  std::string session_file;
  bool stats = false;
  std::string transports;       // GPURUN_TRANSPORTS. Empty: as the user has it.
  std::string trusted_fabrics;  // GPURUN_TRUST_FABRIC. Empty: as the user has it.
  std::string trace_folder;     // Absolute. Empty: nothing is recorded.
  bool emulated = false;        // The devices are emulated: sets kEmulatedDefaults, and loads
                                // these.
  std::vector<EmulatedLibrary> emulated_libraries;
};

// The program's environment. LD_PRELOAD and LD_LIBRARY_PATH have our parts before the user's, and
// the session file is named. A variable that the user has set is not changed. Only the session file
// is always set, because a gpurun within a gpurun has a lease of its own.
//
// With emulated devices it also sets the defaults above, except those that the user has set, even
// to nothing. `*said`, unless null, gets what was set, in words. kRefused: one of our paths cannot
// be in these variables, which have no quoting.
Result<Environment> program_environment(const Environment& user, const ProgramSettings& settings,
                                        std::string* said = nullptr);

// What a container needs of that environment, for `--session-folder`. It has the variables that
// gpurun sets and those of the user's that the client library reads. LD_LIBRARY_PATH is left to the
// container's image: LD_PRELOAD makes the library known by its name libcuda.so.1. Errors as above.
Result<Environment> container_environment(const Environment& user, const ProgramSettings& settings);

// The private server's environment: the user's without the additions of an outer gpurun, and
// without CUDA_VISIBLE_DEVICES. The client library applies that variable. A server that applied it
// too would renumber its devices.
Environment server_environment(const Environment& user, const Places& places);

// The value of CUDA_VISIBLE_DEVICES. Nothing: it is not set.
std::optional<std::string> visible_devices_of(const Environment& environment);
// Cuts its list after `count` entries, if it is set.
void show_first_devices(Environment* environment, std::size_t count);

}  // namespace gpurun::tools
