// Captures: this process's captures, the streams in them and the events recorded in them.
#include "client/interpose/capture/capture.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "client/interpose/call/current_call.h"
#include "client/interpose/call/stream.h"
#include "driver_abi/semantics/capture_rules.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::CaptureFamily;
using driver_abi::CaptureRefusal;
using driver_abi::CaptureRule;

// Identifies a stream in a way that is the same on every thread.
struct Place {
  Handle stream = 0;
  Handle context = 0;
  std::uint32_t lane = 0;  // Of a per-thread stream. 0 for others.

  bool operator==(const Place& other) const {
    return stream == other.stream && context == other.context && lane == other.lane;
  }
};

Place place_of_stream(const EntryContext& here, Handle stream) {
  const bool own = stream == protocol::kStreamPerThread;
  return {stream, here.stream_site(stream).context, own ? here.lane->id() : 0};
}

struct Member {
  Place place;
  bool blocking = true;
};

struct Capture {
  std::uint64_t id = 0;
  std::uint32_t lane = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  bool invalidated = false;
  Handle graph = 0;             // Set once the program has asked. Not a graph that existed before.
  std::vector<Member> members;  // The first is the origin.
  CaptureFrontier frontier;     // The program may hold pointers into it.

  bool has(const Place& place) const {
    return std::any_of(members.begin(), members.end(),
                       [&](const Member& member) { return member.place == place; });
  }
  bool touches(Handle context, bool blocking_only) const {
    return std::any_of(members.begin(), members.end(), [&](const Member& member) {
      return member.place.context == context && (member.blocking || !blocking_only);
    });
  }
};

struct Captures {
  std::mutex mutex;
  // Guarded by mutex.
  std::uint64_t last_id = 0;
  std::vector<Capture> active;
  // By event: the capture in which it was last recorded, even if that has ended.
  std::unordered_map<Handle, std::uint64_t> marks;

  Capture* find(const Place& place) {
    const auto found = std::find_if(active.begin(), active.end(),
                                    [&](const Capture& each) { return each.has(place); });
    return found == active.end() ? nullptr : &*found;
  }
  Capture* find(std::uint64_t id) {
    const auto found = std::find_if(active.begin(), active.end(),
                                    [&](const Capture& each) { return each.id == id; });
    return found == active.end() ? nullptr : &*found;
  }
};

std::atomic<std::size_t> g_mark_count{0};

bool any_mark() { return g_mark_count.load(std::memory_order_relaxed) != 0; }

// Never destroyed, because calls come after exit handlers have run.
Captures& captures() {
  static auto* const all = new Captures;
  return *all;
}

Member member_of(const EntryContext& here, Handle stream) {
  // A per-thread stream is a blocking one (manual, "Stream synchronization behavior").
  const Stream* known = stream > protocol::kStreamPerThread
                            ? static_cast<const Stream*>(here.handles().object_of(stream))
                            : nullptr;
  const bool blocking = known == nullptr || (known->flags & CU_STREAM_NON_BLOCKING) == 0;
  return {place_of_stream(here, stream), blocking};
}

int refuse(Capture& capture, const CaptureRefusal& refusal) {
  if (refusal.invalidates) capture.invalidated = true;
  return refusal.code;
}

// Refuses what the capture modes prohibit to this thread.
int refuse_unsafe(Captures& all, const Lane& lane) {
  const auto own = static_cast<unsigned>(lane.capture_mode());
  int result = 0;
  for (Capture& capture : all.active) {
    const bool own_capture = capture.lane == lane.id();
    if (driver_abi::mode_prohibits(own, static_cast<unsigned>(capture.mode), own_capture)) {
      result = refuse(capture, driver_abi::kProhibited);
    }
  }
  return result;
}

int refuse_context(Captures& all, Handle context, bool blocking_only,
                   const CaptureRefusal& refusal) {
  int result = 0;
  if (refusal.code == 0) return 0;
  for (Capture& capture : all.active) {
    if (capture.touches(context, blocking_only)) result = refuse(capture, refusal);
  }
  return result;
}

const CaptureRule& rule_of(const driver_abi::Row& row) {
  return driver_abi::capture_rule(driver_abi::capture_family(row.base));
}

}  // namespace

int refuse_unsafe_call(const EntryContext& here) {
  if (!capturing_somewhere()) return 0;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return refuse_unsafe(all, *here.lane);
}

int refuse_stream(const EntryContext& here, Handle stream) {
  const driver_abi::Row* const row = current_row();
  if (row == nullptr || here.context == nullptr) return 0;
  const CaptureRule& rule = rule_of(*row);
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (stream < protocol::kStreamPerThread) {
    return refuse_context(all, here.context->handle, true, rule.legacy);
  }
  Capture* const capture = all.find(place_of_stream(here, stream));
  if (capture == nullptr) return 0;
  const bool told = capture->invalidated && rule.invalidated.code != 0;
  return refuse(*capture, told ? rule.invalidated : rule.capturing);
}

int refuse_event(const EntryContext& here, Handle event) {
  if (!capturing_somewhere() && !any_mark()) return 0;
  const CaptureRule& rule = driver_abi::capture_rule(CaptureFamily::kEvent);
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (const auto mark = all.marks.find(event); mark != all.marks.end()) {
    Capture* const capture = all.find(mark->second);
    return capture == nullptr ? rule.event.code : refuse(*capture, rule.event);
  }
  return refuse_unsafe(all, *here.lane);
}

