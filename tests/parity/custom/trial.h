// Trial: one custom row, called through the client library and directly. Compares the calls that
// the device saw. The types of calls come from cuda.h, so include it first (trial_cuda.h does).
//
//   table.add("cuEventRecord", [](Trial& t) {
//     const Both<CUevent> event = t.event();
//     t.same(FN(cuEventRecord), event, t.stream());
//   });
//
// Where the client library changes a call, the trial describes the change, and makes the calls that
// the driver must see instead:
//
//   table.translated("cuMemcpyHtoD_v2", "the asynchronous copy, in the default stream",
//                    [](Trial& t) { ... t.expect_same(t.client(...), t.direct(...)); });
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/parity/custom/recording.h"
#include "tests/parity/custom/world.h"

namespace gpurun::parity {

// A live object with two names: the handle that the program holds, and the driver's own.
template <typename T>
struct Both {
  T client{};
  T driver{};
};
// Passes to either side the address of its own half.
template <typename T>
struct Out {
  Both<T>* both;
};
template <typename T>
Out<T> out(Both<T>& both) {
  return {&both};
}

// A function of CUDA: its name and its type in cuda.h.
template <typename Type>
struct Function {
  const char* name;
};
#define FN(name) (::gpurun::parity::Function<decltype(&::name)>{#name})

enum class Variant { kPlain, kPerThread };

class Trial {
 public:
  // `called`: the symbol to call for `row`, which is its own name or an alias.
  Trial(std::string row, std::string called, Variant variant)
      : row_(std::move(row)), called_(std::move(called)), variant_(variant) {}

  // One call of either side.
  template <typename... P, typename... A>
  Seen client(Function<CUresult (*)(P...)> function, A... arguments) {
    return client_call([&] { return call_client(function, arguments...); });
  }
  // For a call that is a fence itself, or after which no other call may follow.
  template <typename... P, typename... A>
  Seen client_alone(Function<CUresult (*)(P...)> function, A... arguments) {
    return client_call([&] { return call_client(function, arguments...); }, false);
  }
  template <typename... P, typename... A>
  Seen direct(Function<CUresult (*)(P...)> function, A... arguments) {
    return direct_call([&] { return call_direct(function, arguments...); });
  }
  // Does not look at the device. For preparation.
  template <typename... P, typename... A>
  CUresult call_client(Function<CUresult (*)(P...)> function, A... arguments) {
    const bool own = function.name == row_;
    const std::string name = own ? called_ : function.name;
    auto* typed = reinterpret_cast<CUresult (*)(P...)>(World::get().client_symbol(name));
    World::get().meet_worker();
    const CUresult result = typed(static_cast<P>(client_half(arguments, own))...);
    World::get().meet_worker();
    return result;
  }
  template <typename... P, typename... A>
  CUresult call_direct(Function<CUresult (*)(P...)> function, A... arguments) {
    auto* typed = reinterpret_cast<CUresult (*)(P...)>(World::get().device_symbol(function.name));
    return typed(static_cast<P>(driver_half(arguments))...);
  }

  // From now on client() makes its call after a wait, with nothing posted in between.
  void be_idle() { idle_ = true; }

  // Makes the next wait not an idle one. Do not call it while a stream captures.
  void say_something();

  // Several calls of one side.
  Seen client_call(const std::function<CUresult()>& calls, bool settle = true);
  Seen direct_call(const std::function<CUresult()>& calls);

  // Expects the same results, and the same calls of the device with the same inputs.
  void expect_same(const Seen& by_client, const Seen& direct);
  // Expects that the client answers by itself: the same result, and no call of the device except
  // the worker's housekeeping.
  void expect_local(const Seen& by_client, int result);
  // Rewrites direct calls on one object as if another one had been used. For calls that an object
  // allows only once.
  template <typename T>
  static Seen renamed(Seen direct, T from, T to) {
    std::uint64_t old_value = 0, new_value = 0;
    std::memcpy(&old_value, &from, sizeof from);
    std::memcpy(&new_value, &to, sizeof to);
    return renamed_value(std::move(direct), old_value, new_value);
  }
  template <typename T>
  void expect_value(std::uint64_t seen, T expected) {
    ++compared_;
    if constexpr (std::is_pointer_v<T>) {
      EXPECT_EQ(seen, reinterpret_cast<std::uintptr_t>(expected)) << called_;
    } else {
      EXPECT_EQ(seen, static_cast<std::uint64_t>(expected)) << called_;
    }
  }
  // Makes both calls with the same arguments and compares them.
  template <typename... P, typename... A>
  Seen same(Function<CUresult (*)(P...)> function, A... arguments) {
    const Seen by_client = client(function, arguments...);
    const Seen directly = direct(function, arguments...);
    expect_same(by_client, directly);
    return by_client;
  }
  template <typename T>
  void expect_equal(const Both<T>& both) {
    EXPECT_EQ(std::memcmp(&both.client, &both.driver, sizeof(T)), 0) << called_;
    ++compared_;
  }
  // Records that the client's new handle stands for the device's output `name` in that call.
  template <typename T>
  void bind(Both<T>& both, const Seen& by_client, const char* function, const char* name) {
    const std::uint64_t value = value_in(line_of(by_client, function), name);
    EXPECT_NE(value, 0u) << function << ": no " << name;
    std::memcpy(&both.driver, &value, sizeof value);
    if constexpr (std::is_same_v<T, CUevent>) World::get().know_event(value);
  }

