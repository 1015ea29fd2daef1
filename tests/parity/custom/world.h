// World: shared by all trials. It has the recording device, a worker that drives it, the client
// library attached to that worker, and live handles, each with its two names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gpurun::parity {

class ServerInProcess;

class World {
 public:
  // Lives until end(). Throws std::runtime_error when it cannot be made.
  static World& get();
  // Ends the server, and the client library's session with it.
  static void end();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // The exported function of libcuda.so.1 as programs load it, and that of the device.
  void* client_symbol(const std::string& name) const;
  void* device_symbol(const std::string& name) const;

  // Orders memory accesses for ThreadSanitizer: earlier accesses of this thread precede later ones
  // of the worker's threads, and the other way round. Otherwise only sockets connect the two, which
  // ThreadSanitizer does not follow.
  void meet_worker();
  // The lines that the device wrote since the last call.
  std::vector<std::string> recorded();

  // The driver's events that stand for the program's events. All others belong to the worker.
  void know_event(std::uint64_t event) { events_.insert(event); }
  bool knows_event(std::uint64_t event) const { return events_.count(event) != 0; }

  // Checks that the worker called cuInit(0) at its start. Call it once, after the client's first
  // call.
  void look_for_initialization();
  bool driver_was_initialized() const { return initialized_; }

  std::mt19937_64& random() { return random_; }
  // The folder for files that a trial needs.
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

}  // namespace gpurun::parity
