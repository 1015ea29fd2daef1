// Folder entries: the C library's functions that list a folder, for /dev and for the folders that
// only we have.
//
// A stream of /dev is the C library's, and our devices follow its last entry. A stream of a folder
// of ours is one of the root folder, of which no entry is shown.
#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "client/device_files/this_lease.h"
#include "client/process/next_function.h"

namespace gpurun::client::device_files {
namespace {

// Streams of such folders that may be open at once. A stream beyond them shows what is there.
constexpr std::size_t kStreamsMax = 64;

// A stream belongs to one thread at a time, as the C library's do.
struct Stream {
  std::atomic<DIR*> directory{nullptr};
  bool only_ours = false;
  std::vector<Item>* items = nullptr;
  std::size_t next = 0;
  dirent entry{};
};

constinit Stream streams[kStreamsMax];
constinit std::atomic<unsigned> stream_count{0};
// Marks a place that a thread is filling.
DIR* const kTaken = reinterpret_cast<DIR*>(1);

using OpenFolder = DIR*(const char*);
using ReadFolder = dirent*(DIR*);
using ReadInto = int(DIR*, dirent*, dirent**);
using Filter = int(const dirent*);
using Compare = int(const dirent**, const dirent**);
using Scan = int(const char*, dirent***, Filter*, Compare*);
using Glob = int(const char*, int, int (*)(const char*, int), glob_t*);

constinit NextFunction<OpenFolder> next_opendir("opendir");
constinit NextFunction<ReadFolder> next_readdir("readdir");
constinit NextFunction<ReadFolder> next_readdir64("readdir64");
constinit NextFunction<ReadInto> next_readdir_r("readdir_r");
constinit NextFunction<ReadInto> next_readdir64_r("readdir64_r");
constinit NextFunction<void(DIR*)> next_rewinddir("rewinddir");
constinit NextFunction<int(DIR*)> next_closedir("closedir");
constinit NextFunction<Scan> next_scandir("scandir");
constinit NextFunction<Scan> next_scandir64("scandir64");
constinit NextFunction<Glob> next_glob("glob");
constinit NextFunction<Glob> next_glob64("glob64");

bool is_dev(const char* path) {
  return std::strcmp(path, "/dev") == 0 || std::strcmp(path, "/dev/") == 0;
}

Stream* find_stream(DIR* directory) {
  if (directory == nullptr || stream_count.load(std::memory_order_acquire) == 0) return nullptr;
  for (Stream& stream : streams) {
    if (stream.directory.load(std::memory_order_acquire) == directory) return &stream;
  }
  return nullptr;
}

// False: there is no place. The items are then gone.
bool keep_stream(DIR* directory, bool only_ours, std::vector<Item>* items) {
  for (Stream& stream : streams) {
    DIR* expected = nullptr;
    if (!stream.directory.compare_exchange_strong(expected, kTaken)) continue;
    stream.only_ours = only_ours;
    stream.items = items;
    stream.next = 0;
    stream_count.fetch_add(1, std::memory_order_release);
    stream.directory.store(directory, std::memory_order_release);
    return true;
  }
  delete items;
  return false;
}

// Leaves out what is there: a machine may have devices of its own.
void remove_existing(std::vector<Item>* items) {
  std::erase_if(*items, [](const Item& item) {
    static constinit NextFunction<int(const char*, int)> next_access("access");
    return next_access(("/dev/" + item.name).c_str(), 0) == 0;
  });
}

DIR* opened_folder(const char* path) {
  DIR* const directory = next_opendir(path);
  const int failure = errno;
  const bool dev = directory != nullptr && is_dev(path);
  if (!dev && (directory != nullptr || failure != ENOENT)) return directory;
  if (!dev && shown_entry(path).kind() != Kind::kFolder) return directory;
  try {
    auto* items = new std::vector<Item>(items_of(path, this_lease()));
    if (dev) remove_existing(items);
    errno = failure;
    if (items->empty()) {
      delete items;
      return directory;
    }
    if (!dev) items->insert(items->begin(), {{".", Kind::kFolder}, {"..", Kind::kFolder}});
    DIR* const base = dev ? directory : next_opendir("/");
    if (base == nullptr) {
      delete items;
      return nullptr;
    }
    if (keep_stream(base, !dev, items) || dev) return base;
    next_closedir(base);
    errno = EMFILE;
    return nullptr;
  } catch (const std::bad_alloc&) {
    errno = failure;
    return directory;
  }
}

dirent* read_shown(Stream* stream) {
  if (stream->next == stream->items->size()) return nullptr;
  const Item& item = (*stream->items)[stream->next++];
  dirent& entry = stream->entry;
  entry = {};
  entry.d_ino = 1;
  entry.d_off = static_cast<off_t>(stream->next);
  entry.d_reclen = sizeof entry;
  entry.d_type = item.kind == Kind::kDevice ? DT_CHR : item.kind == Kind::kFile ? DT_REG : DT_DIR;
  item.name.copy(entry.d_name, sizeof entry.d_name - 1);
  return &entry;
}

dirent* read_entry(NextFunction<ReadFolder>* next, DIR* directory) {
  ReadFolder* const function = next->get();
  Stream* const stream = find_stream(directory);
  if (stream == nullptr) return function(directory);
  if (!stream->only_ours) {
    if (dirent* entry = function(directory)) return entry;
  }
  return read_shown(stream);
}

void forget_stream(DIR* directory) {
  Stream* const stream = find_stream(directory);
  if (stream == nullptr) return;
  delete stream->items;
  stream->items = nullptr;
  stream_count.fetch_sub(1, std::memory_order_release);
  stream->directory.store(nullptr, std::memory_order_release);
}

bool lists_ours(const char* path) {
  if (path == nullptr || this_lease().device_count() == 0) return false;
  return is_dev(path) || std::strncmp(path, "/proc/driver/nvidia", 19) == 0;
}

// As scandir(3), which reads through functions of the C library's own. Throws std::bad_alloc.
int scan(const char* path, dirent*** list, Filter* filter, Compare* compare) {
  DIR* const directory = opened_folder(path);
  if (directory == nullptr) return -1;
  std::vector<dirent*> found;
  while (dirent* entry = read_entry(&next_readdir, directory)) {
    if (filter != nullptr && filter(entry) == 0) continue;
    const std::size_t bytes = offsetof(dirent, d_name) + std::strlen(entry->d_name) + 1;
    auto* copy = static_cast<dirent*>(std::malloc(std::max(bytes, sizeof(dirent))));
    if (copy == nullptr) continue;
    std::memcpy(copy, entry, bytes);
    found.push_back(copy);
  }
  forget_stream(directory);
  next_closedir(directory);
  // The program frees the array and the entries.
  *list = static_cast<dirent**>(std::malloc((found.size() + 1) * sizeof(dirent*)));
  if (*list == nullptr) {
    for (dirent* entry : found) std::free(entry);
    errno = ENOMEM;
    return -1;
  }
  std::copy(found.begin(), found.end(), *list);
  if (compare != nullptr) {
    std::sort(*list, *list + found.size(), [compare](const dirent* one, const dirent* other) {
      return compare(&one, &other) < 0;
    });
  }
  return static_cast<int>(found.size());
}

}  // namespace

static_assert(sizeof(dirent) == sizeof(dirent64) && sizeof(glob_t) == sizeof(glob64_t));

extern "C" {

DIR* shown_opendir(const char* path) GPURUN_AS("opendir");
dirent* shown_readdir(DIR* directory) GPURUN_AS("readdir");
dirent* shown_readdir64(DIR* directory) GPURUN_AS("readdir64");
int shown_readdir_r(DIR* directory, dirent* entry, dirent** result) GPURUN_AS("readdir_r");
int shown_readdir64_r(DIR* directory, dirent* entry, dirent** result) GPURUN_AS("readdir64_r");
void shown_rewinddir(DIR* directory) GPURUN_AS("rewinddir");
int shown_closedir(DIR* directory) GPURUN_AS("closedir");
int shown_scandir(const char* path, dirent*** list, Filter* filter, Compare* compare)
    GPURUN_AS("scandir");
int shown_scandir64(const char* path, dirent*** list, Filter* filter, Compare* compare)
    GPURUN_AS("scandir64");
int shown_glob(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* result)
    GPURUN_AS("glob");
int shown_glob64(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* result)
    GPURUN_AS("glob64");
int shown_lstat(const char* path, struct stat* status) __asm__("lstat");
int shown_stat(const char* path, struct stat* status) __asm__("stat");

DIR* shown_opendir(const char* path) { return opened_folder(path); }
dirent* shown_readdir(DIR* directory) { return read_entry(&next_readdir, directory); }
dirent* shown_readdir64(DIR* directory) { return read_entry(&next_readdir64, directory); }

// As readdir_r(3), which programs of older systems use.
static int read_into(NextFunction<ReadInto>* next, NextFunction<ReadFolder>* read, DIR* directory,
                     dirent* entry, dirent** result) {
  if (find_stream(directory) == nullptr) return (*next)(directory, entry, result);
  const int before = std::exchange(errno, 0);
  const dirent* const found = read_entry(read, directory);
  const int failure = std::exchange(errno, before);
  *result = found == nullptr ? nullptr : entry;
  if (found != nullptr) *entry = *found;
  return found == nullptr ? failure : 0;
}
int shown_readdir_r(DIR* directory, dirent* entry, dirent** result) {
  return read_into(&next_readdir_r, &next_readdir, directory, entry, result);
}
int shown_readdir64_r(DIR* directory, dirent* entry, dirent** result) {
  return read_into(&next_readdir64_r, &next_readdir64, directory, entry, result);
}

void shown_rewinddir(DIR* directory) {
  if (Stream* stream = find_stream(directory)) stream->next = 0;
  next_rewinddir.get()(directory);
}

int shown_closedir(DIR* directory) {
  forget_stream(directory);
  return next_closedir(directory);
}

static int scan_by(NextFunction<Scan>* next, const char* path, dirent*** list, Filter* filter,
                   Compare* compare) {
  if (!lists_ours(path)) return (*next)(path, list, filter, compare);
  try {
    return scan(path, list, filter, compare);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

int shown_scandir(const char* path, dirent*** list, Filter* filter, Compare* compare) {
  return scan_by(&next_scandir, path, list, filter, compare);
}
int shown_scandir64(const char* path, dirent*** list, Filter* filter, Compare* compare) {
  return scan_by(&next_scandir64, path, list, filter, compare);
}

// glob(3) reads through functions of the C library's own, unless it is given others.
static int glob_by(NextFunction<Glob>* next, const char* pattern, int flags,
                   int (*failed)(const char*, int), glob_t* result) {
  constexpr char kDevices[] = "/dev/nvidia";
  constexpr char kDriver[] = "/proc/driver/nvidia";
  const bool ours = (flags & GLOB_ALTDIRFUNC) == 0 && pattern != nullptr &&
                    (std::strncmp(pattern, kDevices, sizeof kDevices - 1) == 0 ||
                     std::strncmp(pattern, kDriver, sizeof kDriver - 1) == 0);
  if (!ours) return (*next)(pattern, flags, failed, result);
  result->gl_opendir = [](const char* path) -> void* { return opened_folder(path); };
  result->gl_readdir = [](void* directory) {
    return read_entry(&next_readdir, static_cast<DIR*>(directory));
  };
  result->gl_closedir = [](void* directory) { shown_closedir(static_cast<DIR*>(directory)); };
  result->gl_stat = shown_stat;
  result->gl_lstat = shown_lstat;
  return (*next)(pattern, flags | GLOB_ALTDIRFUNC, failed, result);
}

int shown_glob(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* result) {
  return glob_by(&next_glob, pattern, flags, failed, result);
}
int shown_glob64(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* result) {
  return glob_by(&next_glob64, pattern, flags, failed, result);
}

}  // extern "C"
}  // namespace gpurun::client::device_files