  // Live objects, and values out of a parameter's domain.
  Both<CUcontext> context() const { return context_of_trials(); }
  Both<CUstream> new_stream(unsigned flags = 0);
  Both<CUevent> new_event(unsigned flags = 0);
  // Draws a created stream, the default stream, or the legacy and per-thread streams by name.
  Both<CUstream> stream();
  // The stream that NULL, or no stream parameter at all, means in this call.
  Both<CUstream> default_stream();
  // A stream on which a capture may begin.
  Both<CUstream> capturable_stream();
  // Device memory, at the same address on both sides, filled with bytes that show their place.
  CUdeviceptr memory(std::size_t bytes);
  std::size_t draw(std::size_t least, std::size_t most);
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[draw(0, values.size() - 1)];
  }
  std::vector<unsigned char> bytes(std::size_t count);
  // Undoes, after the trial, what a later trial must not find.
  void at_end(std::function<void()> undo) { undo_.push_back(std::move(undo)); }

  bool per_thread() const { return variant_ == Variant::kPerThread; }
  std::size_t compared() const { return compared_; }
  const std::string& called() const { return called_; }
  ~Trial();

 private:
  template <typename T>
  static T client_half(const T& value, bool) {
    return value;
  }
  // Direct calls other than the row's copy must name the thread's own stream.
  template <typename T>
  static T client_half(const Both<T>& value, bool own) {
    if constexpr (std::is_same_v<T, CUstream>) {
      if (!own && value.client == nullptr && value.driver != nullptr) return CU_STREAM_PER_THREAD;
    }
    return value.client;
  }
  template <typename T>
  static T* client_half(const Out<T>& value, bool) {
    return &value.both->client;
  }
  template <typename T>
  static T driver_half(const T& value) {
    return value;
  }
  template <typename T>
  static T driver_half(const Both<T>& value) {
    return value.driver;
  }
  template <typename T>
  static T* driver_half(const Out<T>& value) {
    return &value.both->driver;
  }
  static Both<CUcontext> context_of_trials();
  static Both<CUstream> per_thread_stream();
  static Seen renamed_value(Seen direct, std::uint64_t from, std::uint64_t to);

  const std::string row_;
  const std::string called_;
  const Variant variant_;
  std::size_t compared_ = 0;
  bool idle_ = false;
  std::vector<std::function<void()>> undo_;
};

// All trials, in the order in which they were added.
class TrialTable {
 public:
  using Run = std::function<void(Trial&)>;
  struct Entry {
    std::string symbol;
    std::string translation;  // Empty: the driver must see the same call.
    Run run;
  };

  void add(std::string symbol, Run run) { entries_.push_back({std::move(symbol), "", run}); }
  void translated(std::string symbol, std::string translation, Run run) {
    entries_.push_back({std::move(symbol), std::move(translation), run});
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// One function for each file.
void add_stream_trials(TrialTable& table);
void add_event_trials(TrialTable& table);
void add_memory_trials(TrialTable& table);
void add_array_trials(TrialTable& table);
void add_host_memory_trials(TrialTable& table);
void add_copy_trials(TrialTable& table);
void add_box_copy_trials(TrialTable& table);
void add_copy_batch_trials(TrialTable& table);
void add_memset_trials(TrialTable& table);
void add_launch_trials(TrialTable& table);
void add_module_trials(TrialTable& table);
void add_library_trials(TrialTable& table);
void add_link_trials(TrialTable& table);
void add_graph_trials(TrialTable& table);
void add_graph_host_node_trials(TrialTable& table);
void add_graph_memory_trials(TrialTable& table);
void add_graph_batch_trials(TrialTable& table);
void add_capture_trials(TrialTable& table);
void add_context_trials(TrialTable& table);

}  // namespace gpurun::parity
