// AuditLog: who did what with this machine's GPUs, from where and when: one line for each event,
//
//   2026-11-22T02:10:04Z lease.granted user=anna token=0123456789ab from="tcp ..." gpus=0,1
//
// apart from the daemon's log, whose level does not concern it. Values stand in quotes where they
// hold anything but letters, digits and a few signs; quotes and backslashes in them are escaped,
// control characters are '?'. No secret is ever among them.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpurun::server {

class AuditLog {
 public:
  // Of those who are turned away so many are written a second, so that a stranger cannot fill the
  // disk; the next line says how many were not (skipped=N).
  static constexpr unsigned kRefusalsASecond = 20;

  // `where`: "syslog" (facility authpriv: the journal), "none", or a file by absolute path (made
  // with mode 0600; opened for each line, so that it may be moved away at any time).
  // kInvalidArgument: none of these. Else what opening the file answered.
  // `bytes_max`: a file that has grown so far becomes "FILE.1", over the one before; 0: never.
  static Result<std::unique_ptr<AuditLog>> open(const std::string& where,
                                                std::uint64_t bytes_max = 0);

  struct Field {
    const char* name;
    std::string_view value;  // Left out when it is empty.
  };
  void write(const char* event, std::initializer_list<Field> fields);
  void write_refusal(const char* event, std::initializer_list<Field> fields);

 private:
  enum class Kind { kNone, kSyslog, kFile };
  AuditLog(Kind kind, std::string path, std::uint64_t bytes_max)
      : kind_(kind), path_(std::move(path)), bytes_max_(bytes_max) {}

  Status append(const std::string& line);
  void put(const std::string& line);

  const Kind kind_;
  const std::string path_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  bool failed_ = false;  // The last line; said once.
  bool cut_ = false;     // The file ends within a line.
  std::chrono::steady_clock::time_point second_;
  unsigned refusals_ = 0;  // In that second.
  unsigned skipped_ = 0;
};

// "name=value" of the fields that are not empty, each with a blank before.
std::string audit_fields(std::initializer_list<AuditLog::Field> fields);

}  // namespace gpurun::server
