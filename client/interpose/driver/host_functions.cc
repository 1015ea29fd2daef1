// Host functions: cuLaunchHostFunc and cuStreamAddCallback (CUDA Driver API manual, "Execution
// Control" and "Stream Management"). A gate holds the stream, a thread waits at it, runs the
// function and releases it. See protocol/calls/host_function.h. The functions run on our threads:
// one for each stream with pending functions, reused by other streams.
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "client/interpose/call/forward.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/graph_work.h"
#include "client/process/thread.h"
#include "protocol/calls/host_function.h"

namespace gpurun::client::interpose {
namespace {

using protocol::HostFunctionPayload;
using protocol::HostFunctionStep;

struct Job {
  std::uint64_t ticket = 0;
  CUhostFn function = nullptr;          // Set by cuLaunchHostFunc, or
  CUstreamCallback callback = nullptr;  // set by cuStreamAddCallback.
  CUstream stream = nullptr;            // As the program named it.
  void* user = nullptr;
};

// The jobs of one stream, oldest first. Exists only while it has jobs.
struct Line {
  std::deque<Job> jobs;
  bool running = false;  // A thread runs it, or it waits in `ready`.
};
// Context, stream, and the lane for per-thread streams.
using LineKey = std::array<std::uint64_t, 3>;

struct Runners {
  std::mutex mutex;
  std::condition_variable work;
  std::map<LineKey, Line> lines;                 // Guarded by mutex.
  std::deque<LineKey> ready;                     // Guarded by mutex.
  std::size_t idle = 0;                          // Guarded by mutex.
  std::vector<std::unique_ptr<Thread>> threads;  // Guarded by mutex. They never end.
  Session* session = nullptr;                    // Guarded by mutex.
};

std::atomic<std::uint64_t> g_last_ticket{0};

// Never destroyed, because our threads use it for the life of the process.
Runners& runners() {
  static auto* const all = new Runners;
  return *all;
}

CallSite site_of(protocol::Order order) {
  CallSite site;
  site.opcode = opcode::cuLaunchHostFunc;
  site.form = protocol::Form::kRaw;
  site.order = order;
  return site;
}

void run(Session& session, Lane& lane, const Job& job) {
  HostFunctionPayload payload;
  payload.ticket = job.ticket;
  payload.step = HostFunctionStep::kWait;
  Reply reply;
  const int told =
      session.call(lane, site_of(protocol::Order::kImmediate), bytes_of(payload), &reply);
  const int result = session.alive() ? reply.result : told;
  session.take_device_writes(lane);
  if (job.callback != nullptr) {
    job.callback(job.stream, cuda(result), job.user);
  } else if (result == 0) {
    job.function(job.user);  // Manual: not called after an error.
  }
  session.give_host_writes(lane);
  payload.step = HostFunctionStep::kRelease;
  static_cast<void>(session.post(lane, site_of(protocol::Order::kImmediate), bytes_of(payload)));
  session.end_host_function();
}

void* serve(void*) {
  Lane* lane = Lane::current();
  Runners& all = runners();
  std::unique_lock<std::mutex> lock(all.mutex);
  for (;;) {
    ++all.idle;
    all.work.wait(lock, [&all] { return !all.ready.empty(); });
    --all.idle;
    const LineKey key = all.ready.front();
    all.ready.pop_front();
    for (;;) {
      Line& line = all.lines[key];
      if (line.jobs.empty()) {
        all.lines.erase(key);
        break;
      }
      const Job job = line.jobs.front();
      line.jobs.pop_front();
      Session* session = all.session;
      lock.unlock();
      if (lane != nullptr) run(*session, *lane, job);
      lock.lock();
    }
  }
  return nullptr;
}

// Ensures that a thread will be free for one more line. The mutex must be held.
int make_ready(Runners& all) {
  if (all.idle > all.ready.size()) return 0;
  auto thread = std::make_unique<Thread>();
  if (!thread->start("gpurun-host", &serve, nullptr).ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  all.threads.push_back(std::move(thread));
  return 0;
}

// The program wants each call's own result. Waits for the stream and runs the function here.
int run_here(const EntryContext& here, Handle stream, const Job& job) {
  const int result = synchronize_stream(here, stream);
  if (job.callback != nullptr) {
    job.callback(job.stream, cuda(result), job.user);
  } else if (result == 0) {
    job.function(job.user);
  }
  return result;
}

int add(CUstream given, Job job) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return result;
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return result;
  // A graph cannot hold a callback: resolve_stream() has refused it in a capture.
  if (job.function != nullptr && is_captured(here, stream)) {
    return capture_work(here, stream, work_of(job.function, job.user));
  }
  job.stream = given;
  // Awaiting the gate's reply would deadlock: the gate waits for our thread, which waits for this
  // one.
  if (here.session().every_call_is_a_fence()) return run_here(here, stream, job);
  if (here.session().add_host_function() >= protocol::kHostFunctionsMax) {
    here.session().end_host_function();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  job.ticket = g_last_ticket.fetch_add(1, std::memory_order_relaxed) + 1;
  CallSite site = here.stream_site(stream);
  site.context = context_of_stream(here, stream);
  const LineKey key{site.context, stream,
                    stream == protocol::kStreamPerThread ? here.lane->id() : std::uint64_t{0}};
  site.opcode = opcode::cuLaunchHostFunc;
  site.form = protocol::Form::kRaw;
  HostFunctionPayload payload;
  payload.ticket = job.ticket;

  Runners& all = runners();
  // Two threads may use one stream, and their jobs must be in the order of their gates. So the lock
  // is held while posting, which may wait for room in the log. That wait needs none of our threads.
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.session = &here.session();
  const bool fresh = all.lines.find(key) == all.lines.end();
  int result = fresh ? make_ready(all) : 0;
  if (result == 0) result = here.session().post(*here.lane, site, bytes_of(payload));
  if (result != 0) {
    here.session().end_host_function();
    return result;
  }
  Line& line = all.lines[key];
  line.jobs.push_back(job);
  if (!line.running) {
    line.running = true;
    all.ready.push_back(key);
    all.work.notify_one();
  }
  return 0;
}

}  // namespace

namespace custom {

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Job job;
  job.function = fn;
  job.user = userData;
  return cuda(add(hStream, job));
}

// `syncMode` decides how the driver's thread waits, which matters only to the worker's driver.
CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode) {
  // CU_HOST_TASK_BLOCKING, CU_HOST_TASK_SPINWAIT.
  return syncMode > 1 ? CUDA_ERROR_INVALID_VALUE : custom::cuLaunchHostFunc(hStream, fn, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Job job;
  job.callback = callback;
  job.user = userData;
  return cuda(add(hStream, job));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
