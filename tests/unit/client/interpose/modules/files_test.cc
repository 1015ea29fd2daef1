// Image files: a file over the size bound is refused before a byte of it is read.
#include "client/interpose/modules/files.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/unique_fd.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/image_length.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose::modules {
namespace {

// A file of holes that takes no disk space, under a unique name.
class SparseFile {
 public:
  explicit SparseFile(std::size_t bytes) : fd_(memfd_create("image", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  const UniqueFd fd_;
};

TEST(ImageFiles, OversizedAndEmptyFilesAreRefused) {
  Bytes bytes;
  const SparseFile over(limits::kImageBytesMax + 1);
  EXPECT_EQ(read_image_file(over.path().c_str(), &bytes), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(bytes.capacity(), 0u) << "nothing is allocated for it";
  const SparseFile empty(0);
  EXPECT_EQ(read_image_file(empty.path().c_str(), &bytes), CUDA_ERROR_INVALID_IMAGE);
  const SparseFile some(4096);
  EXPECT_EQ(read_image_file(some.path().c_str(), &bytes), 0);
  EXPECT_EQ(bytes.size(), 4096u);
}

TEST(ImageFiles, LimitMatchesDriverAbiLimit) {
  EXPECT_EQ(driver_abi::kImagePieceBytesMax, limits::kImageBytesMax);
}

}  // namespace
}  // namespace gpurun::client::interpose::modules