bool context_captures(Handle context) {
  if (!capturing_somewhere()) return false;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return std::any_of(all.active.begin(), all.active.end(),
                     [&](const Capture& each) { return each.touches(context, false); });
}

int refuse_context_wait(Handle context) {
  if (!capturing_somewhere()) return 0;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return refuse_context(all, context, false,
                        driver_abi::capture_rule(CaptureFamily::kContext).context);
}

std::optional<Capturing> capture_of(const EntryContext& here, Handle stream) {
  if (!capturing_somewhere()) return std::nullopt;
  const Place place = place_of_stream(here, stream);
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Capture* const found = all.find(place);
  if (found == nullptr) return std::nullopt;
  const bool origin = found->members.front().place == place;
  return Capturing{origin, found->invalidated, found->mode, found->lane};
}

Handle graph_of_capture(const EntryContext& here, Handle stream) {
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Capture* const found = all.find(place_of_stream(here, stream));
  return found == nullptr ? 0 : found->graph;
}

void capture_graph_told(const EntryContext& here, Handle stream, Handle graph) {
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Capture* const found = all.find(place_of_stream(here, stream));
  if (found != nullptr) found->graph = graph;
}

bool keep_frontier(const EntryContext& here, Handle stream, CaptureFrontier&& told,
                   const CUgraphNode** nodes, const CUgraphEdgeData** edges) {
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Capture* const found = all.find(place_of_stream(here, stream));
  if (found == nullptr) return false;
  found->frontier = std::move(told);
  if (nodes != nullptr) *nodes = found->frontier.nodes.data();
  if (edges != nullptr) *edges = found->frontier.edges.data();
  return true;
}

void capture_begun(const EntryContext& here, Handle stream, CaptureMode mode) {
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.active.push_back(
      {++all.last_id, here.lane->id(), mode, false, 0, {member_of(here, stream)}, {}});
  g_capture_count.store(static_cast<int>(all.active.size()), std::memory_order_release);
}

void capture_invalidated(const EntryContext& here, Handle stream) {
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Capture* const found = all.find(place_of_stream(here, stream));
  if (found != nullptr) found->invalidated = true;
}

void capture_ended(const EntryContext& here, Handle stream) {
  const Place place = place_of_stream(here, stream);
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.active.erase(std::remove_if(all.active.begin(), all.active.end(),
                                  [&](const Capture& each) { return each.has(place); }),
                   all.active.end());
  g_capture_count.store(static_cast<int>(all.active.size()), std::memory_order_release);
}

namespace {

// Forgets the captures that began in such a place. The lock must be held.
template <typename IsSuch>
void forget_captures(Captures& all, IsSuch is_such) {
  all.active.erase(
      std::remove_if(all.active.begin(), all.active.end(),
                     [&](const Capture& each) { return is_such(each.members.front().place); }),
      all.active.end());
  g_capture_count.store(static_cast<int>(all.active.size()), std::memory_order_release);
}

}  // namespace

// Other captures that the stream joined go on, because they contain what it captured.
void end_captures_of_stream(const EntryContext& here, Handle stream) {
  if (!capturing_somewhere()) return;
  const Place gone = place_of_stream(here, stream);
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  forget_captures(all, [&](const Place& place) { return place == gone; });
}

void end_captures_of_context(Handle context) {
  if (!capturing_somewhere()) return;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (Capture& capture : all.active) {
    capture.invalidated = capture.invalidated || capture.touches(context, false);
  }
  forget_captures(all, [&](const Place& place) { return place.context == context; });
}

void note_event_record(const EntryContext& here, Handle event, Handle stream, bool external) {
  if (!capturing_somewhere() && !any_mark()) return;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Capture* const capture = all.find(place_of_stream(here, stream));
  if (capture == nullptr) {
    all.marks.erase(event);
  } else if (!external) {
    all.marks[event] = capture->id;
  }
  g_mark_count.store(all.marks.size(), std::memory_order_relaxed);
}

int note_event_wait(const EntryContext& here, Handle event, Handle stream, bool external) {
  if (!capturing_somewhere() && !any_mark()) return 0;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Capture* const here_captures = all.find(place_of_stream(here, stream));
  if (external && here_captures != nullptr) return 0;
  const auto mark = all.marks.find(event);
  if (mark == all.marks.end()) {
    if (here_captures == nullptr) return 0;
    // Captured work cannot depend on work outside.
    here_captures->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  Capture* const recorded_in = all.find(mark->second);
  if (here_captures != nullptr && here_captures != recorded_in) {
    here_captures->invalidated = true;
    if (recorded_in != nullptr) recorded_in->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (recorded_in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (recorded_in->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (here_captures == nullptr) recorded_in->members.push_back(member_of(here, stream));
  return 0;
}

void note_event_end(Handle event) {
  if (!any_mark()) return;
  Captures& all = captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.marks.erase(event);
  g_mark_count.store(all.marks.size(), std::memory_order_relaxed);
}

}  // namespace gpurun::client::interpose
