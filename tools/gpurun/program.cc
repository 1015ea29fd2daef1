// find_program(), can_be_preloaded(): read the program's ELF headers as the kernel and the loader
// do.
#include "tools/gpurun/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/unique_fd.h"

namespace gpurun::tools {
namespace {

constexpr int kScriptsDeep = 4;  // As the kernel: BINPRM_MAX_RECURSION.
constexpr std::size_t kHeadersMax = 256;
constexpr std::size_t kDynamicBytesMax = std::size_t{1} << 20;

Status refused(const std::string& message) { return Status(Code::kRefused, message); }

bool is_directory(const std::string& path) {
  struct stat what = {};
  return stat(path.c_str(), &what) == 0 && S_ISDIR(what.st_mode);
}

bool read_at(int fd, void* into, std::size_t bytes, std::uint64_t offset) {
  const ssize_t got = pread(fd, into, bytes, static_cast<off_t>(offset));
  return got >= 0 && static_cast<std::size_t>(got) == bytes;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The interpreter in a script's first line, or "".
std::string script_interpreter(int fd) {
  char line[256] = "";
  const ssize_t got = pread(fd, line, sizeof line - 1, 0);
  if (got < 3 || line[0] != '#' || line[1] != '!') return "";
  line[strcspn(line, "\n")] = '\0';
  const char* start = line + 2 + strspn(line + 2, " \t");
  return std::string(start, strcspn(start, " \t"));
}

// What decides about preloading, from a 64-bit ELF file's program headers.
struct Image {
  std::string loader;               // PT_INTERP
  std::vector<std::string> needed;  // DT_NEEDED
};

std::string text_at(const std::vector<char>& strings, std::uint64_t offset) {
  if (offset >= strings.size()) return "";
  return std::string(&strings[offset], strnlen(&strings[offset], strings.size() - offset));
}

// The file offset of a virtual address, or ~0.
std::uint64_t offset_of(const std::vector<Elf64_Phdr>& headers, std::uint64_t address) {
  for (const Elf64_Phdr& header : headers) {
    if (header.p_type == PT_LOAD && address >= header.p_vaddr &&
        address - header.p_vaddr < header.p_filesz) {
      return header.p_offset + (address - header.p_vaddr);
    }
  }
  return ~std::uint64_t{0};
}

void read_needed(int fd, const std::vector<Elf64_Phdr>& headers, const Elf64_Phdr& dynamic,
                 Image* image) {
  if (dynamic.p_filesz > kDynamicBytesMax) return;
  std::vector<Elf64_Dyn> entries(dynamic.p_filesz / sizeof(Elf64_Dyn));
  if (!read_at(fd, entries.data(), entries.size() * sizeof(Elf64_Dyn), dynamic.p_offset)) return;
  std::uint64_t strings_address = 0, strings_bytes = 0;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRTAB) strings_address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) strings_bytes = entry.d_un.d_val;
  }
  if (strings_bytes == 0 || strings_bytes > (std::uint64_t{64} << 20)) return;
  std::vector<char> strings(strings_bytes);
  const std::uint64_t offset = offset_of(headers, strings_address);
  if (offset == ~std::uint64_t{0} || !read_at(fd, strings.data(), strings.size(), offset)) return;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NEEDED) image->needed.push_back(text_at(strings, entry.d_un.d_val));
  }
}

bool read_image(int fd, const Elf64_Ehdr& header, Image* image) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kHeadersMax) return false;
  std::vector<Elf64_Phdr> headers(header.e_phnum);
  if (!read_at(fd, headers.data(), headers.size() * sizeof(Elf64_Phdr), header.e_phoff)) {
    return false;
  }
  for (const Elf64_Phdr& part : headers) {
    if (part.p_type == PT_INTERP && part.p_filesz > 1 && part.p_filesz < 4096) {
      std::string loader(part.p_filesz, '\0');
      if (read_at(fd, loader.data(), loader.size(), part.p_offset)) {
        image->loader = loader.c_str();
      }
    }
    if (part.p_type == PT_DYNAMIC) read_needed(fd, headers, part, image);
  }
  return true;
}

