// World: starts and ends everything.
#include "tests/parity/custom/world.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "server/worker/execution/thread_context.h"
#include "tests/parity/custom/server_in_process.h"

namespace gpurun::parity {
namespace {

constexpr char kSeedVariable[] = "GPURUN_EVERY_ROW_SEED";

std::unique_ptr<World>& world() {
  static std::unique_ptr<World> only;
  return only;
}

void* open_library(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

std::uint64_t seed() {
  const char* given = std::getenv(kSeedVariable);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

}  // namespace

World& World::get() {
  if (world() == nullptr) world().reset(new World);
  return *world();
}

void World::end() { world().reset(); }

World::World() {
  const std::uint64_t chosen = seed();
  std::printf("%s=%llu\n", kSeedVariable, static_cast<unsigned long long>(chosen));
  std::fflush(stdout);
  random_.seed(chosen);
  folder_ = std::filesystem::temp_directory_path() / ("custom-rows-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder_);
  setenv("GPURUN_RECORDING_FILE", (folder_ / "recording").c_str(), 1);
  setenv("GPURUN_RECORDING_CONTEXTS", "1", 1);
  // Each call of the program must be one driver call. Client and driver also share one address
  // space.
  setenv("GPURUN_DEVICE_WINDOWS", "off", 1);
  // Client and worker are one process here, so they cannot both have host memory at one address.
  setenv("GPURUN_HOST_MEMORY", "copy", 1);
  // The worker asks for captures from the start, so that all its looks at a stream are alike
  // (recording.h, without_looks()).
  server::note_capture();
  const std::string session = folder_ / "session";
  setenv("GPURUN_SESSION", session.c_str(), 1);
  setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);  // For the cache of image tables.
  device_ = open_library(RECORDING_DEVICE);
  server_ = std::make_unique<ServerInProcess>(RECORDING_DEVICE, session);
  client_ = open_library(CLIENT_LIBRARY);
}

World::~World() {
  server_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void* World::client_symbol(const std::string& name) const { return dlsym(client_, name.c_str()); }
void* World::device_symbol(const std::string& name) const { return dlsym(device_, name.c_str()); }

void World::look_for_initialization() {
  for (const std::string& line : recorded()) {
    initialized_ = initialized_ || line.rfind("cuInit(Flags=0x0", 0) == 0;
  }
}

// A device call, which takes the lock of all device calls (record.cc).
void World::meet_worker() {
  void* context = nullptr;
  reinterpret_cast<int (*)(void**)>(device_symbol("cuCtxGetCurrent"))(&context);
}

std::vector<std::string> World::recorded() {
  meet_worker();
  std::ifstream file(folder_ / "recording");
  file.seekg(read_);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // The worker is still writing it, as housekeeping.
    read_ += static_cast<std::streamoff>(line.size()) + 1;
    if (line.rfind("cuCtxGetCurrent(", 0) != 0) lines.push_back(line);
  }
  return lines;
}

}  // namespace gpurun::parity
