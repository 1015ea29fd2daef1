// AuditLog: the record of which user did what with this machine's GPUs, from where and when. It has
// one line for each event:
//
//   2026-11-22T02:10:04Z lease.granted user=anna token=0123456789ab from="tcp ..." gpus=0,1
//
// It is separate from the daemon's log and does not depend on its level. A value with anything but
// letters, digits and a few signs is in quotes. In quoted values, quotes and backslashes are
// escaped and control characters become '?'. No value is ever a secret.
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
#include <utility>

#include "base/result.h"

namespace gpurun::server {

class AuditLog {
 public:
  // At most this many refusals are written each second, so that a stranger cannot fill the disk.
  // The next line has the number of omitted ones (skipped=N).
  static constexpr unsigned kRefusalsASecond = 20;

  // `where` is "syslog" (facility authpriv: the journal), "none", or a file by absolute path. The
  // file is made with mode 0600 and opened for each line, so it may be moved away at any time. A
  // file that reaches `bytes_max` is renamed to "FILE.1", over the previous one. 0: never.
  // kInvalidArgument: another `where`. Otherwise the error of opening the file.
  static Result<std::unique_ptr<AuditLog>> open(const std::string& where,
                                                std::uint64_t bytes_max = 0);

  struct Field {
    const char* name;
    std::string_view value;  // Omitted when empty.
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
  bool failed_ = false;  // The last line failed. Reported once.
  bool cut_ = false;     // The file ends within a line.
  std::chrono::steady_clock::time_point second_;
  unsigned refusals_ = 0;  // In second_.
  unsigned skipped_ = 0;
};

// The audit log of a server that may have none.
class AuditTrail {
 public:
  explicit AuditTrail(std::shared_ptr<AuditLog> log) : log_(std::move(log)) {}

  void write(const char* event, std::initializer_list<AuditLog::Field> fields) {
    if (log_ != nullptr) log_->write(event, fields);
  }
  void write_refusal(const char* event, std::initializer_list<AuditLog::Field> fields) {
    if (log_ != nullptr) log_->write_refusal(event, fields);
  }

 private:
  const std::shared_ptr<AuditLog> log_;
};

// "name=value" for each field that is not empty, with a blank before each.
std::string audit_fields(std::initializer_list<AuditLog::Field> fields);

}  // namespace gpurun::server
