// What all trials share: the recording device, a worker that drives it, the client library attached
// to that worker, and live handles, each known by its two names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gpurun::every_row {

class ServerInProcess;

class World {
 public:
  // Immortal until end(); throws std::runtime_error when it cannot be made.
  static World& get();
  // The client library's session ends with the server.
  static void end();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // The exported function: of libcuda.so.1 as programs load it, and of the device.
  void* client_symbol(const std::string& name) const;
  void* device_symbol(const std::string& name) const;

  // What this thread has done to memory comes before what the worker's threads do from now on, and
  // what those have done in the device comes before what follows here: between the two lie only
  // sockets, of which ThreadSanitizer learns nothing.
  void meet_worker();
  // Lines that the device wrote since the last time.
  std::vector<std::string> recorded();

  // The driver's events that stand for some of the program: all others are the worker's own.
  void know_event(std::uint64_t event) { events_.insert(event); }
  bool knows_event(std::uint64_t event) const { return events_.count(event) != 0; }

  // Whether the worker called cuInit(0) at its start: once, after the client's first call.
  void look_for_initialization();
  bool driver_was_initialized() const { return initialized_; }

  std::mt19937_64& random() { return random_; }
  // For files that a trial needs.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  World();

  std::filesystem::path folder_;
  std::unique_ptr<ServerInProcess> server_;
  void* device_ = nullptr;
  void* client_ = nullptr;
  std::streamoff read_ = 0;
  bool initialized_ = false;
  std::set<std::uint64_t> events_;
  std::mt19937_64 random_;
};

}  // namespace gpurun::every_row
