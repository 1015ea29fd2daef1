// ImageFolder: the images on a server's disk. An image is returned unchanged or not at all,
// whatever happened to the files. The folder never exceeds its bound, and only its user can add to
// it. A full disk or a dead keeper costs only the cache.
#include "server/images/image_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/images/image_keeper.h"
#include "server/worker/sandbox/worker_user.h"

namespace gpurun::server {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{64} << 20;

Bytes image_of(std::uint32_t seed, std::size_t bytes = 10'000) {
  Bytes image(bytes);
  for (std::byte& byte : image) byte = static_cast<std::byte>((seed = seed * 1664525 + 7) >> 24);
  return image;
}

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    base_ = std::filesystem::temp_directory_path() / "gpurun-images-XXXXXX";
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
    path_ = base_ + "/a/b";
  }
  ~ImageFolderTest() override { std::filesystem::remove_all(base_); }

  std::unique_ptr<ImageFolder> open(std::uint64_t bytes_max = kPlenty) {
    auto folder = ImageFolder::open(path_, bytes_max);
    EXPECT_TRUE(folder.ok()) << folder.status().to_string();
    return folder.ok() ? *std::move(folder) : nullptr;
  }

  Result<std::unique_ptr<ImageKeeper>> keeper() {
    auto made = start_image_keeper(base_, kPlenty);
    if (made.ok()) (*made)->keep("a/b");
    return made;
  }

  std::set<std::string> files() {
    std::set<std::string> names;
    DIR* listing = opendir(path_.c_str());
    while (const dirent* entry = readdir(listing)) {
      if (entry->d_name[0] != '.') names.insert(entry->d_name);
    }
    closedir(listing);
    return names;
  }

  // The size of all files, including half-written ones, while no process can add one.
  std::uint64_t bytes_under_lock() {
    const UniqueFd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY));
    EXPECT_EQ(flock(folder.get(), LOCK_EX), 0);
    std::map<ino_t, off_t> sizes;  // A file that is being renamed has two names.
    for (const std::string& name : files()) {
      struct stat about;
      if (stat((path_ + "/" + name).c_str(), &about) == 0) sizes[about.st_ino] = about.st_size;
    }
    std::uint64_t sum = 0;
    for (const auto& [inode, size] : sizes) sum += static_cast<std::uint64_t>(size);
    return sum;
  }

  std::string file_of(const Bytes& image) {
    std::string name;
    for (const std::uint8_t byte : sha256(image)) {
      char digits[3];
      snprintf(digits, sizeof digits, "%02x", byte);
      name += digits;
    }
    return path_ + "/" + name;
  }

  // A file as we would have written it.
  void plant(const std::string& file, const Bytes& bytes, mode_t mode = 0600) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    ASSERT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(fchmod(fd.get(), mode), 0);
  }

  void set_age(const std::string& file, time_t seconds) {
    const timespec then = {time(nullptr) - seconds, 0};
    const timespec times[] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  }

  std::string base_;
  std::string path_;
};

