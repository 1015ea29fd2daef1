// CudaProgram: texts and rules. Sources: CUDA Programming Guide, "Streams", "Default Stream",
// "Implicit Synchronization", "Events". CUDA Driver API, "Stream synchronization behavior", "API
// synchronization behavior", cuEventRecord, cuStreamWaitEvent, cuMemFree.
#include "tests/model/cuda_program.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>

namespace gpurun::model {
namespace {

constexpr const char* kKinds[] = {"launch", "late", "copy", "record", "wait", "sync",
                                  "early",  "free", "load", "end",    "await"};
constexpr int kKindCount = static_cast<int>(std::size(kKinds));

bool same_stream(const CudaStep& a, const CudaStep& b) {
  return a.context == b.context && a.stream == b.stream;
}

// "The legacy default stream ... synchronizes with other streams in the same CUcontext except for
// non-blocking streams". Per-thread streams are no exception.
bool through_legacy(const CudaStep& a, const CudaStep& b) {
  if (a.context != b.context) return false;
  const auto synchronises = [](char stream) { return stream != 'n' && stream != 'm'; };
  return (a.stream == '0' && synchronises(b.stream)) || (b.stream == '0' && synchronises(a.stream));
}

// The record that a wait refers to: "the most recent call to cuEventRecord".
bool is_record_of(const CudaProgram& program, std::size_t record, std::size_t wait) {
  if (program[record].kind != CudaStep::kRecord) return false;
  for (std::size_t i = record + 1; i < wait; ++i) {
    if (program[i].kind == CudaStep::kRecord && program[i].event == program[wait].event) {
      return false;
    }
  }
  return program[record].event == program[wait].event;
}

}  // namespace

const CudaStep* record_before(const CudaProgram& program, std::size_t index) {
  for (std::size_t i = index; i-- > 0;) {
    if (program[i].kind == CudaStep::kRecord && program[i].event == program[index].event) {
      return &program[i];
    }
  }
  return nullptr;
}

namespace {

bool directly_before(const CudaProgram& program, std::size_t i, std::size_t j) {
  const CudaStep& a = program[i];
  const CudaStep& b = program[j];
  const bool early = a.early();
  // A free returns when the work of its context is complete. Later calls come after that.
  if (a.kind == CudaStep::kFree) return b.kind != CudaStep::kLoad;
  if (!a.on_device() && !early) return false;
  // A thread that has waited may end what the earlier work used, whatever its context.
  const bool ends = b.kind == CudaStep::kFree || b.kind == CudaStep::kEnd;
  if (early && ends) return true;
  if (b.kind == CudaStep::kFree) return a.context == b.context;  // Its memory may be in use.
  if (!b.of_stream()) return false;
  // The call returned after the copy or the awaited work was complete. Later calls come after that.
  if (a.kind == CudaStep::kCopy || early) return true;
  if (b.kind == CudaStep::kAwait) return is_record_of(program, i, j);
  if (same_stream(a, b)) return true;
  if (b.waits()) return b.stream == '0' && through_legacy(a, b);
  return through_legacy(a, b) || (b.kind == CudaStep::kWait && is_record_of(program, i, j));
}

}  // namespace

std::string text_of(const CudaProgram& program) {
  std::string text;
  for (const CudaStep& step : program) {
    if (!text.empty()) text += ", ";
    text += std::string(kKinds[step.kind]) + " " + step.context;
    if (step.of_stream()) text += step.stream;
    if (step.of_event()) text += " " + std::to_string(step.event);
  }
  return text;
}

CudaProgram program_from(const std::string& text) {
  CudaProgram program;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, ',');) {
    std::istringstream words(part);
    std::string kind, place;
    CudaStep step;
    words >> kind >> place >> step.event;
    int known = 0;
    while (known < kKindCount && kind != kKinds[known]) ++known;
    if (known == kKindCount || place.empty()) {
      std::fprintf(stderr, "no step: %s\n", part.c_str());
      std::exit(2);
    }
    step.kind = static_cast<CudaStep::Kind>(known);
    step.context = place[0];
    step.stream = place.size() > 1 ? place[1] : '0';
    program.push_back(step);
  }
  return program;
}

std::vector<std::vector<bool>> order_by_cuda(const CudaProgram& program) {
  const std::size_t count = program.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  for (std::size_t j = 0; j < count; ++j) {
    for (std::size_t i = 0; i < j; ++i) before[i][j] = directly_before(program, i, j);
  }
  for (std::size_t k = 0; k < count; ++k) {
    const bool passes_on =
        program[k].on_device() || program[k].early() || program[k].kind == CudaStep::kFree;
    if (!passes_on) continue;
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t j = k + 1; j < count; ++j) {
        if (before[i][k] && before[k][j]) before[i][j] = true;
      }
    }
  }
  return before;
}

bool must_be_issued_before(const CudaProgram& program, std::size_t later, std::size_t earlier) {
  const CudaStep& a = program[earlier];
  const CudaStep& b = program[later];
  if (a.context != b.context) return false;
  return a.kind == CudaStep::kLoad || (a.kind == CudaStep::kFree && !b.of_stream());
}

bool may_wait(const CudaProgram& program, std::size_t later, std::size_t earlier) {
  const CudaStep& a = program[earlier];
  const CudaStep& b = program[later];
  if (a.kind == CudaStep::kCopy || a.early()) return true;
  if (a.kind == CudaStep::kEnd) return false;  // Its client waits for it.
  if (a.kind == CudaStep::kFree) return true;
  if (a.of_stream() && b.of_stream()) {
    if (same_stream(a, b) || through_legacy(a, b)) return true;
    // Records of an event and their users keep the order of calls, because each refers to the last
    // record.
    const bool records = a.kind == CudaStep::kRecord || b.kind == CudaStep::kRecord;
    return a.of_event() && b.of_event() && a.event == b.event && records;
  }
  if (a.context != b.context) return false;
  return true;  // A load, or a free behind all earlier work of its context.
}

}  // namespace gpurun::model
