// Code images that come from files, and what the program gets for one that is none.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "client/interpose/modules/jit_request.h"

namespace gpurun::client::interpose::modules {

// The whole file. FILE_NOT_FOUND; INVALID_IMAGE for one that is empty or over
// limits::kImageBytesMax.
int read_image_file(const char* path, Bytes* bytes);

// The CUresult for a failure of driver_abi::image_at() or image_in(). The program's error log says
// why, and so does stderr of what is no image.
int image_error(const Status& status, const JitRequest& jit);

}  // namespace gpurun::client::interpose::modules