TEST_F(ImageFolderTest, KeepsImagesForLaterOpens) {
  const Bytes image = image_of(1);
  EXPECT_FALSE(open()->find(sha256(image)).has_value());
  open()->add(sha256(image), image);
  EXPECT_EQ(open()->find(sha256(image)), image);
  struct stat about;
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file_of(image).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(ImageFolderTest, RemovesDamagedFiles) {
  const Bytes image = image_of(2);
  const auto folder = open();
  Bytes flipped = image;
  flipped[5'000] ^= std::byte{1};
  Bytes longer = image;
  longer.push_back(std::byte{0});
  const Bytes shorter(image.begin(), image.end() - 1);
  for (const Bytes& wrong : {flipped, longer, shorter, Bytes()}) {
    plant(file_of(image), wrong);
    EXPECT_FALSE(folder->find(sha256(image)).has_value());
    EXPECT_TRUE(files().empty());
    folder->add(sha256(image), image);
    EXPECT_EQ(folder->find(sha256(image)), image);
  }
}

TEST_F(ImageFolderTest, IgnoresLinksSpecialFilesAndSharedModes) {
  const Bytes image = image_of(3);
  const auto folder = open();
  const std::string elsewhere = base_ + "/elsewhere";
  plant(elsewhere, image);
  ASSERT_EQ(symlink(elsewhere.c_str(), file_of(image).c_str()), 0);
  EXPECT_FALSE(folder->find(sha256(image)).has_value());
  EXPECT_TRUE(files().empty());
  ASSERT_EQ(link(elsewhere.c_str(), file_of(image).c_str()), 0);
  EXPECT_FALSE(folder->find(sha256(image)).has_value());
  EXPECT_TRUE(files().empty());
  plant(file_of(image), image, 0644);
  EXPECT_FALSE(folder->find(sha256(image)).has_value());
  EXPECT_TRUE(files().empty());
  ASSERT_EQ(mkfifo(file_of(image).c_str(), 0600), 0);
  EXPECT_FALSE(folder->find(sha256(image)).has_value());
  EXPECT_TRUE(files().empty());
  ASSERT_EQ(mkdir(file_of(image).c_str(), 0700), 0);
  EXPECT_FALSE(folder->find(sha256(image)).has_value());
  folder->add(sha256(image), image);  // The image cannot replace the folder, and leaves nothing.
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(access(elsewhere.c_str(), F_OK), 0);
}

TEST_F(ImageFolderTest, OpenRefusesUnsafePaths) {
  open();
  ASSERT_EQ(chmod(path_.c_str(), 0750), 0);
  EXPECT_EQ(ImageFolder::open(path_, kPlenty).status().code(), Code::kRefused);
  ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  EXPECT_TRUE(ImageFolder::open(path_, kPlenty).ok());
  const std::string link = base_ + "/link";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_EQ(ImageFolder::open(link, kPlenty).status().code(), Code::kRefused);
  plant(base_ + "/file", image_of(1));
  EXPECT_FALSE(ImageFolder::open(base_ + "/file", kPlenty).ok());
  EXPECT_FALSE(ImageFolder::open("relative", kPlenty).ok());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path_.c_str(), 1, 1), 0);
    EXPECT_EQ(ImageFolder::open(path_, kPlenty).status().code(), Code::kRefused);
  }
}

