// LogReceiver: from bytes of the connection to frames.
#include "client/session/log_receiver.h"

#include "base/result.h"

namespace gpurun::client {

Status LogReceiver::start() {
  return thread_.start(
      "gpurun-receive",
      [](void* of) -> void* {
        static_cast<LogReceiver*>(of)->run();
        return nullptr;
      },
      this);
}

// The receiver thread: receives while no thread waits for a reply.
void LogReceiver::run() {
  transport::Watch* const watch = role_.watch();
  const auto over = [this] { return shutdown_.ending() || !shutdown_.alive(); };
  Status status;
  while (status.ok() && !over()) {
    if (watch == nullptr) {
      status = receive_more(Deadline::in(life_signs_.until_next_beat()));
      continue;
    }
    // It has its own clock, because the next beat belongs to the role, and the role's holder sends
    // life signs.
    const Status waited = watch->wait(Deadline::in(heartbeat_));
    if (over()) return;
    if (!waited.ok() && waited.code() != Code::kDeadline) {
      status = waited;
    } else if (role_.take()) {
      status = receive_what_came();
      if (!status.ok()) break;  // The role stays here, or another thread could find another reason.
      role_.give_up();
    }
  }
  if (!status.ok() && !shutdown_.ending()) shutdown_.die(std::move(status));
}

// One check only: later bytes wake the watcher again.
Status LogReceiver::receive_what_came() {
  GPURUN_RETURN_IF_ERROR(receive_what_is_there(false));
  return receive_held();
}

Status LogReceiver::handle_frames() {
  for (;;) {
    protocol::Frame frame;
    const Result<bool> whole = reader_.next(&frame);
    if (!whole.ok()) return whole.status();
    if (!*whole) return {};
    GPURUN_RETURN_IF_ERROR(handler_.handle(frame));
  }
}

Status LogReceiver::receive_more(Deadline deadline) {
  life_signs_.beat_when_due();
  // Any byte is a sign of life, so this waits for one byte and not for the rest of the frame.
  const Result<std::size_t> got = connection_.receive(reader_.space(), 1, deadline);
  if (!got.ok()) {
    return got.status().code() == Code::kDeadline ? life_signs_.check_silence() : got.status();
  }
  return heard(*got);
}

Status LogReceiver::receive_what_is_there(bool again) {
  life_signs_.beat_when_due();
  const Result<std::size_t> got = connection_.receive_some(reader_.space(), again);
  if (!got.ok()) return got.status();
  return *got == 0 ? life_signs_.check_silence() : heard(*got);
}

Status LogReceiver::heard(std::size_t bytes) {
  life_signs_.heard();
  reader_.filled(bytes);
  return handle_frames();
}

Status LogReceiver::receive_held() {
  while (connection_.holds_received()) {
    const Result<std::size_t> got = connection_.receive_some(reader_.space(), true);
    if (!got.ok()) return got.status();
    if (*got == 0) return {};
    reader_.filled(*got);
    GPURUN_RETURN_IF_ERROR(handle_frames());
  }
  return {};
}

}  // namespace gpurun::client
