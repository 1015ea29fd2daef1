// Image files: reads an image file whole, if it is a file and within its bound.
#include "client/interpose/modules/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file_io.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "driver_abi/cuda_abi.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose::modules {

int read_image_file(const char* path, Bytes* bytes) {
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  struct stat about {};
  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return CUDA_ERROR_FILE_NOT_FOUND;
  if (about.st_size <= 0 || static_cast<std::uint64_t>(about.st_size) > limits::kImageBytesMax) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  Result<Bytes> content = read_bytes(file.get(), limits::kImageBytesMax, path);
  // Truncated meanwhile, or unreadable.
  if (!content.ok() || content->size() < static_cast<std::size_t>(about.st_size)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *bytes = *std::move(content);
  return 0;
}

int image_error(const Status& status, const JitRequest& jit) {
  const int error = status.code() == Code::kCuda ? status.cuda_error() : CUDA_ERROR_INVALID_IMAGE;
  // The log has the reason and the place, which the program's error code lacks.
  if (error == CUDA_ERROR_INVALID_IMAGE) {
    GPURUN_LOG(kWarning, "an image is not loaded: %s", status.message().c_str());
  }
  protocol::ImageOutcome outcome;
  outcome.error_log = status.message();
  jit.write_logs(outcome);
  return error;
}

}  // namespace gpurun::client::interpose::modules
