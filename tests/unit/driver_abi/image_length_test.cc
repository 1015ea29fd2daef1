// Image length: a bare image pointer is measured exactly. If the length is too short, the server
// gets a broken module. If it is too long, the program crashes in our library. Images lie at the
// end of a readable page.
#include "driver_abi/image_length.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_abi/fatbin.h"
#include "tests/support/images/fatbin_builder.h"

namespace gpurun::driver_abi {
namespace {

using test::build_container;
using test::put;

// Bytes that end directly before an unreadable page.
class AtPageEnd {
 public:
  explicit AtPageEnd(const std::string& bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes.size() + page - 1) / page * page + page;
    base_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + mapped_ - page, page, PROT_NONE);
    start_ = base_ + mapped_ - page - bytes.size();
    std::memcpy(start_, bytes.data(), bytes.size());
  }
  ~AtPageEnd() { munmap(base_, mapped_); }
  AtPageEnd(const AtPageEnd&) = delete;
  AtPageEnd& operator=(const AtPageEnd&) = delete;
  const void* get() const { return start_; }

 private:
  char* base_;
  char* start_;
  std::size_t mapped_;
};

struct ElfSpec {
  std::uint64_t section_table_at = 200;
  std::uint64_t program_table_at = 64;
  std::uint64_t content_at = 128;
  std::uint64_t content_bytes = 50;
  std::size_t total = 200 + 3 * 64;
};

// Three sections (none, content, one without bytes) and one program header.
std::string build_elf(const ElfSpec& spec) {
  std::string out(spec.total, '\0');
  out.replace(0, 7, std::string("\177ELF\2\1\1", 7));
  put(&out, 32, spec.program_table_at, 8);
  put(&out, 40, spec.section_table_at, 8);
  put(&out, 54, 56, 2);
  put(&out, 56, 1, 2);
  put(&out, 58, 64, 2);
  put(&out, 60, 3, 2);
  const std::size_t content = spec.section_table_at + 64;
  put(&out, content + 4, 1, 4);
  put(&out, content + 24, spec.content_at, 8);
  put(&out, content + 32, spec.content_bytes, 8);
  const std::size_t nobits = spec.section_table_at + 128;
  put(&out, nobits + 4, 8, 4);
  put(&out, nobits + 24, 100, 8);
  put(&out, nobits + 32, 1 << 20, 8);
  return out;
}

TEST(ImageLengthTest, PtxEndsAtItsNul) {
  const std::string text = "\n// comment\n.version 9.0\n";
  const AtPageEnd image(text + '\0');
  const auto found = image_at(image.get());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->form, ImageForm::kPtx);
  ASSERT_EQ(found->pieces.size(), 1U);
  EXPECT_EQ(found->pieces[0].size(), text.size());
  EXPECT_EQ(image_at(image.get(), text.size()).status().cuda_error(), 200) << "no NUL in reach";
}

TEST(ImageLengthTest, ContainerEndsAtItsDeclaredLength) {
  const std::string container = build_container({{.content = "some text"}, {.kind = 2}});
  const AtPageEnd image(container);
  const auto found = image_at(image.get());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->form, ImageForm::kContainer);
  EXPECT_EQ(found->pieces[0].size(), container.size());
}

TEST(ImageLengthTest, ElfEndsAtItsLastTableOrSection) {
  // Section headers last, then content last, then program headers last (cuBLASLt's cubins).
  const ElfSpec specs[] = {{},
                           {.content_at = 500, .content_bytes = 77, .total = 577},
                           {.program_table_at = 600, .total = 656}};
  for (const ElfSpec& spec : specs) {
    const AtPageEnd image(build_elf(spec));
    const auto found = image_at(image.get());
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->form, ImageForm::kElf);
    EXPECT_EQ(found->pieces[0].size(), spec.total);
  }
}

TEST(ImageLengthTest, ElfReadsLargeSectionCountFromSectionZero) {
  std::string elf = build_elf({});
  put(&elf, 60, 0, 2);
  put(&elf, 200 + 32, 3, 8);
  const AtPageEnd image(elf);
  const auto found = image_at(image.get());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->pieces[0].size(), elf.size());
}

