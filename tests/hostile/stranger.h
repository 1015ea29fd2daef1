// Stranger: a client with a valid ticket that has attached and then sends anything, frame by frame,
// over the connections of its own session. Used by one thread. Its reader thread collects the
// worker's answers, and never acknowledges any. Every wait is bounded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "client/attach/attach.h"
#include "protocol/calls/handle_form.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"

namespace gpurun::hostile {

using driver_abi::HandleKind;
using protocol::Form;
using protocol::FrameKind;
using protocol::Order;
using protocol::RecordHeader;

std::uint16_t opcode(const char* symbol);
// A handle in the form in which our client mints it.
constexpr std::uint64_t handle(HandleKind kind, std::uint64_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift |
         std::uint64_t{1} << protocol::kHandleGenerationShift | index;
}

class Stranger {
 public:
  struct Reply {
    int result = 0;
    Bytes payload;
  };

  explicit Stranger(client::Attached attached);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Sends raw bytes, on the log or on the first bulk connection. It does not fail if the worker is
  // gone.
  void say(ByteView bytes) { send(*channels_.log, bytes); }
  void say_bulk(ByteView bytes) { send(*channels_.bulk.front(), bytes); }
  static Bytes frame(FrameKind kind, std::uint64_t sequence, ByteView payload);
  static Bytes record(RecordHeader header, ByteView payload, std::uint64_t sequence);
  // A bulk frame.
  void chunk(FrameKind kind, const protocol::BulkHeader& header, std::size_t bytes);

  // Sends a well-formed record with the next number, in its own frame. Returns the number.
  std::uint64_t call(RecordHeader header, ByteView payload);
  // Sends a record and waits for its answer. nullopt: the session has ended.
  std::optional<Reply> ask(RecordHeader header, ByteView payload);
  // Sends `count` equal records with that header, in as few frames as possible.
  void flood(RecordHeader header, ByteView payload, std::size_t count);
  // Calls a generated row and waits. The arguments are as libffi takes them.
  std::optional<Reply> ask_row(const char* symbol, std::vector<void*> arguments,
                               const std::vector<std::uint64_t>& minted = {},
                               Order order = Order::kContext);
  // Whether the worker still answers a fence behind all that was sent.
  bool answers();

  // Honest steps, which give the next acts something to act on. False: they failed.
  bool make_context();                          // kContext, a handle.
  std::uint64_t allocate(std::uint64_t bytes);  // 0: none.
  int load(std::string_view ptx);               // Into kModule. Returns the CUresult.
  // As load(), into a library with that handle.
  int load_library(std::uint64_t handle, std::string_view ptx);
  bool find_kernel(const char* name);  // Into kFunction.
  static constexpr std::uint64_t kContext = handle(HandleKind::kContext, 1);
  static constexpr std::uint64_t kModule = handle(HandleKind::kModule, 2);
  static constexpr std::uint64_t kFunction = handle(HandleKind::kFunction, 3);
  static RecordHeader in_context(const char* symbol, Form form, Order order);
  static RecordHeader in_stream(const char* symbol, Form form);

  // Closes without a goodbye.
  void cut();
  // How the session ended, by itself or because nothing more is sent. That is the worker's goodbye,
  // "closed" without one, or "lives" if the session has not ended within `patience`.
  std::string end(std::chrono::milliseconds patience);

 private:
  int load_as(const char* row, std::uint64_t handle, std::string_view ptx);
  static void send(transport::Connection& to, ByteView bytes);
  void read_log();
  void read_bulk();

  client::Session::Channels channels_;
  std::uint64_t last_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Reply> replies_;
  bool ended_ = false;
  std::string goodbye_;
  std::thread log_reader_;
  std::thread bulk_reader_;
};

}  // namespace gpurun::hostile
