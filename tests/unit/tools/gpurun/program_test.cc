// Program check: a program that would run without our library is refused, and the message gives the
// reason.
#include "tools/gpurun/program.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace gpurun::tools {
namespace {

// A separate folder for each test, which removes it at its end.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string pattern = testing::TempDir() + "gpurun_program_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content, mode_t mode = 0755) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    chmod(path.c_str(), mode);
    return path;
  }

  // A program header table and its contents, as far as the check reads them.
  static std::string elf(const std::string& loader, const std::string& needed,
                         int machine = EM_X86_64, int elf_class = ELFCLASS64) {
    const std::uint64_t data_at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
    const std::string strings = std::string(1, '\0') + needed + std::string(1, '\0');
    const std::uint64_t loader_at = data_at, strings_at = loader_at + loader.size() + 1;
    const std::uint64_t dynamic_at = strings_at + strings.size();
    const Elf64_Dyn dynamic[] = {
        {DT_STRTAB, {strings_at}}, {DT_STRSZ, {strings.size()}}, {DT_NEEDED, {1}}, {DT_NULL, {0}}};
    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = static_cast<unsigned char>(elf_class);
    header.e_machine = static_cast<Elf64_Half>(machine);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = loader.empty() ? 1 : 3;
    Elf64_Phdr parts[3] = {};
    parts[0].p_type = PT_LOAD;
    parts[0].p_filesz = dynamic_at + sizeof dynamic;
    parts[1].p_type = PT_INTERP;
    parts[1].p_offset = loader_at;
    parts[1].p_filesz = loader.size() + 1;
    parts[2].p_type = PT_DYNAMIC;
    parts[2].p_offset = dynamic_at;
    parts[2].p_filesz = sizeof dynamic;
    std::string file(reinterpret_cast<const char*>(&header), sizeof header);
    file.append(reinterpret_cast<const char*>(parts), sizeof parts);
    file += loader + std::string(1, '\0') + strings;
    file.append(reinterpret_cast<const char*>(dynamic), sizeof dynamic);
    return file;
  }

  std::string why_not(const std::string& path, const std::string& asan_options = "") {
    const Status status = can_be_preloaded(path, asan_options);
    return status.ok() ? "can" : status.message();
  }

  static constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";
  std::string folder_;
};

// Exit statuses 127 and 126 tell scripts apart "no such program" from "not a program".
TEST_F(ProgramTest, FindsSameProgramAsShell) {
  const std::string good = write("good", "#!/bin/sh\n");
  const std::string plain = write("plain", "text", 0644);
  EXPECT_EQ(*find_program(good, ""), good);
  EXPECT_EQ(*find_program("good", "/nowhere:" + folder_), good);
  EXPECT_EQ(find_program("absent", folder_).status().code(), Code::kUnavailable);
  EXPECT_EQ(find_program(folder_ + "/absent", "").status().code(), Code::kUnavailable);
  EXPECT_EQ(find_program(folder_, "").status().code(), Code::kRefused);
  EXPECT_EQ(find_program("", folder_).status().code(), Code::kUnavailable);
  // The checks below run only as root. They hold because even root's access(2) needs one execute
  // bit.
  if (getuid() != 0) return;
  EXPECT_EQ(find_program(plain, "").status().code(), Code::kRefused);
  EXPECT_EQ(find_program("plain", folder_).status().code(), Code::kRefused);
}

// A program that our library cannot enter would silently run without a GPU, so each reason is
// reported.
TEST_F(ProgramTest, ReportsWhyPreloadingFails) {
  EXPECT_EQ(why_not(write("good", elf(kLoader, "libc.so.6"))), "can");
  EXPECT_NE(why_not(write("static", elf("", ""))).find("statically"), std::string::npos);
  // A launcher: the program that it starts is unknown here, and would run without us.
  EXPECT_NE(why_not(write("static", elf("", ""))).find("write it before gpurun"),
            std::string::npos);
  EXPECT_NE(why_not(write("musl", elf("/lib/ld-musl-x86_64.so.1", "libc.so"))).find("musl"),
            std::string::npos);
  EXPECT_NE(why_not(write("arm", elf(kLoader, "libc.so.6", EM_ARM))).find("processor"),
            std::string::npos);
  EXPECT_NE(why_not(write("old", elf(kLoader, "x", EM_386, ELFCLASS32))).find("32-bit"),
            std::string::npos);
  EXPECT_NE(why_not(write("sudo", elf(kLoader, "libc.so.6"))).find("sudo gpurun"),
            std::string::npos);
}

TEST_F(ProgramTest, AddressSanitizerNeedsLinkOrderCheckOff) {
  const std::string path = write("asan", elf(kLoader, "libasan.so.8"));
  EXPECT_NE(why_not(path).find("verify_asan_link_order=0"), std::string::npos);
  EXPECT_EQ(why_not(path, "verify_asan_link_order=0"), "can");
}

// An interpreter runs a script, and our library is preloaded into the interpreter.
TEST_F(ProgramTest, ChecksInterpreterOfScript) {
  const std::string interpreter = write("static", elf("", ""));
  EXPECT_NE(why_not(write("script", "#! " + interpreter + " -x\n")).find("statically"),
            std::string::npos);
  EXPECT_EQ(why_not(write("plain", "#!/bin/sh\necho\n")), "can");
}

TEST_F(ProgramTest, RefusesSetuidOfOtherUser) {
  if (getuid() != 0) GTEST_SKIP() << "skipped: only root can give a file away";
  const std::string path = write("setuid", elf(kLoader, "libc.so.6"));
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  chmod(path.c_str(), 04755);
  EXPECT_NE(why_not(path).find("setuid"), std::string::npos);
}

// A damaged file must not make us read beyond it.
TEST_F(ProgramTest, TruncatedFilesAreHarmless) {
  const std::string whole = elf(kLoader, "libasan.so.8");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    (void)can_be_preloaded(write("cut", whole.substr(0, bytes)), "");
  }
}

}  // namespace
}  // namespace gpurun::tools
