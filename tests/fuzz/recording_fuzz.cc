// Recordings: a server's statistics and events, and the files that gpuctl reads.
#include "protocol/statistics/recording.h"
#include "protocol/statistics/worker_statistics.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace gpurun;
using namespace gpurun::protocol;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t which = input.number<std::uint8_t>();
  const ByteView bytes = input.rest();
  switch (which % 3) {
    case 0:
      if (const auto statistics = parse_worker_statistics(bytes); statistics.ok()) {
        GPURUN_FUZZ_CHECK(statistics->rows.size() <= limits::kRowsMax);
        GPURUN_FUZZ_CHECK(encode(*statistics).size() == bytes.size());
      }
      break;
    case 1:
      if (const auto recording = parse_recording(bytes); recording.ok()) {
        GPURUN_FUZZ_CHECK(recording->events.size() <= bytes.size() / sizeof(RecordedEvent));
        GPURUN_FUZZ_CHECK(recording->names.size() <= protocol::kRecordedNamesMax);
        GPURUN_FUZZ_CHECK(encode(*recording).size() <= bytes.size());
      }
      break;
    default:
      if (const auto file = parse_trace_file(bytes); file.ok()) {
        GPURUN_FUZZ_CHECK(encode(*file).size() == bytes.size());
      }
  }
  return 0;
}
