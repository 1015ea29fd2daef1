// Trial: calls, compares, and creates live objects.
#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text.empty() ? "\n  nothing" : text;
}

std::vector<std::string> inputs(const std::vector<std::string>& lines) {
  std::vector<std::string> all;
  for (const std::string& line : lines) all.push_back(inputs_of_line(line));
  return all;
}

// Removes the worker's housekeeping, unless it is expected.
std::vector<std::string> asked_for(const std::vector<std::string>& lines,
                                   const std::vector<std::string>& expected) {
  std::vector<std::string> kept;
  for (const std::string& line : lines) {
    const bool wanted = std::any_of(expected.begin(), expected.end(), [&](const auto& other) {
      return name_of(other) == name_of(line);
    });
    if (wanted || !is_housekeeping(line)) kept.push_back(line);
  }
  return kept;
}

void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
  }
}

}  // namespace

Trial::~Trial() {
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) (*undo)();
}

// The client sends no second wait if it has posted nothing since the first one.
void Trial::say_something() {
  constexpr unsigned kOfTheWorker = 2;  // CU_EVENT_DISABLE_TIMING: is_on_an_own_event().
  CUevent event = nullptr;
  EXPECT_EQ(call_client(FN(cuEventCreate), &event, kOfTheWorker), CUDA_SUCCESS);
  EXPECT_EQ(call_client(FN(cuEventDestroy_v2), event), CUDA_SUCCESS);
}

Seen Trial::client_call(const std::function<CUresult()>& call, bool settle) {
  // Completes earlier posted calls, which do not belong to this call.
  if (settle) {
    EXPECT_EQ(call_client(FN(cuCtxSynchronize)), CUDA_SUCCESS) << called_ << " prepares";
    if (!idle_) say_something();
  }
  (void)World::get().recorded();
  Seen seen;
  seen.result = call();
  if (settle) {
    // The fence returns failures that occurred after the call had returned.
    if (!idle_) say_something();
    const int late = call_client(FN(cuCtxSynchronize));
    if (seen.result == 0) seen.result = late;
  }
  for (std::string& line : World::get().recorded()) {
    if (!is_on_an_own_event(line)) seen.lines.push_back(std::move(line));
  }
  if (settle) {
    const auto fence = std::find_if(seen.lines.rbegin(), seen.lines.rend(), [](const auto& line) {
      return name_of(line) == "cuCtxSynchronize";
    });
    if (fence != seen.lines.rend()) seen.lines.erase(std::next(fence).base());
    seen.lines = without_looks(std::move(seen.lines));
  }
  return seen;
}

Seen Trial::direct_call(const std::function<CUresult()>& call) {
  (void)World::get().recorded();
  Seen seen;
  seen.result = call();
  // A thread of the worker may unset its context only now, after its call was answered.
  const bool of_contexts = called_.find("Ctx") != std::string::npos;
  for (std::string& line : World::get().recorded()) {
    const bool waits = called_.rfind("cuCtxSynchronize", 0) == 0;
    const bool taken_off = (!of_contexts && line.rfind("cuCtxSetCurrent(ctx=0x0,", 0) == 0) ||
                           (waits && line.rfind("cuCtxSetCurrent(", 0) == 0);
    if (!taken_off && !is_on_an_own_event(line)) seen.lines.push_back(std::move(line));
  }
  return seen;
}

void Trial::expect_same(const Seen& by_client, const Seen& direct) {
  ++compared_;
  EXPECT_EQ(by_client.result, direct.result) << called_;
  EXPECT_FALSE(direct.lines.empty()) << called_;
  const auto got = asked_for(by_client.lines, direct.lines);
  EXPECT_EQ(inputs(got), inputs(direct.lines))
      << called_ << ": the device saw" << joined(by_client.lines) << "\ndirectly"
      << joined(direct.lines);
}

void Trial::expect_local(const Seen& by_client, int result) {
  ++compared_;
  EXPECT_EQ(by_client.result, result) << called_;
  const auto got = asked_for(by_client.lines, {});
  EXPECT_TRUE(got.empty()) << called_ << ": the device saw" << joined(got);
}

