// Code images that come from files, and what the program gets for one that is none.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace gpurun::client::interpose::modules {

// The whole file. FILE_NOT_FOUND; INVALID_IMAGE for one that is empty or over
// limits::kImageBytesMax.
int read_image_file(const char* path, Bytes* bytes);

// The CUresult for a failure of driver_abi::image_at() or image_in(). What is no image is explained
// on stderr.
int image_error(const Status& status);

}  // namespace gpurun::client::interpose::modules
