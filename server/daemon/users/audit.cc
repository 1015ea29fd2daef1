// AuditLog: each line is one write, or one message to the system's log.
#include "server/daemon/users/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/file_io.h"
#include "base/printable.h"
#include "base/unique_fd.h"

namespace gpurun::server {
namespace {

bool is_plain(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
         (character >= '0' && character <= '9') ||
         std::string_view("._:/@,+-[]").find(character) != std::string_view::npos;
}

std::string quoted(std::string_view value) {
  if (std::all_of(value.begin(), value.end(), is_plain)) return std::string(value);
  std::string text = "\"";
  for (const char character : printable(value)) {
    if (character == '"' || character == '\\') text += '\\';
    text += character;
  }
  return text + "\"";
}

std::string time_now() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  return text;
}

}  // namespace

std::string audit_fields(std::initializer_list<AuditLog::Field> fields) {
  std::string text;
  for (const AuditLog::Field& field : fields) {
    if (field.value.empty()) continue;
    text += std::string(" ") + field.name + "=" + quoted(field.value);
  }
  return text;
}

Result<std::unique_ptr<AuditLog>> AuditLog::open(const std::string& where,
                                                 std::uint64_t bytes_max) {
  if (where == "none") return std::unique_ptr<AuditLog>(new AuditLog(Kind::kNone, "", 0));
  if (where == "syslog") {
    openlog("gpurund", LOG_PID, LOG_AUTHPRIV);
    return std::unique_ptr<AuditLog>(new AuditLog(Kind::kSyslog, "", 0));
  }
  if (where.empty() || where[0] != '/') {
    return Status(Code::kInvalidArgument,
                  "'" + where + "' is neither syslog, none, nor an absolute path");
  }
  std::unique_ptr<AuditLog> log(new AuditLog(Kind::kFile, where, bytes_max));
  GPURUN_RETURN_IF_ERROR(log->append(""));
  return log;
}

Status AuditLog::append(const std::string& line) {
  const UniqueFd file(
      ::open(path_.c_str(),
             O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file.valid()) return Status::from_errno(errno, path_);
  // A full disk may have cut the last line, so this one starts on a new line.
  const std::string text = cut_ && !line.empty() ? "\n" + line : line;
  std::size_t written = 0;
  const Status status = write_whole(file.get(), text, path_, &written);
  if (written > 0) cut_ = !status.ok();
  GPURUN_RETURN_IF_ERROR(status);
  struct stat about = {};
  if (bytes_max_ != 0 && fstat(file.get(), &about) == 0 &&
      static_cast<std::uint64_t>(about.st_size) >= bytes_max_) {
    if (rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return Status::from_errno(errno, path_);
  }
  return {};
}

void AuditLog::put(const std::string& line) {
  if (kind_ == Kind::kSyslog) syslog(LOG_INFO, "%s", line.c_str());
  if (kind_ != Kind::kFile) return;
  const Status status = append(time_now() + " " + line + "\n");
  if (!status.ok() && !failed_) spdlog::error("the audit log misses lines: {}", status.message());
  failed_ = !status.ok();
}

void AuditLog::write(const char* event, std::initializer_list<Field> fields) {
  const std::lock_guard lock(mutex_);
  put(event + audit_fields(fields));
}

void AuditLog::write_refusal(const char* event, std::initializer_list<Field> fields) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    refusals_ = 0;
  }
  if (refusals_++ >= kRefusalsASecond) {
    ++skipped_;
    return;
  }
  std::string line = event + audit_fields(fields);
  if (skipped_ > 0) line += " skipped=" + std::to_string(std::exchange(skipped_, 0));
  put(line);
}

}  // namespace gpurun::server
