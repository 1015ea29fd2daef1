// printable(): keeps text of other programs from controlling a user's terminal or the server's
// logs.
#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace gpurun {
namespace {

TEST(Printable, KeepsPrintableText) {
  for (const char* text : {"", "NVIDIA H100 80GB", "Größe µs 日本語 \U0001f600", "a~ \u00a0b"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_TRUE(is_printable(text)) << text;
  }
}

TEST(Printable, ReplacesC0AndC1ControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2Jb\nc\td\x7f"), "a?[2Jb?c?d?");
  EXPECT_EQ(printable("a\u009b2Jb\u0085c\u009d0;title\u009c"), "a?2Jb?c?0;title?");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  for (int byte = 0; byte < 0x20; ++byte) {
    EXPECT_EQ(printable(std::string(1, static_cast<char>(byte))), "?") << byte;
  }
}

TEST(Printable, ReplacesBidirectionalAndInvisibleCharacters) {
  for (const char* mark :
       {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069",
        "\u200e", "\u200f", "\u061c", "\u2028", "\u2029", "\ufeff", "\U000e0041"}) {
    EXPECT_EQ(printable(std::string("a") + mark + "b"), "a?b");
    EXPECT_FALSE(is_printable(mark));
  }
}

TEST(Printable, ReplacesEachInvalidUtf8Byte) {
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "?2J");                                  // C1 in one byte, as Latin-1 has it.
  EXPECT_EQ(printable("\xc0\x9b"), "??");            // Overlong.
  EXPECT_EQ(printable("\xe0\x82\x9b"), "???");       // U+009B, overlong.
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // A surrogate.
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // Beyond U+10FFFF.
  EXPECT_EQ(printable("\xff\xfe"), "??");
  EXPECT_EQ(printable("a\xc3"), "a?");  // Cut off.
  EXPECT_EQ(printable("\xe2\x82z"), "??z");
  EXPECT_FALSE(is_printable("\xc3"));
}

TEST(Printable, UsesRequestedSubstitute) { EXPECT_EQ(printable("a\nb\u009bc", ' '), "a b c"); }

}  // namespace
}  // namespace gpurun
