#include "common/printable.h"

#include <gtest/gtest.h>

#include "common/log.h"

namespace tandem {
namespace {

TEST(Printable, OrdinaryTextStays) {
    for (const char* text :
         {"", "a b", "tab\tbed", "Größe 中文 👍🏽", "ends with a line\n", "back\\slash"})
        EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatATerminalWouldObeyIsShown) {
    EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
    EXPECT_EQ(printable("over\rwritten\b\x7f"), "over\\x0dwritten\\x08\\x7f");
    EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\u{009b}31m")
        << "an escape sequence's beginning in one character";
    EXPECT_EQ(printable("\u202egnp.exe"), "\\u{202e}gnp.exe");
}

TEST(Printable, BytesThatAreNotUtf8AreShown) {
    EXPECT_EQ(printable("\xff"), "\\xff");
    EXPECT_EQ(printable("\xc3("), "\\xc3(");
    EXPECT_EQ(printable("\xe4\xb8"), "\\xe4\\xb8");
    EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "too long for what it is";
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
}

TEST(Printable, NoLineLooksLikeOneOfOurs) {
    EXPECT_EQ(printable("first\n12:00:00.0 info [engine] forged"),
              "first\n  12:00:00.0 info [engine] forged");
}

TEST(Printable, TheLogUsesIt) {
    testing::internal::CaptureStderr();
    set_up_logging("test");
    log_warn("a server says {}", "\x1b[2J\nforged");
    EXPECT_NE(testing::internal::GetCapturedStderr().find("says \\x1b[2J\n  forged"), std::string::npos);
}

}  // namespace
}  // namespace tandem
