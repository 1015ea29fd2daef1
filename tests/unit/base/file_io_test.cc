// File I/O: a file is read whole or not at all, and never beyond its bound. A replaced file is the
// old one or the whole new one, and nothing else remains beside it.
#include "base/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/unique_fd.h"

namespace gpurun {
namespace {

namespace fs = std::filesystem;

std::string text_of(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += std::to_string(text.size()) + " ";
  text.resize(bytes);
  return text;
}

class FileIo : public ::testing::Test {
 protected:
  FileIo() {
    folder_ = (fs::temp_directory_path() / "file-io-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/file";
  }
  ~FileIo() override { fs::remove_all(folder_); }

  void plant(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string now() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  mode_t mode() const {
    struct stat about {};
    EXPECT_EQ(stat(path_.c_str(), &about), 0);
    return about.st_mode & 07777;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(FileIo, ReadsWholeFileWithinBound) {
  for (const std::size_t bytes : {0, 1, 4095, 4096, 4097, 100'000}) {
    plant(text_of(bytes));
    const auto whole = read_text_file(path_, bytes);
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    EXPECT_EQ(*whole, text_of(bytes));
    const UniqueFd file(open(path_.c_str(), O_RDONLY));
    const auto same = read_bytes(file.get(), bytes + 1, path_);
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(same->data()), same->size()),
              text_of(bytes));
    if (bytes == 0) continue;
    EXPECT_EQ(read_text_file(path_, bytes - 1).status().code(), Code::kInvalidArgument);
    ASSERT_EQ(lseek(file.get(), 0, SEEK_SET), 0);
    EXPECT_EQ(read_text(file.get(), bytes - 1, path_, Code::kRefused).status().code(),
              Code::kRefused);
  }
}

TEST_F(FileIo, ErrorsNameFileAndReason) {
  const std::string missing = folder_ + "/missing";
  EXPECT_EQ(read_text_file(missing, 1).status().message(), missing + ": No such file or directory");
  EXPECT_EQ(read_text_file(missing, 1).status().code(), Code::kUnavailable);
  plant(text_of(2048));
  EXPECT_EQ(read_text_file(path_, 1023).status().message(), path_ + ": more than 1023 bytes");
  EXPECT_EQ(read_text_file(path_, 1024).status().message(), path_ + ": more than 1 KiB");
  EXPECT_EQ(replace_file(folder_ + "/no/file", "x").message(),
            folder_ + "/no/file: No such file or directory");
}

TEST_F(FileIo, ReadsProcFilesWithoutSize) {
  const auto text = read_text_file("/proc/self/smaps", std::size_t{16} << 20);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_GT(text->size(), 4096u);
  EXPECT_NE(text->find("[stack]"), std::string::npos);
}

TEST_F(FileIo, RefusesToReadNonRegularFiles) {
  EXPECT_EQ(read_text_file(folder_, 10).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(read_text_file(path_, 10).status().code(), Code::kInvalidArgument);  // And at once.
}

std::atomic<int> interruptions{0};

void interrupt_often() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++interruptions; };  // Without SA_RESTART.
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  signal(SIGPIPE, SIG_IGN);
}

// Interrupts `thread`, most of the times in the system call in which it waits.
void interrupt(pthread_t thread) {
  for (int i = 0; i < 300; ++i) {
    const int before = interruptions;
    pthread_kill(thread, SIGUSR1);
    while (interruptions == before) sched_yield();
  }
}

// A pipe holds 64 KiB, so both the writes and the reads are short.
TEST_F(FileIo, ResumesInterruptedAndShortTransfers) {
  interrupt_often();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const std::string text = text_of(3'000'000);
  std::size_t written = 0;
  Status status;
  const pthread_t reader = pthread_self();
  std::thread writer([&] {
    interrupt(reader);  // It waits for the first byte.
    status = write_whole(writing.get(), text, "pipe", &written);
    writing.reset();
  });
  const auto got = read_text(reading.get(), text.size(), "pipe");
  reading.reset();
  writer.join();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(written, text.size());
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_TRUE(*got == text);
}

TEST_F(FileIo, ResumesInterruptedWrite) {
  interrupt_often();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const std::string text = text_of(300'000);
  const pthread_t writer = pthread_self();
  Result<std::string> got = Status(Code::kInternal, "not read");
  std::thread reader([&] {
    interrupt(writer);  // It waits for room.
    got = read_text(reading.get(), text.size(), "pipe");
  });
  const Status status = write_whole(writing.get(), text, "pipe");
  writing.reset();
  reader.join();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(got.ok() && *got == text);
}

TEST_F(FileIo, ReadFromStartKeepsFilePosition) {
  plant("0123456789");
  const UniqueFd file(open(path_.c_str(), O_RDONLY));
  ASSERT_EQ(lseek(file.get(), 4, SEEK_SET), 4);
  EXPECT_EQ(*read_text_from_start(file.get(), 10, path_), "0123456789");
  EXPECT_EQ(lseek(file.get(), 0, SEEK_CUR), 4);
  EXPECT_EQ(*read_text(file.get(), 10, path_), "456789");
  EXPECT_EQ(read_text_from_start(file.get(), 9, path_).status().code(), Code::kInvalidArgument);
}

TEST_F(FileIo, ReadPartFailsPastEndOfFile) {
  plant("0123456789");
  const UniqueFd file(open(path_.c_str(), O_RDONLY));
  Bytes part(4);
  ASSERT_TRUE(read_part(file.get(), part, 6, path_).ok());
  EXPECT_EQ(part[3], std::byte{'9'});
  EXPECT_EQ(read_part(file.get(), part, 7, path_).code(), Code::kUnavailable);
}

TEST_F(FileIo, ReplaceSetsModeAndLeavesNoTemporaryFile) {
  plant("old");
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  const mode_t before = umask(022);
  EXPECT_TRUE(replace_file(path_, "new").ok());
  EXPECT_EQ(now(), "new");
  EXPECT_EQ(mode(), 0600u);
  EXPECT_TRUE(replace_file(path_, "newer", {0666, Durability::kContentAndName}).ok());
  EXPECT_EQ(now(), "newer");
  EXPECT_EQ(mode(), 0644u);
  umask(before);
  const UniqueFd folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY));
  const std::string newest = "newest";
  EXPECT_TRUE(replace_file_in(folder.get(), "file", path_, byte_view(newest.data(), newest.size()),
                              {0600, Durability::kContent})
                  .ok());
  EXPECT_EQ(now(), "newest");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileIo, ReplacingSymlinkKeepsItsTarget) {
  const std::string target = folder_ + "/target";
  std::ofstream(target) << "theirs";
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_TRUE(replace_file(path_, "ours").ok());
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(now(), "ours");
  EXPECT_EQ(*read_text_file(target, 10), "theirs");
}

TEST_F(FileIo, ReaderNeverSeesPartialFile) {
  const std::string one(200'000, '1'), two(200'000, '2');
  ASSERT_TRUE(replace_file(path_, one).ok());
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(replace_file(path_, i % 2 == 0 ? two : one).ok());
  });
  for (int i = 0; i < 200; ++i) {
    const auto text = read_text_file(path_, one.size());
    EXPECT_TRUE(text.ok() && (*text == one || *text == two)) << text.status().to_string();
  }
  writer.join();
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileIo, FailedReplaceKeepsOldFile) {
  plant("old");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  // Like a full disk, the limit fails the file's growth (EFBIG instead of ENOSPC).
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status failed = replace_file(path_, text_of(2000));
  std::size_t written = 0;
  const UniqueFd file(open((folder_ + "/other").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_FALSE(write_whole(file.get(), text_of(2000), "other", &written).ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(failed.message(), path_ + ": File too large");
  EXPECT_EQ(now(), "old");
  EXPECT_EQ(written, 1000u);
  EXPECT_EQ(files(), 2u);
}

TEST_F(FileIo, RootCanGiveFileToFolderOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(folder_.c_str(), 12345, 23456), 0);
  struct stat about {};
  ASSERT_TRUE(replace_file(path_, "x").ok());
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 0u);
  ASSERT_TRUE(replace_file(path_, "x", {0600, Durability::kNone, true}).ok());
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 12345u);
  EXPECT_EQ(about.st_gid, 23456u);
}

TEST_F(FileIo, CreatesMissingFolders) {
  const mode_t before = umask(0);
  EXPECT_TRUE(make_folders(folder_).ok());
  EXPECT_TRUE(make_folders(folder_ + "/a/b/c", 0750).ok());
  umask(before);
  struct stat about {};
  ASSERT_EQ(stat((folder_ + "/a/b").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0750u);
  EXPECT_TRUE(fs::is_directory(folder_ + "/a/b/c"));
  EXPECT_EQ(make_folders(folder_ + "/x/y/z", 0700, 2).code(), Code::kUnavailable);
  EXPECT_FALSE(fs::exists(folder_ + "/x"));
  EXPECT_TRUE(make_folders(folder_ + "/x/y", 0700, 2).ok());
  plant("a file");
  EXPECT_FALSE(make_folders(path_ + "/below").ok());
  EXPECT_EQ(folder_of("/x"), "/");
  EXPECT_EQ(folder_of("x"), ".");
  EXPECT_EQ(folder_of("/x/y"), "/x");
}

TEST_F(FileIo, TemporaryNamesDiffer) {
  const auto one = random_digits(), two = random_digits();
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->size(), 16u);
  EXPECT_NE(*one, *two);
}

}  // namespace
}  // namespace gpurun
