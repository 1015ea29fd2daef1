// Image files: code images that come from files, and the errors for files that are not images.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "client/interpose/modules/jit_request.h"

namespace gpurun::client::interpose::modules {

// Reads the whole file. Returns FILE_NOT_FOUND, or INVALID_IMAGE for a file that is empty or over
// limits::kImageBytesMax.
int read_image_file(const char* path, Bytes* bytes);

// The CUresult for a failure of driver_abi::image_at() or image_in(). Writes the reason to the
// program's error log, and for INVALID_IMAGE to stderr too.
int image_error(const Status& status, const JitRequest& jit);

}  // namespace gpurun::client::interpose::modules
