// CacheFolder: an entry comes back as it was kept, for its own key and format, or not at all. The
// bounds hold, files of other names are left alone, and a full disk or a foreign owner costs only
// the cache.
#include "base/cache_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

namespace gpurun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "a test's file 1";
constexpr std::uint64_t kBlock = CacheFolder::kBlockBytes;

ByteView view(std::string_view text) { return byte_view(text.data(), text.size()); }
Sha256Digest key_of(int number) { return sha256(view(std::to_string(number))); }

CacheRules plenty() {
  CacheRules rules;
  rules.bytes_max = std::uint64_t{64} << 20;
  rules.files_max = 1000;
  rules.entry_bytes_max = std::uint64_t{1} << 20;
  return rules;
}

class CacheFolderTest : public ::testing::Test {
 protected:
  CacheFolderTest() {
    base_ = (fs::temp_directory_path() / "cache-folder-XXXXXX").string();
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
    path_ = base_ + "/a/b";
  }
  ~CacheFolderTest() override { fs::remove_all(base_); }

  std::unique_ptr<CacheFolder> open(const CacheRules& rules = plenty()) {
    auto folder = CacheFolder::open(path_, rules);
    EXPECT_TRUE(folder.ok()) << folder.status().to_string();
    return folder.ok() ? *std::move(folder) : nullptr;
  }
  Code refused(const std::string& path) {
    return CacheFolder::open(path, plenty()).status().code();
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& each : fs::directory_iterator(path_)) names.insert(each.path().filename());
    return names;
  }
  static std::string text_in(const CacheFolder& folder, int number,
                             std::string_view format = kFormat) {
    const Result<Bytes> found = folder.find(format, key_of(number));
    if (!found.ok()) return std::string("(") + code_name(found.status().code()) + ")";
    return std::string(reinterpret_cast<const char*>(found->data()), found->size());
  }
  std::string file_of(const CacheFolder& folder, int number) const {
    return path_ + "/" + folder.name_of(key_of(number));
  }
  static void set_age(const std::string& file, std::chrono::seconds age) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - age);
  }

  std::string base_;
  std::string path_;
};

TEST_F(CacheFolderTest, FindsEntryOnlyByItsKeyAndFormat) {
  const auto folder = open();
  EXPECT_EQ(text_in(*folder, 1), "(unavailable)");
  EXPECT_TRUE(folder->add(kFormat, key_of(1), {view("one "), view("two")}).ok());
  EXPECT_EQ(text_in(*folder, 1), "one two");
  EXPECT_EQ(text_in(*open(), 1), "one two");
  EXPECT_EQ(text_in(*folder, 2), "(unavailable)");
  EXPECT_TRUE(folder->add(kFormat, key_of(1), {view("three")}).ok());
  EXPECT_EQ(text_in(*folder, 1), "three");
  EXPECT_EQ(files(), std::set<std::string>{folder->name_of(key_of(1))});
  struct stat about {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file_of(*folder, 1).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  // An older format is absent, and makes room for a newer one.
  EXPECT_EQ(text_in(*folder, 1, "a test's file 2"), "(protocol error)");
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheFolderTest, DamagedEntryIsRemoved) {
  const auto folder = open();
  const std::string file = file_of(*folder, 1);
  ASSERT_TRUE(folder->add(kFormat, key_of(1), {view("payload")}).ok());
  const auto size = fs::file_size(file);
  for (std::uintmax_t at = 0; at < size; ++at) {
    ASSERT_TRUE(folder->add(kFormat, key_of(1), {view("payload")}).ok());
    std::fstream in_place(file, std::ios::in | std::ios::out | std::ios::binary);
    in_place.seekg(static_cast<std::streamoff>(at));
    const int byte = in_place.get();
    in_place.seekp(static_cast<std::streamoff>(at));
    in_place.put(static_cast<char>(byte ^ 1));
    in_place.close();
    EXPECT_EQ(text_in(*folder, 1), "(protocol error)") << at;
    EXPECT_TRUE(files().empty()) << at;
  }
  for (const std::uintmax_t bytes : {std::uintmax_t{0}, std::uintmax_t{10}, size - 1, size + 1}) {
    ASSERT_TRUE(folder->add(kFormat, key_of(1), {view("payload")}).ok());
    fs::resize_file(file, bytes);
    EXPECT_EQ(text_in(*folder, 1), "(protocol error)") << bytes;
    EXPECT_TRUE(files().empty()) << bytes;
  }
  ASSERT_TRUE(folder->add(kFormat, key_of(2), {view("of two")}).ok());
  fs::rename(file_of(*folder, 2), file);
  EXPECT_EQ(text_in(*folder, 1), "(protocol error)");
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheFolderTest, RejectsLinkedSharedAndSpecialFiles) {
  const auto folder = open();
  const std::string file = file_of(*folder, 1);
  const std::string elsewhere = base_ + "/elsewhere";
  ASSERT_TRUE(folder->add(kFormat, key_of(1), {view("x")}).ok());
  fs::rename(file, elsewhere);
  const auto is_no_entry = [&] {
    EXPECT_FALSE(folder->has(key_of(1)));
    EXPECT_EQ(text_in(*folder, 1), "(protocol error)");
    EXPECT_TRUE(files().empty());
  };
  fs::create_symlink(elsewhere, file);
  is_no_entry();
  fs::create_hard_link(elsewhere, file);
  is_no_entry();
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);  // It does not block either.
  is_no_entry();
  fs::copy_file(elsewhere, file);
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  is_no_entry();
  fs::rename(elsewhere, file);
  EXPECT_EQ(text_in(*folder, 1), "x");
}

