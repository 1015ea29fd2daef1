// Module objects: the objects behind the handles of modules, libraries, kernels and functions, and
// the one registry that keeps them.
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

#include "client/interpose/call/forward.h"
#include "client/interpose/modules/jit_request.h"
#include "client/interpose/modules/kernel_table.h"
#include "driver_abi/image_length.h"
#include "driver_abi/state/legacy_launch.h"

namespace gpurun::client::interpose::modules {

struct Function;

// A CUmodule or a CUlibrary.
struct Loaded {
  enum class State : std::uint8_t {
    kDeferred,  // Nothing was sent. The program promised to preserve the image.
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
  Handle context = 0;         // The context of the load. 0: none was current.
  Loaded* library = nullptr;  // The library of a module that cuLibraryGetModule returned.

  driver_abi::Image image{};      // kDeferred: borrowed from the program.
  const void* wrapper = nullptr;  // The program's argument, if it was a wrapper of nvcc's.
  Sha256Digest digest{};

  // Registry::mutex guards the members below.
  State state = State::kDeferred;
  int failure = 0;         // kFailed.
  bool unasked = false;    // Loaded as an adjacent image, before the program asked for it.
  bool confirmed = false;  // The worker has reported the load. Later calls need no order after it.
  std::shared_ptr<KernelTable> table;
  std::map<std::string, Function*, std::less<>> functions;
  std::map<Handle, Loaded*> modules;                             // Of a library, by context.
  std::map<std::pair<Handle, std::string>, Variable> variables;  // By context and name.
  std::map<std::string, Variable, std::less<>> managed;  // Of a library, usable by host code.
};

// A CUkernel or a CUfunction.
struct Function {
  Function(Loaded& loaded, std::shared_ptr<KernelTable> from, const Kernel& of);

  // The program's setting, or the image's value.
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
  Function* kernel = nullptr;  // The kernel of a function that cuKernelGetFunction returned.
  const std::shared_ptr<KernelTable> table;
  const Kernel& info;
  std::array<std::atomic<int>, protocol::kFunctionAttributes> values;
  driver_abi::LegacyLaunch legacy_launch;
  std::map<Handle, Function*> functions;  // Of a kernel, by context. Guarded by Registry::mutex.
};

// A CUlinkState: the program's output places for the driver, and the driver's latest outputs. Its
// handle has no object, because that object could end while another thread uses it. Each user of a
// link holds a shared_ptr to it.
struct Link {
  Handle handle = 0;
  Handle context = 0;
  std::mutex mutex;            // Held through each of the link's calls. Guards the next two.
  JitRequest jit;              // Writes to the program's outputs.
  protocol::LinkReply latest;  // The values of the outputs. Without a part.
  // The images that the link has made. The program has their addresses until the link ends. Guarded
  // by Registry::mutex.
  std::vector<std::shared_ptr<const Bytes>> images;
};

struct Registry {
  // The number of ended objects that stay readable. A program may use a handle in one thread while
  // another thread ends it.
  static constexpr std::size_t kEndedMax = 1024;

  std::mutex mutex;                 // Never held across a call of the session.
  std::condition_variable changed;  // Notified when a Loaded leaves kLoading.
  KnownImages known;
  std::map<Handle, Loaded*> deferred;             // Libraries. Guarded by mutex.
  std::map<const void*, Loaded*> by_wrapper;      // Libraries. Guarded by mutex.
  std::set<Loaded*> alive;                        // All but modules of libraries. Guarded by mutex.
  std::map<Handle, std::shared_ptr<Link>> links;  // Guarded by mutex.
  std::deque<std::unique_ptr<Loaded>> ended;      // Guarded by mutex.
  std::deque<std::unique_ptr<Function>> retired;  // Guarded by mutex.
};
// Immortal. Created at the first call.
Registry& registry();

// Returns 0 and the object of a live handle, or the call's result.
int find_loaded(const EntryContext& here, Handle handle, HandleKind kind, Loaded** loaded);
// As find_loaded(), for a call that ends the object. Also accepts an object with a failed load.
int find_ending(const EntryContext& here, Handle handle, HandleKind kind, Loaded** loaded);
// Finds a CUfunction, or a CUkernel in its place. cuLaunchKernel and others of the manual's
// "Execution Control" take both.
int find_function(const EntryContext& here, CUfunction given, Function** function);
int find_kernel(const EntryContext& here, CUkernel given, Function** function);

// Ends the object behind `handle` and everything that belongs to it: functions, and a library's
// modules. Sends nothing to the worker.
void forget(const EntryContext& here, Loaded* loaded);

// The context ends, and with it its modules and the parts of libraries in it. Call it before the
// context's handles are retired.
void end_of_context(const EntryContext& here, Handle context);

}  // namespace gpurun::client::interpose::modules
