// The boundary between the model and the owner of its parameters: calls around the use of a group of
// them. A group's parameters are unsharded, resharded and reduced together.
#pragma once

namespace tandem::trainer {

class GroupHooks {
  public:
    static constexpr int kNone = -1;

    virtual ~GroupHooks() = default;
    // Parameter::value of the group is valid on return. `prefetch`: the group that will be asked for next, or
    // kNone.
    virtual void unshard(int group, int prefetch) = 0;
    // The forward is done with the group; the backward will ask again.
    virtual void after_forward(int group) = 0;
    // Parameter::grad of the group is valid on return, and holds what was accumulated before.
    virtual void begin_gradients(int group) = 0;
    // The backward is done with the group: its values may go, its gradients are complete.
    virtual void after_backward(int group) = 0;
};

}  // namespace tandem::trainer
