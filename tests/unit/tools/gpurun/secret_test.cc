// Secret file on the user's side: gpurun reads it as gpurund does, and refuses a file that others
// may read. The tests use files of all kinds.
#include "tools/gpurun/secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/unique_fd.h"
#include "protocol/auth/run_secret.h"

namespace gpurun::tools {
namespace {

struct File {
  std::string path = testing::TempDir() + "secretXXXXXX";

  File(const std::string& text, mode_t mode) {
    const UniqueFd fd(mkstemp(path.data()));
    EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(fchmod(fd.get(), mode), 0);
  }
  ~File() { unlink(path.c_str()); }
};

TEST(SecretFile, IsReadWithoutLineEnd) {
  const File file("0123456789abcdef\r\n", 0600);
  const auto secret = read_secret_file(file.path);
  ASSERT_TRUE(secret.ok()) << secret.status().to_string();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(secret->data()), secret->size()),
            "0123456789abcdef");
}

TEST(SecretFile, RefusesFileReadableByOtherUsers) {
  for (const mode_t mode : {0640, 0604, 0660}) {
    const File file("0123456789abcdef", mode);
    EXPECT_EQ(read_secret_file(file.path).status().code(), Code::kRefused);
  }
}

TEST(SecretFile, RequiresSixteenTo4096Bytes) {
  for (const std::size_t bytes : {0, 15, 4097, 9000}) {
    const File file(std::string(bytes, 'x'), 0600);
    EXPECT_EQ(read_secret_file(file.path).status().code(), Code::kInvalidArgument) << bytes;
  }
  for (const std::size_t bytes : {16, 4096}) {
    const File file(std::string(bytes, 'x') + "\n", 0600);
    ASSERT_TRUE(read_secret_file(file.path).ok()) << bytes;
  }
}

TEST(SecretFile, ErrorNamesMissingFile) {
  const auto secret = read_secret_file("/no/such/file");
  ASSERT_FALSE(secret.ok());
  EXPECT_NE(secret.status().message().find("/no/such/file"), std::string::npos);
}

TEST(RunSecret, NewSecretsDiffer) {
  const auto first = protocol::make_secret(), second = protocol::make_secret();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->size(), 64u);
  EXPECT_NE(*first, *second);
}

}  // namespace
}  // namespace gpurun::tools
