// One thing that a rank of a pipeline does, and its text, both as PyTorch's (torch.distributed.pipelining): stage, action,
// micro-batch, as in 0F3, 2SEND_F0, 1UNSHARD and (0F7;7B3)OVERLAP_F_B.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::pipeline {

enum class ActionKind {
    forward,          // F
    backward_input,   // I
    backward_weight,  // W
    full_backward,    // B: I and W
    overlap_f_b,      // a forward and a full backward that may run at once
    unshard,          // gathers the stage's parameters
    reshard,          // lets go of what was gathered
    reduce_grad,      // sums the stage's gradients over its data-parallel ranks
    send_f,           // the stage's output to the next stage
    recv_f,           // the stage's input from the one before
    send_b,           // the gradient of the stage's input to the stage before
    recv_b            // the gradient of the stage's output from the next one
};

struct Action {
    ActionKind kind = ActionKind::forward;
    int stage = -1;                    // of the whole pipeline; -1: of an overlap, whose parts have theirs
    int microbatch = -1;               // -1: none, as of an overlap, unshard, reshard and reduce_grad
    std::vector<Action> overlap = {};  // of an overlap: its forward, then its backward

    bool operator==(const Action&) const = default;
};

// What the action consists of: the two of an overlap, else itself. Valid as long as `action` is.
std::span<const Action> parts_of(const Action& action);
bool is_compute(ActionKind kind);   // F, I, W, B or an overlap
bool is_backward(ActionKind kind);  // B or I: what gives the gradient of the stage's input

std::string to_string(const Action& action);
std::string to_string(ActionKind kind);  // "SEND_F"
// Of exactly that text; spaces around it are no part of it. Throws BadInput that says what is wrong.
Action parse_action(std::string_view text);

}  // namespace tandem::pipeline