Seen Trial::renamed_value(Seen direct, std::uint64_t from, std::uint64_t to) {
  const auto text = [](std::uint64_t value) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "0x%llx", static_cast<unsigned long long>(value));
    return std::string(digits);
  };
  const std::string old_text = text(from), new_text = text(to);
  for (std::string& line : direct.lines) {
    for (std::size_t at = line.find(old_text); at != std::string::npos;
         at = line.find(old_text, at + new_text.size())) {
      line.replace(at, old_text.size(), new_text);
    }
  }
  return direct;
}

Both<CUcontext> Trial::context_of_trials() {
  static const Both<CUcontext> context = [] {
    Trial t("", "", Variant::kPlain);
    Both<CUcontext> made;
    must(t.call_client(FN(cuInit), 0u), "cuInit");
    World::get().look_for_initialization();
    must(t.call_client(FN(cuDevicePrimaryCtxRetain), &made.client, 0), "retain");
    must(t.call_client(FN(cuCtxSetCurrent), made.client), "set current");
    const Seen fence = t.client_call([] { return CUDA_SUCCESS; });
    must(static_cast<CUresult>(fence.result), "fence");
    must(t.call_direct(FN(cuDevicePrimaryCtxRetain), &made.driver, 0), "retain directly");
    must(t.call_direct(FN(cuCtxSetCurrent), made.driver), "set current directly");
    return made;
  }();
  return context;
}

Both<CUstream> Trial::new_stream(unsigned flags) {
  (void)context();
  Both<CUstream> stream;
  const Seen seen = client(FN(cuStreamCreate), &stream.client, flags);
  must(static_cast<CUresult>(seen.result), "cuStreamCreate");
  bind(stream, seen, "cuStreamCreate", "phStream");
  return stream;
}

Both<CUevent> Trial::new_event(unsigned flags) {
  (void)context();
  Both<CUevent> event;
  const Seen seen = client(FN(cuEventCreate), &event.client, flags);
  must(static_cast<CUresult>(seen.result), "cuEventCreate");
  bind(event, seen, "cuEventCreate", "phEvent");
  return event;
}

// The worker creates the thread's own stream on first use. Work queued there reveals its handle.
Both<CUstream> Trial::per_thread_stream() {
  static const Both<CUstream> stream = [] {
    Trial t("", "", Variant::kPlain);
    const Both<CUevent> event = t.new_event();
    Both<CUstream> found;
    found.client = CU_STREAM_PER_THREAD;
    t.bind(found, t.client(FN(cuEventRecord), event, found.client), "cuEventRecord", "hStream");
    return found;
  }();
  return stream;
}

Both<CUstream> Trial::default_stream() {
  if (!per_thread()) return {nullptr, nullptr};
  return {nullptr, per_thread_stream().driver};
}

Both<CUstream> Trial::stream() {
  static const Both<CUstream> blocking = new_stream(0);
  static const Both<CUstream> other = new_stream(CU_STREAM_NON_BLOCKING);
  switch (draw(0, 5)) {
    case 0:
      return default_stream();
    case 1:
      return {CU_STREAM_LEGACY, CU_STREAM_LEGACY};
    case 2:
      return per_thread_stream();
    case 3:
      return blocking;
    default:
      return other;
  }
}

Both<CUstream> Trial::capturable_stream() {
  Both<CUstream> made = new_stream(draw(0, 1) == 0 ? 0u : unsigned{CU_STREAM_NON_BLOCKING});
  at_end([this, made] { (void)client(FN(cuStreamDestroy_v2), made); });
  return made;
}

CUdeviceptr Trial::memory(std::size_t count) {
  (void)context();
  CUdeviceptr address = 0;
  must(call_client(FN(cuMemAlloc_v2), &address, count), "cuMemAlloc_v2");
  // Directly from this process, because the device's memory is plain memory.
  const std::vector<unsigned char> contents = bytes(count);
  std::memcpy(reinterpret_cast<void*>(address), contents.data(), count);
  at_end([this, address] { (void)client(FN(cuMemFree_v2), address); });
  return address;
}

std::size_t Trial::draw(std::size_t least, std::size_t most) {
  return std::uniform_int_distribution<std::size_t>(least, most)(World::get().random());
}

std::vector<unsigned char> Trial::bytes(std::size_t count) {
  std::vector<unsigned char> all(count);
  for (unsigned char& each : all) each = static_cast<unsigned char>(World::get().random()());
  return all;
}

}  // namespace gpurun::parity
