// Generated calls that ask what stays as it is until the program itself changes it (`remembered` in
// the table): the worker is asked once; what the snapshot of the devices tells, not even that.
//
// With GPURUN_SYNC=1 each call asks. Failures are never remembered: a call with wrong arguments is
// told by the worker's driver each time.
#pragma once

#include <array>

#include "base/bytes.h"
#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

class Question {
 public:
  // `arguments` as call_generated() takes them, but with handles checked, streams resolved, and the
  // server's numbers for devices; they must outlive this object. `context`: what the answer may
  // depend on, 0: on none.
  Question(const Here& here, const driver_abi::Row& row, void* const* arguments, Handle context);
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  // True: the outputs are written, or the call's context or the session is lost, as `*result` says.
  bool answered(Handle site_context, int* result) const;
  // What the worker replied when it was asked, a success.
  void remember(ByteView reply) const;

 private:
  bool may_be_remembered() const;
  bool put(const driver_abi::Parameter& parameter, std::size_t index);
  void put(ByteView bytes);
  bool answered_by_snapshot() const;

  // More than any of these rows reads.
  static constexpr std::size_t kBytesMax = 192;

  const Here& here_;
  const driver_abi::Row& row_;
  void* const* const arguments_;
  bool known_ = false;  // That it is such a question, whose answer could be remembered.
  std::uint64_t asked_at_ = 0;
  std::size_t size_ = 0;
  std::array<std::byte, kBytesMax> bytes_{};  // What was asked: `size_` of them.
};

// Before a call is made that may change such answers, and after it, whatever it returned.
void forget_answers_changed_by(std::uint16_t row);
// A context has ended: its handle may begin a new life.
void forget_all_answers();

}  // namespace gpurun::client::interpose
