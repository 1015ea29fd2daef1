// TableCache: a table of kernels is returned as it was stored, and only for its own key. A file
// that this cache did not write is never trusted.
#include "client/interpose/modules/table_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gpurun::client::interpose::modules {
namespace {

namespace fs = std::filesystem;

protocol::ImageOutcome outcome_of(const std::string& name) {
  protocol::ImageOutcome outcome;
  outcome.complete = outcome.kept = true;
  protocol::KernelDescription kernel;
  kernel.name = name;
  kernel.described = kernel.layout_known = true;
  kernel.parameters = {{0, 8}, {8, 4}};
  kernel.attributes = {1024, 0, 3};
  outcome.kernels.push_back(kernel);
  return outcome;
}

Sha256Digest key_of(const std::string& text) { return sha256(byte_view(text.data(), text.size())); }

class TableCacheTest : public ::testing::Test {
 protected:
  static std::string make_base() {
    std::string pattern = (fs::temp_directory_path() / "table-cache-XXXXXX").string();
    return mkdtemp(pattern.data()) == nullptr ? "/no/such/folder" : pattern;
  }
  ~TableCacheTest() override { fs::remove_all(base_); }
  std::string folder() const { return base_ + "/kernels"; }
  // The only file.
  fs::path file() const { return fs::directory_iterator(folder())->path(); }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder()), fs::directory_iterator()));
  }

  const std::string base_ = make_base();
  TableCache cache_{base_ + "/kernels"};
  const Sha256Digest key_ = key_of("image");
};

// Tables of another build of gpurun are not even read, because they may have another meaning.
TEST_F(TableCacheTest, KeyDependsOnFormatAndAllInputsOfTable) {
  const DeviceSnapshot devices;
  Device device;
  device.name = "one";
  const Sha256Digest image = key_of("image");
  const Sha256Digest key = table_key(image, devices, device, "host:1", "0.1.0");
  EXPECT_EQ(key, table_key(image, devices, device, "host:2", "0.1.0"));
  EXPECT_EQ(key, table_key(image, devices, device, "host:1", "0.1.0", protocol::outcome_format()));
  EXPECT_EQ(protocol::outcome_format().size(), 64u);  // A SHA-256.
  EXPECT_NE(key, table_key(image, devices, device, "host:1", "0.1.0", "of another build"));
  EXPECT_NE(key, table_key(key_of("other"), devices, device, "host:1", "0.1.0"));
  EXPECT_NE(key, table_key(image, devices, device, "other:1", "0.1.0"));
  EXPECT_NE(key, table_key(image, devices, device, "host:1", "0.1.1"));
  Device other = device;
  other.name = "two";
  EXPECT_NE(key, table_key(image, devices, other, "host:1", "0.1.0"));
  other = device;
  other.attributes.push_back(1);
  EXPECT_NE(key, table_key(image, devices, other, "host:1", "0.1.0"));
}

TEST_F(TableCacheTest, FindsTableOnlyByItsKey) {
  EXPECT_FALSE(cache_.find(key_).has_value());
  cache_.add(key_, outcome_of("saxpy"));
  cache_.add(key_of("other"), outcome_of("gemm"));
  const auto found = cache_.find(key_);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->kernels.size(), 1u);
  EXPECT_EQ(found->kernels[0].name, "saxpy");
  EXPECT_EQ(found->kernels[0].parameters, outcome_of("").kernels[0].parameters);
  EXPECT_EQ(found->kernels[0].attributes, outcome_of("").kernels[0].attributes);
  EXPECT_TRUE(found->complete);
  EXPECT_FALSE(cache_.find(key_of("third")).has_value());
  struct stat about {};
  ASSERT_EQ(stat(folder().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  EXPECT_EQ(files(), 2u);  // No partial file remains.
}

TEST_F(TableCacheTest, CorruptedTableFileIsRemoved) {
  cache_.add(key_, outcome_of("saxpy"));
  std::string whole;
  {
    std::ifstream in(file(), std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    cache_.add(key_, outcome_of("saxpy"));
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(file(), std::ios::binary).write(changed.data(), std::streamsize(changed.size()));
    EXPECT_FALSE(cache_.find(key_).has_value()) << at;
    EXPECT_EQ(files(), 0u) << at;
  }
  cache_.add(key_, outcome_of("saxpy"));
  fs::resize_file(file(), whole.size() - 8);
  EXPECT_FALSE(cache_.find(key_).has_value());
}

TEST_F(TableCacheTest, RenamedTableIsRejected) {
  cache_.add(key_, outcome_of("saxpy"));
  const fs::path own = file();
  cache_.add(key_of("other"), outcome_of("gemm"));
  for (const auto& each : fs::directory_iterator(folder())) {
    if (each.path() != own) fs::rename(each.path(), own);
  }
  EXPECT_FALSE(cache_.find(key_).has_value());
}

TEST_F(TableCacheTest, IgnoresLinksPipesAndUnsafeFolders) {
  cache_.add(key_, outcome_of("saxpy"));
  const fs::path own = file();
  fs::rename(own, base_ + "/elsewhere");
  fs::create_symlink(base_ + "/elsewhere", own);
  EXPECT_FALSE(cache_.find(key_).has_value());
  ASSERT_EQ(mkfifo(own.c_str(), 0600), 0);
  EXPECT_FALSE(cache_.find(key_).has_value());  // A FIFO does not block the reader either.
  fs::rename(base_ + "/elsewhere", own);
  EXPECT_TRUE(cache_.find(key_).has_value());
  chmod(folder().c_str(), 0770);
  EXPECT_FALSE(cache_.find(key_).has_value());
}

TEST_F(TableCacheTest, EvictsOldestBeyondLimit) {
  cache_.add(key_, outcome_of("saxpy"));
  const fs::path own = file();
  fs::last_write_time(own, fs::file_time_type::clock::now() - std::chrono::hours(1));
  for (std::size_t i = 0; i < TableCache::kFilesMax; ++i) {
    std::string filler(64, '0');
    filler.replace(0, 4, std::to_string(1000 + i));  // Named as a table.
    std::ofstream(folder() + "/" + filler) << "x";
  }
  // The chance that so many additions cause no look is one in 10^9.
  const unsigned added_max = 20 * TableCache::kAddedPerLook;
  unsigned added = 0;
  while (added < added_max && files() >= TableCache::kFilesMax) {
    cache_.add(key_of("other" + std::to_string(added++)), outcome_of("gemm"));
  }
  EXPECT_LE(files(), TableCache::kFilesMax) << added;
  EXPECT_FALSE(fs::exists(own));
  EXPECT_TRUE(cache_.find(key_of("other" + std::to_string(added - 1))).has_value());
}

TEST_F(TableCacheTest, KeepsNothingWithoutFolder) {
  const TableCache none("");
  none.add(key_, outcome_of("saxpy"));
  EXPECT_FALSE(none.find(key_).has_value());
  std::ofstream(base_ + "/a-file") << "x";
  const TableCache impossible(base_ + "/a-file/kernels");
  impossible.add(key_, outcome_of("saxpy"));
  EXPECT_FALSE(impossible.find(key_).has_value());
}

}  // namespace
}  // namespace gpurun::client::interpose::modules