TEST_F(CacheFolderTest, UnsafeFolderIsRefused) {
  open();
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
  EXPECT_EQ(refused(path_), Code::kRefused);
  CacheRules readable = plenty();
  readable.others_may_read = true;
  EXPECT_TRUE(CacheFolder::open(path_, readable).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0720), 0);
  EXPECT_EQ(CacheFolder::open(path_, readable).status().code(), Code::kRefused);
  ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  EXPECT_TRUE(CacheFolder::open(path_, plenty()).ok());
  fs::create_symlink(path_, base_ + "/link");
  EXPECT_EQ(refused(base_ + "/link"), Code::kRefused);
  std::ofstream(base_ + "/file") << "x";
  EXPECT_EQ(refused(base_ + "/file"), Code::kRefused);
  EXPECT_EQ(CacheFolder::open(base_ + "/x/y/z", plenty(), 2).status().code(), Code::kUnavailable);
  EXPECT_FALSE(fs::exists(base_ + "/x"));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path_.c_str(), 1, 1), 0);
    EXPECT_EQ(refused(path_), Code::kRefused);
  }
}

TEST_F(CacheFolderTest, EnforcesBoundsByEvictingLeastRecentlyUsed) {
  CacheRules rules = plenty();
  rules.bytes_max = 6 * kBlock;
  rules.files_max = 3;
  const auto folder = open(rules);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(folder->add(kFormat, key_of(i), {view("x")}).ok());
    set_age(file_of(*folder, i), std::chrono::seconds(100 - i));
  }
  EXPECT_EQ(text_in(*folder, 0), "x");  // This makes it the last used one.
  ASSERT_TRUE(folder->add(kFormat, key_of(3), {view("x")}).ok());
  EXPECT_EQ(files().size(), 3u);
  EXPECT_FALSE(folder->has(key_of(1)));
  EXPECT_TRUE(folder->has(key_of(0)) && folder->has(key_of(2)) && folder->has(key_of(3)));
  set_age(file_of(*folder, 2), std::chrono::seconds(100));
  const std::string large(4 * kBlock, 'y');  // Five blocks with its head.
  ASSERT_TRUE(folder->add(kFormat, key_of(4), {view(large)}).ok());
  EXPECT_EQ(files().size(), 2u);
  EXPECT_EQ(text_in(*folder, 4), large);
  const std::string too_large(6 * kBlock, 'z');
  EXPECT_EQ(folder->add(kFormat, key_of(5), {view(too_large)}).code(), Code::kTooLarge);
  rules.entry_bytes_max = 100;
  EXPECT_EQ(open(rules)->add(kFormat, key_of(5), {view(std::string(13, 'z'))}).code(),
            Code::kTooLarge);
  EXPECT_EQ(files().size(), 2u);
}

