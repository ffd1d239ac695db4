// The text of actions: PyTorch's, and nothing else.
#include "trainer/pipeline/action.h"

#include <gmock/gmock.h>

#include "common/error.h"

namespace tandem::pipeline {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ActionText, IsReadAsItIsWritten) {
    for (const char* text : {"0F3", "12I0", "7W11", "3B2", "1UNSHARD", "0RESHARD", "5REDUCE_GRAD", "2SEND_F0",
                             "3RECV_F0", "2SEND_B1", "1RECV_B1", "(0F7;7B3)OVERLAP_F_B"})
        EXPECT_EQ(to_string(parse_action(text)), text);
    EXPECT_EQ(parse_action("2SEND_F10"), (Action{ActionKind::send_f, 2, 10}));
    EXPECT_EQ(parse_action(" 1UNSHARD\t"), (Action{ActionKind::unshard, 1}));
    const Action overlap = parse_action("( 0F7 ; 7B3 )OVERLAP_F_B");
    EXPECT_EQ(overlap.stage, -1);
    EXPECT_EQ(overlap.microbatch, -1);
    ASSERT_EQ(parts_of(overlap).size(), 2u);
    EXPECT_EQ(parts_of(overlap)[1], (Action{ActionKind::full_backward, 7, 3}));
}

TEST(ActionText, RefusesAllElse) {
    const auto refused = [](const std::string& text, const std::string& part) {
        EXPECT_THAT([&] { parse_action(text); }, ThrowsMessage<BadInput>(HasSubstr(part))) << text;
    };
    refused("", "there is no action");
    refused("  ", "there is no action");
    refused("F0", "'F0' has no stage; write stage, action, micro-batch, as in 0F3");
    refused("0F", "'0F' has no micro-batch");
    refused("-1F0", "'-1F0' has no stage");
    refused("0X3", "'X' is no action of one stage; known: F, I, W, B, UNSHARD");
    refused("0f3", "'f' is no action");
    refused("03", "without leading zeros");
    refused("3", "'' is no action of one stage");
    refused("0F3 ,", "' ,' after the action");
    refused("0F3x", "'x' after the action");  // PyTorch takes it
    refused("0F3 0B3", "' 0B3' after the action");
    refused("1UNSHARD0", "'0' after the action; it is of a whole stage");
    refused("1REDUCE_GRAD3", "it is of a whole stage");
    refused("00F1", "its stage must be a number from 0 to 1048576 without leading zeros");
    refused("0F01", "its micro-batch must be a number");
    refused("0F99999999999999999999", "its micro-batch must be a number");
    refused("0F1048577", "its micro-batch must be a number");
    refused("2WAIT_SEND_F0", "'WAIT_SEND_F' is no action of one stage");  // PyTorch 2.15's
    refused("0OVERLAP_F_B", "'OVERLAP_F_B' is no action of one stage");
    refused("\x1b[2J0F3", "\\x1b");
    refused("(0F7;7B3)", "is no overlap: write two actions");
    refused("(0F7)OVERLAP_F_B", "is no overlap");
    refused("(0F7;7B3)OVERLAP_F_Bx", "is no overlap");
    refused("(0F7;7B3;1F0)OVERLAP_F_B", "after the action");
    refused("(;7B3)OVERLAP_F_B", "'' has no stage");
    refused("(7B3;0F7)OVERLAP_F_B", "an overlap is of an F and a B, in this order");
    refused("(0F7;7I3)OVERLAP_F_B", "an overlap is of an F and a B");
    refused("((0F7;7B3)OVERLAP_F_B;7B3)OVERLAP_F_B", "is no overlap");
}

}  // namespace
}  // namespace tandem::pipeline
