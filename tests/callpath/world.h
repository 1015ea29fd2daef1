// World: a client's session and a worker in one process, over real TCP sockets or what a test
// connects, on the null device or another driver. For the tests and benches of the call path.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/session/session.h"
#include "protocol/calls/call.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/handlers.h"
#include "server/worker/channels/worker.h"

namespace gpurun::callpath {

// The client's and the worker's end of one connection.
struct Ends {
  std::unique_ptr<transport::Connection> client;
  std::unique_ptr<transport::Connection> worker;
};

struct WorldOptions {
  const char* driver = nullptr;  // A path. nullptr: the null device.
  int bulk_connections = 1;
  client::SessionOptions session;
  // Changes the worker's options, such as handlers of the test.
  void (*prepare)(server::WorkerOptions& options) = nullptr;
  // Makes connection `index`, the log's first, in place of TCP.
  std::function<Ends(int index)> connect = {};
};

class World {
 public:
  // Opens each device once per process and starts both ends. Fails the test if that fails.
  explicit World(const WorldOptions& options = {});
  // Ends the session, then the worker.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  client::Session& session() { return *session_; }
  client::Lane& lane() { return *client::Lane::current(); }
  client::Handle context() const { return context_; }
  server::HandlerState& state() { return *state_; }  // The worker's state.
  // Waits for run_worker() and returns its result. Call it after end_session().
  Status worker_end();
  void end_session() { session_.reset(); }

  // A call in `stream` of the context.
  client::CallSite site(const char* symbol, std::uint64_t stream = 0) const;
  // Calls a generated row and waits. The arguments are as libffi takes them.
  int call(const char* symbol, std::vector<void*> arguments,
           const std::vector<std::uint64_t>& minted = {});
  // As call(), but at `site`.
  int call_at(const client::CallSite& site, std::vector<void*> arguments,
              const std::vector<std::uint64_t>& minted = {});
  // Mints the handle of the context of device `ordinal`.
  client::Handle retain_primary_context(int ordinal);
  std::uint64_t allocate(std::size_t bytes);
  client::Handle make_stream();
  // A fence behind all calls. Returns a failure that is still to be reported.
  int synchronize();

 private:
  std::unique_ptr<server::HandlerState> state_;
  std::thread worker_;
  Status worker_end_;
  std::unique_ptr<client::Session> session_;
  client::Handle context_ = 0;
};

}  // namespace gpurun::callpath
