#include "common/wrap.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Wrapped, BreaksAtSpacesWithinTheColumns) {
    EXPECT_EQ(wrapped("", 10), "");
    EXPECT_EQ(wrapped("one two three", 13), "one two three");
    EXPECT_EQ(wrapped("one two three", 12), "one two\nthree");
    EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
    EXPECT_EQ(wrapped("a verylongword b", 5), "a\nverylongword\nb");
    EXPECT_EQ(wrapped("one\n\ntwo three", 5, 1), "one\n \n two\n three");
}

TEST(Wrapped, CountsCharactersAndNotBytes) {
    EXPECT_EQ(wrapped("größe … 中文", 10), "größe … 中文");
    EXPECT_EQ(wrapped("größe … 中文", 9), "größe …\n中文");
}

}  // namespace
}  // namespace tandem
