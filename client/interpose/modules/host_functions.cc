// cuLaunchHostFunc and cuStreamAddCallback (CUDA Driver API manual, "Execution Control" and "Stream
// Management"): a gate in the stream, a thread that waits at it, a release. See
// protocol/host_function.h. They run on threads of ours: one for each stream that has some to run,
// used again by other streams.
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "client/interpose/capture.h"
#include "client/interpose/custom.h"
#include "client/interpose/forward.h"
#include "client/interpose/graph_work.h"
#include "client/interpose/stream.h"
#include "client/thread.h"
#include "protocol/host_function.h"

namespace gpurun::client::interpose {
namespace {

using protocol::HostFunctionPayload;
using protocol::HostFunctionStep;

struct Job {
  std::uint64_t ticket = 0;
  CUhostFn function = nullptr;          // cuLaunchHostFunc, or
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback.
  CUstream stream = nullptr;            // As the program named it.
  void* user = nullptr;
};

// The jobs of one stream, oldest first. Made when it has some, gone when it has none.
struct Line {
  std::deque<Job> jobs;
  bool running = false;  // A thread has it, or it waits in `ready`.
};
// Context, stream, and for per-thread streams the lane.
using LineKey = std::array<std::uint64_t, 3>;

struct Runners {
  std::mutex mutex;
  std::condition_variable work;
  std::map<LineKey, Line> lines;                 // Guarded by mutex.
  std::deque<LineKey> ready;                     // Guarded by mutex.
  std::size_t idle = 0;                          // Guarded by mutex.
  std::vector<std::unique_ptr<Thread>> threads;  // Guarded by mutex; they never end.
  Session* session = nullptr;                    // Guarded by mutex.
};

std::atomic<std::uint64_t> g_last_ticket{0};

// Never destroyed: our threads use it as long as the process lives.
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
  if (job.callback != nullptr) {
    job.callback(job.stream, cuda(result), job.user);
  } else if (result == 0) {
    job.function(job.user);  // Manual: not called after an error.
  }
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

// A thread that will be free for one more line. With the mutex held.
int make_ready(Runners& all) {
  if (all.idle > all.ready.size()) return 0;
  auto thread = std::make_unique<Thread>();
  if (!thread->start("gpurun-host", &serve, nullptr).ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  all.threads.push_back(std::move(thread));
  return 0;
}

// The program wants to see each call's own result: the stream is waited for, and the function runs
// here.
int run_here(const Here& here, Handle stream, const Job& job) {
  const int result = synchronize_stream(here, stream);
  if (job.callback != nullptr) {
    job.callback(job.stream, cuda(result), job.user);
  } else if (result == 0) {
    job.function(job.user);
  }
  return result;
}

int add(CUstream given, Job job) {
  Here here;
  if (const int result = here.enter_context(); result != 0) return result;
  Handle stream = 0;
  if (const int result = here.stream(given, &stream); result != 0) return result;
  // No graph can hold a callback: here.stream() has refused it in a capture.
  if (job.function != nullptr && is_captured(here, stream)) {
    return capture_work(here, stream, work_of(job.function, job.user));
  }
  job.stream = given;
  // A gate that is waited for would stand until a thread of ours comes, which waits for us.
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
  // Two threads that use one stream: their jobs stand in the order of their gates. Posting may
  // wait for room in the log, which needs none of our threads.
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

// `syncMode` says how the driver's thread waits, which is for the worker's driver to know.
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
