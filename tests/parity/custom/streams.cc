// Stream calls and host functions.
#include <atomic>

#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

struct Called {
  std::atomic<int> times{0};
  CUstream stream = nullptr;
  int status = -1;
};

void host_function(void* user) { ++static_cast<Called*>(user)->times; }

void callback(CUstream stream, CUresult status, void* user) {
  auto* called = static_cast<Called*>(user);
  called->stream = stream;
  called->status = status;
  ++called->times;
}

// The worker puts an event of its own in the function's place. The event shows when the function's
// turn has come.
std::uint64_t stream_of_own_event() {
  std::uint64_t stream = ~std::uint64_t{0};
  for (const std::string& line : World::get().recorded()) {
    if (name_of(line) == "cuEventRecord" && is_on_an_own_event(line)) {
      stream = line.find("hStream=0x") == std::string::npos ? 0 : value_in(line, "hStream");
    }
  }
  return stream;
}

void add_creation(TrialTable& table) {
  table.add("cuStreamCreate", [](Trial& t) {
    Both<CUstream> stream;
    const Seen seen = t.same(FN(cuStreamCreate), out(stream), t.one_of({0u, 1u}));
    t.bind(stream, seen, "cuStreamCreate", "phStream");
    t.same(FN(cuStreamWaitEvent), stream, t.new_event(), 0u);
  });
  table.add("cuStreamCreateWithPriority", [](Trial& t) {
    Both<CUstream> stream;
    const int priority = static_cast<int>(t.draw(0, 12)) - 8;
    const Seen seen =
        t.same(FN(cuStreamCreateWithPriority), out(stream), t.one_of({0u, 1u}), priority);
    t.bind(stream, seen, "cuStreamCreateWithPriority", "phStream");
    t.same(FN(cuStreamWaitEvent), stream, t.new_event(), 0u);
  });
  table.add("cuStreamDestroy_v2", [](Trial& t) {
    (void)t.new_stream();  // Another stream than the last one.
    const Both<CUstream> stream = t.new_stream();
    (void)t.new_stream();
    t.same(FN(cuStreamDestroy_v2), stream);
  });
}

void add_waiting(TrialTable& table) {
  const auto add_wait = [&table](auto asked) {
    table.translated(asked.name,
                     "answered in the client for a stream that has been given nothing since it was "
                     "waited for",
                     [asked](Trial& t) {
                       const Both<CUstream> stream = t.new_stream();
                       t.same(asked, stream);
                       t.be_idle();
                       EXPECT_EQ(t.call_client(FN(cuStreamSynchronize), stream), CUDA_SUCCESS);
                       t.expect_local(t.client(asked, stream), t.call_direct(asked, stream));
                     });
  };
  add_wait(FN(cuStreamQuery));
  add_wait(FN(cuStreamSynchronize));
}

void add_host_functions(TrialTable& table) {
  const auto calls_back = [](Trial& t, auto launch) {
    const Both<CUstream> stream = t.stream();
    Called called;
    (void)World::get().recorded();
    EXPECT_EQ(launch(stream, static_cast<void*>(&called)), CUDA_SUCCESS);
    EXPECT_EQ(t.call_client(FN(cuStreamSynchronize), stream), CUDA_SUCCESS);
    EXPECT_EQ(called.times, 1);
    t.expect_value(stream_of_own_event(), stream.driver);
  };
  static constexpr char kHow[] =
      "an event in the stream tells the client, which calls the function";
  table.translated("cuLaunchHostFunc", kHow, [calls_back](Trial& t) {
    calls_back(t, [&](const Both<CUstream>& stream, void* called) {
      return t.call_client(FN(cuLaunchHostFunc), stream, &host_function, called);
    });
  });
  table.translated("cuLaunchHostFunc_v2", kHow, [calls_back](Trial& t) {
    calls_back(t, [&](const Both<CUstream>& stream, void* called) {
      return t.call_client(FN(cuLaunchHostFunc_v2), stream, &host_function, called,
                           t.one_of({0u, 1u}));
    });
  });
  table.translated("cuStreamAddCallback",
                   "an event in the stream tells the client, which calls the function",
                   [](Trial& t) {
                     const Both<CUstream> stream = t.stream();
                     Called called;
                     (void)World::get().recorded();
                     EXPECT_EQ(t.call_client(FN(cuStreamAddCallback), stream, &callback,
                                             static_cast<void*>(&called), 0u),
                               CUDA_SUCCESS);
                     EXPECT_EQ(t.call_client(FN(cuStreamSynchronize), stream), CUDA_SUCCESS);
                     EXPECT_EQ(called.times, 1);
                     EXPECT_EQ(called.stream, stream.client);
                     EXPECT_EQ(called.status, CUDA_SUCCESS);
                     t.expect_value(stream_of_own_event(), stream.driver);
                   });
}

}  // namespace

void add_stream_trials(TrialTable& table) {
  add_creation(table);
  add_waiting(table);
  add_host_functions(table);
}

}  // namespace gpurun::parity