// The bytes that one object adds make it look, whatever the chance says.
TEST_F(CacheFolderTest, InfrequentChecksExceedBoundByAtMostOneSixteenth) {
  CacheRules rules = plenty();
  rules.bytes_max = 64 * kBlock;
  rules.additions_per_look = 1'000'000;
  rules.suffix = ".x";
  const auto folder = open(rules);
  std::size_t most = 0, removed_at_once = 0;
  for (int i = 0; i < 300; ++i) {
    const std::size_t before = i == 0 ? 0 : files().size();
    ASSERT_TRUE(folder->add(kFormat, key_of(i), {view("x")}).ok());
    most = std::max(most, files().size());
    if (files().size() < before) removed_at_once = before - files().size();
  }
  EXPECT_LE(most, 64u + 64 / 16 + 1);
  EXPECT_GE(files().size(), 48u - 1);  // A look leaves three quarters.
  EXPECT_GE(removed_at_once, 64u / 4 - 1);
  EXPECT_TRUE(folder->has(key_of(299)));
  EXPECT_FALSE(folder->has(key_of(0)));
}

TEST_F(CacheFolderTest, RandomChecksEvictEntries) {
  CacheRules rules = plenty();
  rules.files_max = 20;
  rules.additions_per_look = 4;
  // Each of these objects adds once. The chance that none of 200 looks is one in 10^25.
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(open(rules)->add(kFormat, key_of(i), {view("x")}).ok());
  EXPECT_LT(files().size(), 200u);
}

TEST_F(CacheFolderTest, RemovesAbandonedPartsAndKeepsForeignFiles) {
  const auto folder = open();
  const auto old = CacheFolder::kAbandonedAfter + std::chrono::seconds(10);
  const std::string digits(64, 'a');
  for (const std::string& name : {std::string("part-dead"), std::string("part-living"),
                                  std::string("a-users-file"), digits + "0", digits + ".o"}) {
    std::ofstream(path_ + "/" + name) << "x";
    if (name != "part-living") set_age(path_ + "/" + name, old);
  }
  CacheRules rules = plenty();
  rules.files_max = 2;
  ASSERT_TRUE(open(rules)->add(kFormat, key_of(1), {view("x")}).ok());
  const std::set<std::string> left = {"part-living", "a-users-file", digits + "0", digits + ".o",
                                      folder->name_of(key_of(1))};
  EXPECT_EQ(files(), left);
}

TEST_F(CacheFolderTest, FailedAddLeavesNoFile) {
  const auto folder = open();
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  // Like a full disk, the limit fails the file's growth (EFBIG instead of ENOSPC).
  const rlimit small = {5000, before.rlim_max};
  const std::string text(10'000, 'x');
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status failed = folder->add(kFormat, key_of(1), {view(text)});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(failed.message(), path_ + ": File too large");
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(folder->add(kFormat, key_of(1), {view(text)}).ok());
  EXPECT_EQ(text_in(*folder, 1), text);
}

TEST_F(CacheFolderTest, UnfinishedPartIsRemoved) {
  const auto folder = open();
  {
    Result<CacheFolder::Part> part = folder->start(100);
    ASSERT_TRUE(part.ok());
    EXPECT_TRUE(part->write(view("half")).ok());
    EXPECT_EQ(files().size(), 1u);
    EXPECT_EQ(files().begin()->rfind("part-", 0), 0u);
  }
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace gpurun