Status check_privileges(const std::string& path, int fd) {
  struct stat what = {};
  if (fstat(fd, &what) != 0) return Status::from_errno(errno, path);
  if (base_name(path) == "sudo") {
    return refused(
        "sudo drops the variables that load our library; write: sudo gpurun ... -- PROGRAM");
  }
  const bool other_user = (what.st_mode & S_ISUID) != 0 && what.st_uid != getuid();
  const bool other_group = (what.st_mode & S_ISGID) != 0 && what.st_gid != getgid();
  if (other_user || other_group) {
    return refused(
        path + " is set" + (other_user ? "uid" : "gid") +
        ": the loader ignores LD_PRELOAD for it; run gpurun as the user that it becomes");
  }
  if (getuid() != 0 && fgetxattr(fd, "security.capability", nullptr, 0) > 0) {
    return refused(path +
                   " has file capabilities: the loader ignores LD_PRELOAD for it; remove them "
                   "(setcap -r) or run gpurun as root");
  }
  return {};
}

Status check_elf(const std::string& path, int fd, const std::string& asan_options) {
  Elf64_Ehdr header = {};
  if (!read_at(fd, &header, sizeof header, 0) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return {};  // Neither ELF nor a script: the kernel or a shell will report it.
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64) {
    return refused(path + " is a 32-bit program; CUDA has 64-bit programs only");
  }
#if defined(__x86_64__)
  constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr int kMachine = EM_AARCH64;
#endif
  if (header.e_machine != kMachine) return refused(path + " is built for another processor");
  Image image;
  if (!read_image(fd, header, &image)) return refused(path + " has damaged program headers");
  if (image.loader.empty()) {
    return refused(path +
                   " is statically linked, so no library can be loaded into it; link it "
                   "dynamically (CUDA's own runtime may stay static). If it only starts the "
                   "program that uses the GPU, write it before gpurun");
  }
  if (image.loader.find("ld-musl") != std::string::npos) {
    return refused(path + " uses the musl C library; our library needs glibc, as NVIDIA's does");
  }
  for (const std::string& library : image.needed) {
    if (library.compare(0, 7, "libasan") == 0 &&
        asan_options.find("verify_asan_link_order=0") == std::string::npos) {
      return refused(path +
                     " is built with AddressSanitizer, which must be loaded first; set "
                     "ASAN_OPTIONS=verify_asan_link_order=0");
    }
  }
  return {};
}

}  // namespace

Result<std::string> find_program(const std::string& word, const std::string& search_path) {
  const auto found_but = [](const std::string& path) {
    return is_directory(path) ? refused(path + " is a folder")
                              : Status(Code::kRefused, path + " is not executable");
  };
  if (word.empty()) return Status(Code::kUnavailable, "the program's name is empty");
  if (word.find('/') != std::string::npos) {
    if (access(word.c_str(), F_OK) != 0) return Status(Code::kUnavailable, word + ": no such file");
    if (is_directory(word) || access(word.c_str(), X_OK) != 0) return found_but(word);
    return word;
  }
  std::string not_executable;
  for (std::size_t start = 0; start <= search_path.size();) {
    const std::size_t colon = std::min(search_path.find(':', start), search_path.size());
    const std::string folder = search_path.substr(start, colon - start);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + word;
    start = colon + 1;
    if (access(candidate.c_str(), F_OK) != 0 || is_directory(candidate)) continue;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (not_executable.empty()) not_executable = candidate;
  }
  if (!not_executable.empty()) return found_but(not_executable);
  return Status(Code::kUnavailable, word + ": not found on PATH");
}

Status can_be_preloaded(const std::string& path, const std::string& asan_options) {
  std::string file = path;
  for (int depth = 0; depth <= kScriptsDeep; ++depth) {
    const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    // Executable but not readable: it cannot be checked, and the kernel may still run it.
    if (!fd.valid()) return {};
    GPURUN_RETURN_IF_ERROR(check_privileges(file, fd.get()));
    const std::string interpreter = script_interpreter(fd.get());
    if (interpreter.empty()) return check_elf(file, fd.get(), asan_options);
    file = interpreter;
  }
  return {};
}

}  // namespace gpurun::tools
