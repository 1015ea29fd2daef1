// The objects behind the handles of modules, libraries, kernels and functions, and the one registry
// that keeps them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/interpose/forward.h"
#include "client/interpose/modules/jit_request.h"
#include "client/interpose/modules/kernel_table.h"
#include "driver_abi/image_length.h"
#include "driver_abi/legacy_launch.h"

namespace gpurun::client::interpose::modules {

struct Function;

// A CUmodule or a CUlibrary.
struct Loaded {
  enum class State : std::uint8_t {
    kDeferred,  // Nothing was sent: the program promised to preserve the image.
    kLoading,   // A thread of the program waits for the worker.
    kReady,
    kFailed,
  };
  struct Variable {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
  };

  Handle handle = 0;
  HandleKind kind = HandleKind::kModule;
  Handle context = 0;         // It was loaded in; 0: none was current.
  Loaded* library = nullptr;  // Of a module that cuLibraryGetModule gave.

  driver_abi::Image image{};      // kDeferred: borrowed from the program.
  const void* wrapper = nullptr;  // What the program passed, if that was a wrapper of nvcc's.
  Sha256Digest digest{};

  // What follows is guarded by Registry::mutex.
  State state = State::kDeferred;
  int failure = 0;         // kFailed.
  bool unasked = false;    // Loaded before the program has asked for it, with its neighbours.
  bool confirmed = false;  // The worker has said that it is loaded: nothing need be ordered after.
  std::shared_ptr<KernelTable> table;
  std::map<std::string, Function*, std::less<>> functions;
  std::map<Handle, Loaded*> modules;                             // Of a library: by context.
  std::map<std::pair<Handle, std::string>, Variable> variables;  // By context and name.
};

// A CUkernel or a CUfunction.
struct Function {
  Function(Loaded& loaded, std::shared_ptr<KernelTable> from, const Kernel& of);

  // What the program set, else what the image says.
  int attribute(int id) const noexcept {
    return values[static_cast<unsigned>(id)].load(std::memory_order_relaxed);
  }
  std::array<int, 3> required_cluster() const noexcept {
    return {attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
            attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
            attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
  }

  Handle handle = 0;
  HandleKind kind = HandleKind::kFunction;
  Handle context = 0;  // kFunction.
  Loaded* owner;
  Function* kernel = nullptr;  // Of a function that cuKernelGetFunction gave.
  const std::shared_ptr<KernelTable> table;
  const Kernel& info;
  std::array<std::atomic<int>, protocol::kFunctionAttributes> values;
  driver_abi::LegacyLaunch legacy_launch;
  std::map<Handle, Function*> functions;  // Of a kernel: by context. Guarded by Registry::mutex.
};

// A CUlinkState: where the program wants to find what its driver writes, and what it has written.
// Its handle has no object, for that one could end while another thread looks at it: whoever wants
// a link holds on to it.
struct Link {
  Handle handle = 0;
  Handle context = 0;
  std::mutex mutex;            // Held through each of its calls; guards the next two.
  JitRequest jit;              // Writes where the program has said.
  protocol::LinkReply latest;  // What stands there. Without a part.
  // Images that it has made; the program has their addresses until the link ends. Guarded by
  // Registry::mutex.
  std::vector<std::shared_ptr<const Bytes>> images;
};

struct Registry {
  // The most recently ended objects stay readable, for programs that use a handle in one thread
  // while another ends it.
  static constexpr std::size_t kEndedMax = 1024;

  std::mutex mutex;                 // Never held across a call of the session.
  std::condition_variable changed;  // Some Loaded left kLoading.
  KnownImages known;
  std::map<Handle, Loaded*> deferred;             // Libraries; guarded by mutex.
  std::map<const void*, Loaded*> by_wrapper;      // Libraries; guarded by mutex.
  std::set<Loaded*> alive;                        // But modules of libraries; guarded by mutex.
  std::map<Handle, std::shared_ptr<Link>> links;  // Guarded by mutex.
  std::deque<std::unique_ptr<Loaded>> ended;      // Guarded by mutex.
  std::deque<std::unique_ptr<Function>> retired;  // Guarded by mutex.
};
// Immortal; made at the first call.
Registry& registry();

// 0 and the object of a live handle; else what the call returns.
int find_loaded(const Here& here, Handle handle, HandleKind kind, Loaded** loaded);
// The same for a call that ends it: one whose load failed, too.
int find_ending(const Here& here, Handle handle, HandleKind kind, Loaded** loaded);
// A CUfunction, or a CUkernel in its place (cuLaunchKernel and others of the manual's "Execution
// Control" take both).
int find_function(const Here& here, CUfunction given, Function** function);
int find_kernel(const Here& here, CUkernel given, Function** function);

// Ends the object behind `handle`, with all that hangs on it: functions, and a library's modules.
// The worker is not told.
void forget(const Here& here, Loaded* loaded);

// The context ends, and with it its modules and what libraries have in it. Before its handles are
// retired.
void end_of_context(const Here& here, Handle context);

}  // namespace gpurun::client::interpose::modules
