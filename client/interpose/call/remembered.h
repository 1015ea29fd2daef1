// Remembered answers: answers of generated calls that stay the same until the program itself
// changes them (`remembered` in the table). The worker is asked once. Answers in the snapshot of
// the devices need no question at all.
//
// With GPURUN_SYNC=1 each call asks. Failures are never remembered, so the worker's driver answers
// a call with wrong arguments each time.
#pragma once

#include <array>

#include "base/bytes.h"
#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

class Question {
 public:
  // `arguments` as call_generated() takes them, but with checked handles, resolved streams, and the
  // server's numbers for devices. They must outlive this object. `context`: the context that the
  // answer may depend on. 0: none.
  Question(const EntryContext& here, const driver_abi::Row& row, void* const* arguments,
           Handle context);
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  // True: the outputs are written, or the call's context or the session is lost. `*result` is the
  // call's result.
  bool answered(Handle site_context, int* result) const;
  // Keeps the worker's reply, which must be a success.
  void remember(ByteView reply) const;

 private:
  bool may_be_remembered() const;
  bool put(const driver_abi::Parameter& parameter, std::size_t index);
  void put(ByteView bytes);
  bool answered_by_snapshot() const;

  // Larger than the arguments of any of these rows.
  static constexpr std::size_t kBytesMax = 192;

  const EntryContext& here_;
  const driver_abi::Row& row_;
  void* const* const arguments_;
  bool known_ = false;  // It is such a question, and its answer can be remembered.
  std::uint64_t asked_at_ = 0;
  std::size_t size_ = 0;
  std::array<std::byte, kBytesMax> bytes_{};  // The question, `size_` bytes of it.
};

// Call it before and after a call that may change such answers, whatever that call returned.
void forget_answers_changed_by(std::uint16_t row);
// Whether the program has set the pool of a device (cuDeviceSetMemPool, cuMemSetMemPool). No lock.
bool pools_were_set() noexcept;
// A context has ended. Its handle may begin a new life.
void forget_all_answers();

}  // namespace gpurun::client::interpose
