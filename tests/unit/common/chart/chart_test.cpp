// Axes and numbers of charts, and the pictures themselves: well-formed, escaped, where the values say.
#include "common/chart/chart.h"

#include <gmock/gmock.h>

#include "common/chart/page.h"
#include "common/chart/table.h"
#include "common/chart/text.h"
#include "common/chart/timeline.h"
#include "tests/support/html.h"

namespace tandem::chart {
namespace {

using testing::HasSubstr;
using testing::Not;

int count(const std::string& text, const std::string& what) {
    int n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
}

TEST(Ticks, AreRoundAndCoverTheRange) {
    EXPECT_EQ(nice_ticks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
    EXPECT_EQ(nice_ticks(3, 97, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
    EXPECT_EQ(nice_ticks(-0.5, 1.5, 4), (std::vector<double>{-0.5, 0, 0.5, 1, 1.5}));
    for (const double value : {0.0249, -0.0249, 1e300, -1e-300}) {  // a range of one rounding comes to an end
        const double next = std::nextafter(value, 2 * std::abs(value));
        EXPECT_LE(nice_ticks(value, next, 5).size(), 12u) << value;
    }
    for (const double scale : {1e-7, 1e-3, 1.0, 12345.0}) {
        for (const double low : {-1.0, 0.0, 0.3, 5.0}) {
            for (const double width : {0.0, 0.1, 1.0, 7.7}) {
                const auto ticks = nice_ticks(low * scale, (low + width) * scale, 5);
                const double slack = 1e-6 * scale;
                EXPECT_LE(ticks.front(), low * scale + slack);
                EXPECT_GE(ticks.back(), (low + width) * scale - slack);
                EXPECT_GE(ticks.size(), 2u);
                EXPECT_LE(ticks.size(), 12u);
            }
        }
    }
}

TEST(Numbers, AreShort) {
    EXPECT_EQ(short_number(0), "0");
    EXPECT_EQ(short_number(0.25), "0.25");
    EXPECT_EQ(short_number(3e-7), "3e-07");
    EXPECT_EQ(short_number(41234), "41.23k");
    EXPECT_EQ(bytes_text(1536), "1.5 KiB");
    EXPECT_EQ(bytes_text(3 * 1024.0 * 1024.0), "3 MiB");
}

TEST(Ticks, OfALogarithmicAxisArePowersOfTwo) {
    EXPECT_EQ(log2_ticks(4, 32, 8), (std::vector<double>{4, 8, 16, 32}));
    EXPECT_EQ(log2_ticks(5, 33, 8), (std::vector<double>{4, 8, 16, 32, 64}));
    EXPECT_EQ(log2_ticks(1, 256, 4), (std::vector<double>{1, 4, 16, 64, 256}));
    EXPECT_EQ(log2_ticks(8, 8, 4), (std::vector<double>{8}));
}

TEST(LineChart, PlacesPowersOfTwoEvenly) {
    Chart chart{"sizes", "", "bucket", "ratio", {{"a<b", 0, {{1 << 20, 1}, {2 << 20, 2}, {4 << 20, 1}}}}};
    chart.x_log2 = chart.x_bytes = true;
    const std::string even = line_chart(chart);
    EXPECT_THAT(even, HasSubstr("points='76.0,111.0 311.0,12.0 546.0,111.0 '"));
    EXPECT_THAT(even, HasSubstr(">2 MiB</text>"));
    EXPECT_THAT(even, HasSubstr("a&lt;b"));
    chart.x_log2 = false;
    EXPECT_THAT(line_chart(chart), HasSubstr("points='76.0,111.0 232.7,12.0 546.0,111.0 '"));
}

TEST(LineChart, StylesOfSeries) {
    Chart chart{"styles", "", "x", "y", {}};
    chart.series = {{"predicted", 1, {{0, 1}, {1, 2}}, Series::Style::dashed},
                    {"measured", 2, {{0, 1}, {1, 2}}, Series::Style::marked},
                    {"seen", 3, {{0, 1}, {1, 2}}, Series::Style::dots}};
    const std::string html = line_chart(chart);
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html, HasSubstr("<polyline class='s1 dashed'"));
    EXPECT_EQ(count(html, "<polyline"), 2);
    EXPECT_EQ(count(html, "<circle class='d2'"), 2);
    EXPECT_EQ(count(html, "<circle class='d3'"), 2);
    EXPECT_THAT(line_chart({"empty", "", "x", "y", {}}), HasSubstr("nothing was recorded"));
}

TEST(Timeline, DrawsRowsOnOneScale) {
    Timeline timeline{"time", "n<1>", "ms", {}, {8}};
    timeline.rows = {{"a&b", "10 ms", {{"first", 0, -2, 2}, {"second", 1, 0, 8}}},
                     {"light", "4 ms", {{"ideal", 3, 0, 4, true}}}};
    const std::string html = timeline_chart(timeline);
    EXPECT_EQ(unbalanced(html), "");
    // From -2 to 8 over 384 units: 38.4 for each.
    EXPECT_THAT(html, HasSubstr("<rect class='b0' x='104.0' y='4.0' width='76.80'"));
    EXPECT_THAT(html, HasSubstr("<rect class='b1' x='180.8' y='4.0' width='307.20'"));
    EXPECT_THAT(html, HasSubstr("<rect class='hollow s3' x='180.8' y='31.0' width='153.60'"));
    EXPECT_EQ(count(html, "class='mark'"), 1);
    EXPECT_THAT(html, testing::AllOf(HasSubstr("a&amp;b"), HasSubstr("n&lt;1&gt;"), HasSubstr("10 ms")));
    EXPECT_THAT(timeline_chart({"none", "", "ms", {}, {}}), HasSubstr("nothing was recorded"));
}

TEST(Table, ShadesCellsAndMarksTheBest) {
    const std::string html = table_card(
        {"t", "", {"bucket", "depth 2"}, {{{"1 <MiB"}, {"1.25", 0, true}}, {{"2 MiB"}, {"2.5", 1}}}});
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html,
                HasSubstr("<th scope='row'>1 &lt;MiB</th><td class='best' style='--heat:6%'>1.25</td>"));
    EXPECT_THAT(html, HasSubstr("<td style='--heat:66%'>2.5</td>"));
}

TEST(Page, IsSelfContained) {
    const std::string html = page("a<b>", tiles(tile("x&y", "1", "", Tone::bad)) + section("s", ""));
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html, HasSubstr("<title>a&lt;b&gt; · Tandem</title>"));
    EXPECT_THAT(html, HasSubstr("<div class='tile bad'><h3>x&amp;y</h3>"));
    for (const char* outside : {"http://", "https://", "<script", "<link", "src=", "url("})
        EXPECT_THAT(html, Not(HasSubstr(outside)));
}

}  // namespace
}  // namespace tandem::chart
