// PtxasOutput: the output of a ptxas carries the PTX of each of its inputs, and what is no machine
// code, or cannot be changed, stays as it is.
#include "client/cuda_tools/ptxas_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/file_io.h"
#include "driver_abi/cubin_with_ptx.h"
#include "driver_abi/fatbin.h"
#include "driver_abi/linked_image.h"

namespace gpurun::client::cuda_tools {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kOne[] = ".version 8.0\n.target sm_80\n.address_size 64\n// one\n";
constexpr char kTwo[] = "// two\n.version 8.0\n.target sm_80\n";

// An ELF image with a section of names alone, as the smallest that ptxas could write.
std::string smallest_elf() {
  std::string image(64, '\0');
  const auto put = [&image](std::size_t at, auto value) {
    std::memcpy(image.data() + at, &value, sizeof value);
  };
  std::memcpy(image.data(),
              "\x7f"
              "ELF\2\1\1",
              7);
  put(18, std::uint16_t{190});
  put(52, std::uint16_t{64});
  put(40, std::uint64_t{80});  // Section headers.
  put(58, std::uint16_t{64});
  put(60, std::uint16_t{2});
  put(62, std::uint16_t{1});
  image += std::string("\0.shstrtab\0", 11) + std::string(5, '\0');
  image.resize(80 + 2 * 64, '\0');
  put(144, std::uint32_t{1});
  put(148, std::uint32_t{3});  // SHT_STRTAB
  put(168, std::uint64_t{64});
  put(176, std::uint64_t{11});
  return image;
}

class PtxasOutput : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override {
    const std::string command = std::string("rm -rf ") + folder_;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  std::string file(const std::string& name, const std::string& content) {
    const std::string path = std::string(folder_) + "/" + name;
    EXPECT_TRUE(replace_file(path, content).ok());
    return path;
  }
  static std::string read(const std::string& path) { return *read_text_file(path, 1 << 20); }

  // The PTX texts in a file's section.
  static std::vector<std::string> texts_in(const std::string& path) {
    const std::string image = read(path);
    const auto ptx = driver_abi::carried_ptx(byte_view(image.data(), image.size()));
    std::vector<std::string> texts;
    if (!ptx.ok() || ptx->empty()) return texts;
    const auto entries = driver_abi::read_fatbin(ByteView(ptx->data(), ptx->size()));
    if (!entries.ok()) return texts;
    for (const auto& entry : *entries) {
      EXPECT_TRUE(driver_abi::is_linked_entry(entry));
      texts.push_back(*driver_abi::ptx_text(entry));
    }
    return texts;
  }

  char folder_[32] = "/tmp/gpurun-ptxas-XXXXXX";
};

// As XLA, Triton and nvcc write it.
TEST_F(PtxasOutput, ReadsCommandLines) {
  PtxasCommand xla =
      parse_ptxas_command({"/tmp/a", "-o", "/tmp/b", "-arch=sm_121a", "--warn-on-spills"});
  EXPECT_EQ(xla.output, "/tmp/b");
  EXPECT_THAT(xla.files, ElementsAre("/tmp/a"));
  PtxasCommand triton = parse_ptxas_command(
      {"-lineinfo", "-v", "--regAllocOptLevel=2", "--gpu-name=sm_90a", "/t/k.ptx", "-o", "/t/k.o"});
  EXPECT_EQ(triton.output, "/t/k.o");
  EXPECT_THAT(triton.files, ElementsAre("/t/k.ptx"));
  PtxasCommand words = parse_ptxas_command(
      {"--gpu-name", "sm_80", "--output-file=c", "-ias", ".version 8.0", "a", "b", "-O3"});
  EXPECT_EQ(words.output, "c");
  EXPECT_THAT(words.strings, ElementsAre(".version 8.0"));
  EXPECT_THAT(words.files, ElementsAre("sm_80", "a", "b"));
  EXPECT_EQ(parse_ptxas_command({"--version"}).output, "");
  EXPECT_EQ(parse_ptxas_command({"-o"}).output, "");
}

TEST_F(PtxasOutput, ReadsFileOfOptions) {
  const std::string options = file("options", "-o  out.cubin\n\tin.ptx -v");
  const PtxasCommand command = parse_ptxas_command({"--options-file", options});
  EXPECT_EQ(command.output, "out.cubin");
  EXPECT_THAT(command.files, ElementsAre("in.ptx"));
  const std::string itself = file("itself", "");
  ASSERT_TRUE(replace_file(itself, "a -optf=" + itself).ok());
  EXPECT_LE(parse_ptxas_command({"-optf", itself}).files.size(), 5u);
}

TEST_F(PtxasOutput, AddsEachInput) {
  const std::string code = smallest_elf();
  PtxasCommand command;
  command.output = file("out", code);
  command.files = {file("one.ptx", std::string(kOne) + std::string(1, '\0')), "sm_80",
                   file("two.ptx", kTwo)};
  ASSERT_TRUE(add_ptx_to_output(command).ok());
  EXPECT_THAT(texts_in(command.output), ElementsAre(kOne, kTwo));
  // What was there is where it was. Of the header only the place and number of sections differ.
  const std::string after = read(command.output);
  EXPECT_EQ(after.substr(64, code.size() - 64), code.substr(64));
  EXPECT_EQ(after.substr(0, 40), code.substr(0, 40));
}

TEST_F(PtxasOutput, AddsTextOfCommandLine) {
  PtxasCommand command;
  command.output = file("out", smallest_elf());
  command.strings = {kOne};
  ASSERT_TRUE(add_ptx_to_output(command).ok());
  EXPECT_THAT(texts_in(command.output), ElementsAre(kOne));
}

TEST_F(PtxasOutput, LeavesOtherOutputs) {
  const std::string input = file("one.ptx", kOne);
  PtxasCommand command;
  command.files = {input};
  EXPECT_TRUE(add_ptx_to_output(command).ok());
  for (const char* path : {"/dev/null", "/nonexistent/out"}) {
    command.output = path;
    EXPECT_TRUE(add_ptx_to_output(command).ok()) << path;
  }
  command.output = file("text", "no machine code");
  EXPECT_TRUE(add_ptx_to_output(command).ok());
  EXPECT_EQ(read(command.output), "no machine code");
  command.output = file("out", smallest_elf());
  command.files = {file("binary", std::string(".version\0x", 10)), "/nonexistent"};
  EXPECT_TRUE(add_ptx_to_output(command).ok());
  EXPECT_EQ(read(command.output), smallest_elf());
}

// A damaged image must neither be read beyond its end nor be written to.
TEST_F(PtxasOutput, LeavesDamagedMachineCode) {
  PtxasCommand command;
  command.files = {file("one.ptx", kOne)};
  const std::string whole = smallest_elf();
  for (std::size_t bytes = 4; bytes < whole.size(); ++bytes) {
    command.output = file("out", whole.substr(0, bytes));
    EXPECT_FALSE(add_ptx_to_output(command).ok()) << bytes;
    EXPECT_EQ(read(command.output), whole.substr(0, bytes));
  }
  for (std::size_t at = 40; at < 64; ++at) {
    std::string damaged = whole;
    damaged[at] = '\x7f';
    command.output = file("out", damaged);
    if (add_ptx_to_output(command).ok()) continue;  // Not every byte matters.
    EXPECT_EQ(read(command.output), damaged);
  }
}

}  // namespace
}  // namespace gpurun::client::cuda_tools
