// MirrorWorker: the far end of a session in the mirror model. It has the worker's real copies and
// twins (server/handlers/memory/host_mirror.h), and a device that runs the kernels of a
// MirrorProgram. It takes records in the order of the log. Two streams run at the same time, one
// use of memory after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "client/log/handles.h"
#include "server/handlers/memory/host_mirror.h"
#include "tests/model/mirror_program.h"
#include "tests/model/wire.h"

namespace gpurun::model {

// What a client calls. The numbers of opcodes that only this worker knows are small.
inline constexpr std::uint16_t kWaitCode = 1, kQueryCode = 2;
// kWaitCode, kQueryCode: for streams and events.
struct MirrorWait {
  enum What : std::uint32_t { kContext, kStream, kEvent } what = kContext;
  std::uint32_t which = 0;
};
client::Handle mirror_context();
client::Handle mirror_stream(int stream);
client::Handle mirror_event(int event);

// Where the byte is in the memory.
std::size_t place_of(char byte);
inline constexpr std::size_t kMirrorMemoryBytes = 4096;
inline constexpr std::size_t kAllocationPlaces[] = {0, 128};  // A and B.
inline constexpr std::size_t kAllocationBytes[] = {128, 64};

class MirrorWorker {
 public:
  // `memory`: the worker's copy, which holds zeros.
  MirrorWorker(Wire& wire, const MirrorProgram& program, std::byte* memory);
  ~MirrorWorker();

  // Takes records until the connection is down.
  void serve();
  // Waits until all work of the program is complete, so that each of its reads is checked.
  void await_all_work();
  // Runs kernels until stop().
  void run_device();
  void stop() { stopping_ = true; }

 private:
  struct Work {
    std::size_t step = 0;
    protocol::RecordHeader header;
    std::size_t use = 0;        // The next one.
    std::ptrdiff_t after = -1;  // kWait: the record.
  };
  struct Fence {
    Wire::Record record;
    std::vector<std::size_t> works;
  };

  void take(const Wire::Record& record);
  void exchange(const Wire::Record& record);
  void add_work(const Wire::Record& record, std::size_t step);
  std::vector<std::size_t> awaited_by(const Wire::Record& record) const;
  bool all_done(const std::vector<std::size_t>& works) const;
  void answer(const Wire::Record& record, int result, ByteView payload = {});
  void send(const protocol::ReplyHeader& header, ByteView payload = {});
  bool can_go_on(int stream) const;
  void go_on(int stream);
  void complete(const Work& work);

  Wire& wire_;
  const MirrorProgram& program_;
  std::byte* const memory_;
  server::HostMirror mirror_;
  Bytes reply_;
  std::deque<Work> streams_[2];
  std::vector<bool> complete_;             // By step.
  std::ptrdiff_t recorded_[2] = {-1, -1};  // By event: the last record's step.
  std::vector<Fence> fences_;
  bool stopping_ = false;
};

}  // namespace gpurun::model