struct Wrapper {
  std::uint32_t magic = 0x466243b1;
  std::uint32_t version = 1;
  const void* data = nullptr;
  const void* aux = nullptr;
};

TEST(ImageLengthTest, WrapperVersionOneNamesOneContainer) {
  const std::string container = build_container({{.content = "ptx"}});
  const AtPageEnd data(container);
  const Wrapper wrapper{.data = data.get()};
  const auto found = image_at(&wrapper);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->form, ImageForm::kWrapper);
  EXPECT_EQ(found->wrapper_version, 1U);
  ASSERT_EQ(found->pieces.size(), 1U);
  EXPECT_EQ(found->pieces[0].data(), data.get());
  EXPECT_EQ(found->pieces[0].size(), container.size());
}

// With -rdc only the per-object containers hold the PTX. Losing one loses kernels.
TEST(ImageLengthTest, WrapperVersionTwoAlsoNamesObjectContainers) {
  const AtPageEnd linked(build_container({}));
  const AtPageEnd first(build_container({{.content = "first"}}));
  const AtPageEnd second(build_container({{.content = "the second one"}}));
  const void* objects[] = {first.get(), second.get(), nullptr};
  const Wrapper wrapper{.version = 2, .data = linked.get(), .aux = objects};
  const auto found = image_at(&wrapper);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->wrapper_version, 2U);
  ASSERT_EQ(found->pieces.size(), 3U);
  EXPECT_EQ(found->pieces[1].data(), first.get());
  EXPECT_EQ(found->pieces[2].data(), second.get());

  const Wrapper without{.version = 2, .data = linked.get()};
  ASSERT_TRUE(image_at(&without).ok());
}

TEST(ImageLengthTest, InvalidImagesReturnDriverCodes) {
  EXPECT_EQ(image_at(nullptr).status().cuda_error(), 1);
  const AtPageEnd empty(std::string("\0", 1));
  EXPECT_EQ(image_at(empty.get()).status().cuda_error(), 200);
  const AtPageEnd noise(std::string("\x7f\x01\x02\x03noise", 10));
  EXPECT_EQ(image_at(noise.get()).status().cuda_error(), 200);
  const Wrapper no_container{};
  EXPECT_EQ(image_at(&no_container).status().cuda_error(), 200);
  const Wrapper future{.version = 3, .data = &no_container};
  EXPECT_EQ(image_at(&future).status().cuda_error(), 200);
  // A wrapper's pointers are meaningless in bytes from elsewhere.
  EXPECT_EQ(image_in(bytes_of(no_container)).status().cuda_error(), 200);
}

TEST(ImageLengthTest, EveryTruncationIsRefusedWithoutOverread) {
  const std::string images[] = {build_container({{.content = "some text"}}),
                                build_elf({.program_table_at = 600, .total = 656}), build_elf({})};
  for (const std::string& whole : images) {
    // Fewer bytes than a magic number may look like text.
    for (std::size_t length = 4; length < whole.size(); ++length) {
      const test::Exact cut(whole.substr(0, length));
      EXPECT_FALSE(image_in(cut.view()).ok()) << length;
    }
    const test::Exact exact(whole);
    const auto found = image_in(exact.view());
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->pieces[0].size(), whole.size());
  }
}

TEST(ImageLengthTest, SurvivesDamagedElfHeaders) {
  const std::string whole = build_elf({});
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char with : {'\xff', '\x7f'}) {
      std::string bad = whole;
      bad[at] = with;
      const test::Exact image(bad);
      const auto found = image_in(image.view());
      if (!found.ok()) continue;
      EXPECT_LE(found->pieces[0].size(), bad.size());
    }
  }
}

// A PTX file on disk has no NUL. Bytes after a NUL are not text.
TEST(ImageLengthTest, TextFromFileNeedsNoNul) {
  const test::Exact bare(".version 9.0");
  ASSERT_TRUE(image_in(bare.view()).ok());
  EXPECT_EQ(image_in(bare.view())->pieces[0].size(), 12U);
  const test::Exact padded(std::string(".version 9.0\0\0\0", 15));
  EXPECT_EQ(image_in(padded.view())->pieces[0].size(), 12U);
}

}  // namespace
}  // namespace gpurun::driver_abi
