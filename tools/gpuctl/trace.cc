// gpuctl trace: reads the files of all processes, checks them, and only then writes.
#include "tools/gpuctl/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/file_io.h"
#include "base/unique_fd.h"
#include "tools/gpuctl/complain.h"
#include "tools/gpurun/options.h"

namespace gpurun::tools {
namespace {

// A process's file is as large as its recordings. A larger file is not ours.
constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

Status about(const std::string& path, const std::string& what, Code code) {
  return Status(code, path + ": " + what);
}

// `found`: the file was found in a folder, where another user may have put a link. Otherwise the
// user has named it.
Result<Bytes> read_file(const std::string& path, bool found) {
  const int links = found ? O_NOFOLLOW : 0;
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | links));
  if (file.get() < 0 && errno == ELOOP) {
    return about(path, "this is a link, and is not followed; name the file itself", Code::kRefused);
  }
  struct stat facts {};
  if (file.get() < 0 || fstat(file.get(), &facts) != 0) {
    return about(path, std::strerror(errno), Code::kUnavailable);
  }
  if (!S_ISREG(facts.st_mode)) return about(path, "this is no file", Code::kUnavailable);
  if (static_cast<std::uint64_t>(facts.st_size) > kFileBytesMax) {
    return about(path, "too large for a trace", Code::kProtocol);
  }
  const Result<Bytes> bytes = read_bytes(file.get(), kFileBytesMax, path, Code::kProtocol);
  if (!bytes.ok() && bytes.status().code() != Code::kProtocol) {
    return Status(Code::kUnavailable, bytes.status().message());
  }
  return bytes;
}

Result<Traced> read_trace(const std::string& path, bool found) {
  const Result<Bytes> bytes = read_file(path, found);
  if (!bytes.ok()) return bytes.status();
  Result<protocol::TraceFile> file = protocol::parse_trace_file(*bytes);
  if (!file.ok()) return about(path, file.status().message(), Code::kProtocol);
  Traced traced;
  traced.file = *std::move(file);
  Result<protocol::Recording> client = protocol::parse_recording(traced.file.client);
  if (!client.ok()) return about(path, client.status().message(), Code::kProtocol);
  traced.client = *std::move(client);
  if (traced.file.worker.empty()) return traced;
  Result<protocol::Recording> worker = protocol::parse_recording(traced.file.worker);
  if (worker.ok()) {
    traced.worker = *std::move(worker);
  } else {
    // Invalid data of a server costs only its own rows.
    traced.file.no_worker = "what the server recorded is not sound: " + worker.status().message();
  }
  return traced;
}

Status add_folder(const std::string& folder, std::set<std::string>* files) {
  std::error_code error;
  const std::size_t before = files->size();
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().string();
    if (name.ends_with(protocol::kTraceSuffix)) files->insert(name);
  }
  if (error) return about(folder, error.message(), Code::kUnavailable);
  if (files->size() > before) return {};
  return about(folder,
               "no trace is in it; gpurun --trace " + folder +
                   " -- PROGRAM writes one for each process that uses CUDA and ends by itself",
               Code::kUnavailable);
}

// Makes the timeline's empty file. Overwrites only a file of this user's, because the name may be
// another user's link in a folder that others may write.
Result<std::FILE*> open_output(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0666));
  if (!fd.valid() && errno == ELOOP) {
    return about(path, "this is a link; name the file that is to be written", Code::kRefused);
  }
  struct stat facts {};
  if (!fd.valid() || fstat(fd.get(), &facts) != 0) {
    return about(path, std::strerror(errno), Code::kUnavailable);
  }
  if (S_ISREG(facts.st_mode)) {
    if (facts.st_uid != geteuid() || facts.st_nlink > 1) {
      return about(path, "this is another user's file, or has another name, too; name a new one",
                   Code::kRefused);
    }
    if (ftruncate(fd.get(), 0) != 0) return about(path, std::strerror(errno), Code::kUnavailable);
  }
  std::FILE* const file = fdopen(fd.get(), "w");
  if (file == nullptr) return about(path, std::strerror(errno), Code::kUnavailable);
  static_cast<void>(fd.release());
  return file;
}

}  // namespace

Result<std::vector<Traced>> read_traces(const std::vector<std::string>& places) {
  std::set<std::string> named, files;
  for (const std::string& place : places) {
    std::error_code error;
    if (std::filesystem::is_directory(place, error)) {
      GPURUN_RETURN_IF_ERROR(add_folder(place, &files));
    } else {
      named.insert(place);
    }
  }
  files.insert(named.begin(), named.end());
  std::vector<Traced> traces;
  for (const std::string& file : files) {
    Result<Traced> traced = read_trace(file, named.count(file) == 0);
    if (!traced.ok()) return traced.status();
    traces.push_back(*std::move(traced));
  }
  return traces;
}

int write_trace(const std::vector<std::string>& places, const std::string& path) {
  const auto failed = [](const std::string& why) {
    complain(why);
    return int{kExitOwnFailure};
  };
  const Result<std::vector<Traced>> traces = read_traces(places);
  if (!traces.ok()) return failed(traces.status().message());
  const bool to_stdout = path == "-";
  const Result<std::FILE*> file = to_stdout ? Result<std::FILE*>(stdout) : open_output(path);
  if (!file.ok()) return failed(file.status().message());
  Status written = write_timeline(*traces, *file);
  if (!to_stdout && std::fclose(*file) != 0 && written.ok()) {
    written = Status::from_errno(errno, "writing the timeline");
  }
  if (!written.ok()) return failed(path + ": " + written.message());
  if (!to_stdout) std::printf("%s\n", path.c_str());
  return 0;
}

}  // namespace gpurun::tools