TEST_F(ImageFolderTest, EvictsLeastRecentlyUsedImages) {
  constexpr std::size_t kBytes = 2 * ImageFolder::kBlockBytes;
  const auto folder = open(3 * kBytes);
  std::vector<Bytes> images;
  for (std::uint32_t i = 0; i < 3; ++i) {
    images.push_back(image_of(10 + i, kBytes - 1));
    folder->add(sha256(images.back()), images.back());
    set_age(file_of(images.back()), 100 - static_cast<time_t>(i));
  }
  EXPECT_EQ(files().size(), 3u);
  EXPECT_TRUE(folder->find(sha256(images[0])).has_value());  // This makes it the last used one.
  const Bytes more = image_of(20, kBytes);
  folder->add(sha256(more), more);
  EXPECT_EQ(files().size(), 3u);
  EXPECT_TRUE(folder->find(sha256(images[0])).has_value());
  EXPECT_FALSE(folder->find(sha256(images[1])).has_value());
  EXPECT_TRUE(folder->find(sha256(images[2])).has_value());
  EXPECT_TRUE(folder->find(sha256(more)).has_value());
  const Bytes too_large = image_of(21, 3 * kBytes + 1);
  folder->add(sha256(too_large), too_large);
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(ImageFolderTest, RemovesOnlyAbandonedPartFiles) {
  const Bytes image = image_of(4);
  const auto folder = open();
  plant(path_ + "/part-dead", image);
  set_age(path_ + "/part-dead", std::chrono::seconds(ImageFolder::kAbandonedAfter).count() + 10);
  plant(path_ + "/part-living", image);
  folder->add(sha256(image), image);
  EXPECT_EQ(files().count("part-dead"), 0u);
  EXPECT_EQ(files().count("part-living"), 1u);
  EXPECT_TRUE(folder->find(sha256(image)).has_value());
}

TEST_F(ImageFolderTest, FullDiskLeavesNoPartialFile) {
  const Bytes image = image_of(5, 100'000);
  const auto folder = open();
  // Like a full disk, the limit fails the file's growth (EFBIG instead of ENOSPC).
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {50'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  folder->add(sha256(image), image);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(files().empty());
  folder->add(sha256(image), image);
  EXPECT_EQ(folder->find(sha256(image)), image);
}

// Threads of several processes write, evict and read the same few images, for which there is not
// enough room.
TEST_F(ImageFolderTest, ConcurrentWritersKeepImagesIntactAndWithinLimit) {
  constexpr std::size_t kBytes = 64 * ImageFolder::kBlockBytes;
  constexpr std::uint64_t kBound = 4 * kBytes;
  std::vector<Bytes> images;
  for (std::uint32_t i = 0; i < 8; ++i) images.push_back(image_of(30 + i, kBytes));
  open();
  std::vector<pid_t> children;
  for (std::uint32_t process = 0; process < 3; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      const auto folder = open(kBound);
      bool well = true;
      const auto work = [&](std::uint32_t seed) {
        for (int i = 0; i < 30; ++i) {
          const Bytes& image = images[(seed = seed * 1664525 + 1013904223) >> 29];
          folder->add(sha256(image), image);
          const auto found = folder->find(sha256(image));
          if (found.has_value() && *found != image) well = false;
        }
      };
      std::thread other(work, 100 + process);
      work(process);
      other.join();
      _exit(well ? 0 : 1);
    }
    children.push_back(child);
  }
  std::uint64_t most = 0;
  while (!children.empty()) {
    most = std::max(most, bytes_under_lock());
    int status = 0;
    const pid_t ended = waitpid(children.back(), &status, WNOHANG);
    ASSERT_GE(ended, 0);
    if (ended == 0) continue;
    EXPECT_EQ(status, 0);
    children.pop_back();
  }
  EXPECT_LE(most, kBound);
  EXPECT_LE(files().size(), 4u);
  EXPECT_GE(files().size(), 1u);
  for (const std::string& name : files()) EXPECT_EQ(name.size(), 64u) << name;
}

// Runs `action` in a child, which may become another user. Returns its exit status.
template <typename Action>
int in_child(Action action) {
  const pid_t child = fork();
  if (child == 0) _exit(action() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_F(ImageFolderTest, KeeperServesProcessThatChangedUser) {
  const Bytes image = image_of(6, 3'000'000);
  const Bytes damaged = image_of(7);
  auto folder = open();
  plant(file_of(damaged), image_of(8));
  const bool root = geteuid() == 0;
  EXPECT_EQ(in_child([&] {
              auto cache = keeper();
              if (!cache.ok()) return false;
              if (root && !become_user(2'000'000'300).ok()) return false;
              if (root && ::open(path_.c_str(), O_RDONLY) >= 0) return false;
              if ((*cache)->find(sha256(image)).has_value()) return false;
              (*cache)->add(sha256(image), image);
              if ((*cache)->find(sha256(damaged)).has_value()) return false;
              return (*cache)->find(sha256(image)) == image;
            }),
            0);
  EXPECT_EQ(folder->find(sha256(image)), image);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(ImageFolderTest, KeeperHoldsNoExtraDescriptorsOrCapabilities) {
  EXPECT_EQ(in_child([&] {
              const UniqueFd session(::open("/dev/null", O_RDWR));
              auto cache = keeper();
              if (!cache.ok()) return false;
              (*cache)->find({});  // It has started once it answers.
              std::string keeper;
              std::ifstream("/proc/thread-self/children") >> keeper;
              if (keeper.empty()) return false;
              const std::filesystem::directory_iterator descriptors("/proc/" + keeper + "/fd");
              // Two besides the standard three: the folder and the socket.
              if (std::distance(begin(descriptors), end(descriptors)) > 5) return false;
              std::ifstream status("/proc/" + keeper + "/status");
              for (std::string line; std::getline(status, line);) {
                if (line.starts_with("CapEff:")) return line.ends_with("\t0000000000000000");
              }
              return false;
            }),
            0);
}

// Our own code names the part, for a user. It must never lead out of the folder.
TEST_F(ImageFolderTest, KeeperRejectsInvalidPartNames) {
  const Bytes image = image_of(14);
  const auto kept_in = [&](const std::string& part) {
    return in_child([&] {
             auto cache = start_image_keeper(base_ + "/images", kPlenty);
             if (!cache.ok()) return false;
             (*cache)->keep(part);
             (*cache)->add(sha256(image), image);
             return (*cache)->find(sha256(image)) == image;
           }) == 0;
  };
  const std::string half(ImageKeeper::kNameBytesMax / 2, 'x');
  const std::string longest = half + "/" + half;
  ASSERT_EQ(longest.size(), ImageKeeper::kNameBytesMax);
  for (const std::string& part :
       {std::string(), std::string(".."), std::string("../other"), std::string("a/../../other"),
        std::string("a/.."), std::string("/"), std::string("//"), std::string("/other"),
        std::string("//other"), std::string("a//b"), std::string("a/"), longest + "x"}) {
    EXPECT_FALSE(kept_in(part)) << part;
  }
  EXPECT_TRUE(std::filesystem::is_empty(base_));
  EXPECT_TRUE(kept_in("users/someone"));
  EXPECT_TRUE(kept_in(longest));
}

// A worker is killed as soon as its program has ended. The keeper is stopped until then, so that it
// handles no request before.
TEST_F(ImageFolderTest, KeeperFinishesRequestAfterWorkerIsKilled) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // This process adopts the keeper.
  const Bytes image = image_of(15, 100'000);
  int keeper_of_dead[2];
  ASSERT_EQ(pipe2(keeper_of_dead, O_CLOEXEC), 0);
  const int status = in_child([&] {
    auto cache = keeper();
    if (!cache.ok()) return false;
    (*cache)->find({});  // It has started once it answers.
    pid_t child = 0;
    std::ifstream("/proc/thread-self/children") >> child;
    if (child == 0 || kill(child, SIGSTOP) != 0) return false;
    if (write(keeper_of_dead[1], &child, sizeof child) != ssize_t{sizeof child}) return false;
    (*cache)->add(sha256(image), image);
    kill(getpid(), SIGKILL);
    return false;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(keeper_of_dead[1]);
  pid_t left = 0;
  const ssize_t told = read(keeper_of_dead[0], &left, sizeof left);
  close(keeper_of_dead[0]);
  ASSERT_EQ(told, ssize_t{sizeof left});
  kill(left, SIGCONT);
  int ended = 0;
  EXPECT_EQ(waitpid(left, &ended, 0), left);
  EXPECT_TRUE(WIFEXITED(ended)) << ended;
  EXPECT_EQ(open()->find(sha256(image)), image);
  EXPECT_EQ(files().size(), 1u);
}

// The keeper does not live on for a compromised worker either. Here the end of its socket never
// comes.
TEST_F(ImageFolderTest, KeeperTimesOutAfterItsWorkerEnds) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int pids[2];
  ASSERT_EQ(pipe2(pids, O_CLOEXEC), 0);
  in_child([&] {
    auto cache = keeper();
    if (!cache.ok()) return false;
    (*cache)->find({});
    pid_t left[2] = {};
    std::ifstream("/proc/thread-self/children") >> left[0];
    left[1] = fork();
    while (left[1] == 0) pause();  // This process holds the worker's end of the socket.
    if (write(pids[1], left, sizeof left) != ssize_t{sizeof left}) return false;
    kill(getpid(), SIGKILL);
    return false;
  });
  close(pids[1]);
  pid_t left[2] = {};
  const ssize_t told = read(pids[0], left, sizeof left);
  close(pids[0]);
  ASSERT_EQ(told, ssize_t{sizeof left});
  int ended = 0;
  EXPECT_EQ(waitpid(left[0], &ended, 0), left[0]);
  EXPECT_TRUE(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGALRM) << ended;
  kill(left[1], SIGKILL);
  EXPECT_EQ(waitpid(left[1], &ended, 0), left[1]);
}

TEST_F(ImageFolderTest, KeeperRejectsImageWithWrongDigest) {
  const Bytes image = image_of(9);
  const Bytes other = image_of(10);
  EXPECT_EQ(in_child([&] {
              auto cache = keeper();
              if (!cache.ok()) return false;
              (*cache)->add(sha256(image), other);
              (*cache)->add(sha256(image), ByteView());
              return !(*cache)->find(sha256(image)).has_value();
            }),
            0);
  EXPECT_TRUE(files().empty());
}

// Changes the memory file that a compromised worker passes to its keeper, for as long as the keeper
// has it. A cache's add() opens the file under the lowest free number.
class Meddler {
 public:
  template <typename Deed>
  explicit Meddler(Deed deed) : file_(dup(STDERR_FILENO)) {
    close(file_);
    thread_ = std::thread([this, deed] {
      while (!over_) deed(file_);
    });
  }
  ~Meddler() {
    over_ = true;
    thread_.join();
  }

 private:
  const int file_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Avoids the C library's functions. ThreadSanitizer reports writes by one thread to a file that
// another closes.
bool put_byte(int file, std::byte byte, long offset) {
  return syscall(SYS_pwrite64, file, &byte, std::size_t{1}, offset) == 1;
}

TEST_F(ImageFolderTest, KeptImageMatchesDigestWhileSourceChanges) {
  constexpr std::size_t kBytes = (std::size_t{1} << 20) + 5'000;
  constexpr int kRounds = 300;
  constexpr auto kLongest = std::chrono::seconds(6);
  constexpr std::size_t kPlaces[] = {4'000, kBytes - 1};  // In the first piece, and the last.
  const Bytes image = image_of(11, kBytes);
  EXPECT_EQ(in_child([&] {
              auto cache = keeper();
              if (!cache.ok()) return false;
              const Meddler meddler([&](int file) {
                for (const std::size_t place : kPlaces) {
                  const auto offset = static_cast<long>(place);
                  put_byte(file, image[place] ^ std::byte{1}, offset);
                  put_byte(file, image[place], offset);
                }
              });
              int rounds = 0, kept = 0;
              const auto end = std::chrono::steady_clock::now() + kLongest;
              while (rounds < kRounds && std::chrono::steady_clock::now() < end) {
                ++rounds;
                (*cache)->add(sha256(image), image);
                // A direct check, because the folder itself would remove a wrong file.
                std::ifstream file(file_of(image), std::ios::binary);
                if (!file.is_open()) continue;
                ++kept;
                const std::string text(std::istreambuf_iterator<char>(file), {});
                if (sha256(byte_view(text.data(), text.size())) != sha256(image)) {
                  fprintf(stderr, "round %d: another image lies under the digest\n", rounds);
                  return false;
                }
                unlink(file_of(image).c_str());
              }
              printf("%d rounds, kept in %d\n", rounds, kept);
              fflush(stdout);
              // Otherwise the meddler never interfered, or no file was ever whole.
              return kept > 0 && kept < rounds;
            }),
            0);
  for (const std::string& name : files()) EXPECT_EQ(name.size(), 64u) << name;
}

TEST_F(ImageFolderTest, KeeperSurvivesShrinkingFile) {
  const Bytes image = image_of(12, std::size_t{3} << 20);
  const Bytes other = image_of(13);
  open()->add(sha256(other), other);
  EXPECT_EQ(in_child([&] {
              auto cache = keeper();
              if (!cache.ok()) return false;
              {
                const Meddler meddler([](int file) { syscall(SYS_ftruncate, file, 4096l); });
                int lost = 0;
                for (int i = 0; i < 30; ++i) {
                  (*cache)->add(sha256(image), image);
                  if (unlink(file_of(image).c_str()) != 0) ++lost;
                }
                if (lost == 0) return false;
              }
              return (*cache)->find(sha256(other)) == other;
            }),
            0);
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace gpurun::server
