// Host objects: finds all device code in objects and archives from untrusted sources. Reads nothing
// beyond the end, and fails for damaged files.
#include "driver_abi/host_object.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "driver_abi/fatbin.h"
#include "driver_abi/linked_image.h"
#include "tests/support/images/object_builder.h"

namespace gpurun::driver_abi {
namespace {

using test::build_archive;
using test::build_container;
using test::build_object;
using test::Exact;

std::string container(const std::string& ptx) { return build_container({{.content = ptx}}); }

// The text of each container's first entry.
std::vector<std::string> texts_in(const std::string& bytes) {
  const Exact exact(bytes);
  const auto found = containers_in_object(exact.view());
  std::vector<std::string> texts;
  if (!found.ok()) return {found.status().message()};
  for (const ByteView each : *found) {
    const auto entries = read_fatbin(each);
    texts.push_back(entries.ok() && !entries->empty() ? *ptx_text(entries->front()) : "no entry");
  }
  return texts;
}

const std::string kPadding(8, '\0');

std::string sample_object() {
  return build_object({{".text", "code"},
                       {"__nv_relfatbin", container("one") + kPadding + container("two")},
                       {".nv_fatbin", container("three")},
                       {".nv_fatbin_of_others", "garbage"}});
}

TEST(HostObject, FindsContainersOfBothSections) {
  EXPECT_EQ(texts_in(sample_object()), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_TRUE(texts_in(build_object({{".text", "code"}})).empty());
}

TEST(HostObject, FindsContainersOfEveryArchiveMember) {
  const std::string archive =
      build_archive({"symbols", build_object({{".nv_fatbin", container("a")}}), "odd",
                     build_object({{"__nv_relfatbin", container("b")}})});
  EXPECT_EQ(texts_in(archive), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(texts_in(build_archive({})).empty());
}

TEST(HostObject, RefusesOtherFiles) {
  for (const char* text : {"", "!<arch>", "\177EL", ".version 9.0"}) {
    const Exact exact(text);
    EXPECT_FALSE(containers_in_object(exact.view()).ok()) << text;
  }
}

// Cut anywhere, or with any byte changed: the result is an answer, without a read outside
// (AddressSanitizer).
TEST(HostObject, SurvivesTruncationAndChangedBytes) {
  const std::string object = sample_object();
  const std::string archive = build_archive({object});
  const std::vector<std::string> whole{"one", "two", "three"};
  for (const std::string& bytes : {object, archive}) {
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_NE(texts_in(bytes.substr(0, length)), whole) << length;
    }
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const char value : {'\0', '\x7f', '\xff'}) {
        std::string changed = bytes;
        changed[at] = value;
        const Exact exact(changed);
        const auto found = containers_in_object(exact.view());
        if (!found.ok()) continue;
        for (const ByteView each : *found) EXPECT_LE(each.size(), changed.size());
      }
    }
  }
}

TEST(LinkedImage, HoldsTextsInOrder) {
  const Bytes image = linked_image({"first", "", "third one"});
  const auto entries = read_fatbin(image);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 3U);
  EXPECT_TRUE(std::all_of(entries->begin(), entries->end(), is_linked_entry));
  EXPECT_EQ(*ptx_text((*entries)[0]), "first");
  EXPECT_EQ(*ptx_text((*entries)[1]), "");
  EXPECT_EQ(*ptx_text((*entries)[2]), "third one");
}

TEST(LinkedImage, NvccEntryIsNotLinkedEntry) {
  const Exact exact(container("text"));
  const auto entries = read_fatbin(exact.view());
  ASSERT_TRUE(entries.ok());
  EXPECT_FALSE(is_linked_entry(entries->front()));
}

}  // namespace
}  // namespace gpurun::driver_abi
