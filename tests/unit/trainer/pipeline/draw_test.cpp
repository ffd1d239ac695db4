// The picture: a cell an action, in its colour, at its time.
#include "trainer/pipeline/draw.h"

#include <gmock/gmock.h>

#include "common/error.h"

namespace tandem::pipeline {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
}

TEST(Picture, HasACellForEveryAction) {
    const std::string svg = svg_of(simulate(make_schedule("1F1B", 2, 1, 3)), "1F1B <&>");
    EXPECT_THAT(svg, StartsWith("<svg xmlns='http://www.w3.org/2000/svg'"));
    EXPECT_THAT(svg, HasSubstr("1F1B &lt;&amp;&gt;"));
    EXPECT_EQ(count_of(svg, "<title>"), 12u);
    EXPECT_EQ(count_of(svg, "class='on-dark'"), 12u);  // each with its number
    EXPECT_THAT(svg, HasSubstr("<title>1F0: 1 to 2</title>"));
    EXPECT_THAT(svg, HasSubstr(">forward<"));
    EXPECT_THAT(svg, HasSubstr(">backward<"));
    EXPECT_THAT(svg, Not(HasSubstr("weight gradient")));  // nothing is of that colour
    EXPECT_THAT(svg, Not(HasSubstr("paler")));
    EXPECT_THAT(svg, HasSubstr("peak 2"));
}

TEST(Picture, TellsHalvesAndLaterStagesApart) {
    const std::string svg = svg_of(simulate(make_schedule("ZBVZeroBubble", 2, 2, 4)), "ZBV");
    for (const char* words :
         {">forward<", ">input gradient<", ">weight gradient<", "paler: later stages of a rank"})
        EXPECT_THAT(svg, HasSubstr(words));
    EXPECT_EQ(count_of(svg, "class='on-dark'"), 24u);  // of the first stages of both ranks
    EXPECT_EQ(count_of(svg, "class='on-pale'"), 24u);
}

TEST(Picture, RefusesWhatCannotBeSeen) {
    EXPECT_THAT([] { svg_of(simulate(make_schedule("GPipe", 64, 1, 1024)), "large"); },
                ThrowsMessage<BadInput>(HasSubstr("at most 50000 actions, and these are 131072")));
    const Schedule schedule = make_schedule("GPipe", 1, 1, 1);
    EXPECT_THAT(
        [&] {
            svg_of(simulate(schedule, {StageTimes{0, 0, 0, 0}}), "nothing");
        },
        ThrowsMessage<BadInput>(HasSubstr("all times are 0")));
}

}  // namespace
}  // namespace tandem::pipeline
