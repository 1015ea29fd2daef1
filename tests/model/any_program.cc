// any_program(): only steps that the client may send.
#include "tests/model/any_program.h"

#include "tests/model/model.h"

namespace gpurun::model {
namespace {

constexpr const char* kStreams = "0pqbcnm";

// Puts the last step, an await, into the stream of its event's last record. The client sends an
// await only in a stream that does not wait for others by itself.
bool place_await(CudaProgram* program) {
  CudaStep& step = program->back();
  const CudaStep* const record = record_before(*program, program->size() - 1);
  if (record == nullptr || (record->stream != 'n' && record->stream != 'm')) return false;
  step.context = record->context;
  step.stream = record->stream;
  return true;
}

}  // namespace

CudaProgram any_program() {
  const std::size_t length = 2 + choose(9);
  CudaStep places[3];
  for (CudaStep& place : places) {
    place.context = choose(4) == 3 ? 'B' : 'A';
    place.stream = kStreams[choose(7)];
  }
  CudaStep::Kind kinds[5];
  for (CudaStep::Kind& kind : kinds) kind = static_cast<CudaStep::Kind>(choose(11));
  CudaProgram program;
  while (program.size() < length) {
    CudaStep step = places[choose(3)];
    step.kind = kinds[choose(5)];
    if (!step.of_stream() || step.kind == CudaStep::kCopy) step.stream = '0';
    // Only in these streams the client knows that no other work is queued.
    if (step.kind == CudaStep::kEarly) step.stream = choose(2) == 0 ? 'n' : 'm';
    if (step.of_event()) step.event = choose(4) == 3 ? 1 : 0;
    program.push_back(step);
    if (step.kind == CudaStep::kAwait && !place_await(&program)) {
      program.back().kind = CudaStep::kLaunch;
    }
  }
  return program;
}

}  // namespace gpurun::model
