// A bucket whose bytes come over NCCL.
#pragma once

#include <functional>

#include "engine_adapter/receiver/bucket_receiver.h"
#include "engine_adapter/transport/nccl/member.h"

namespace tandem::engine {

class NcclBucketReceiver final : public BucketReceiver {
  public:
    // Borrowed, but `announced`. check: called while bytes are waited for, and once they are here. waits: true meanwhile.
    NcclBucketReceiver(NcclMember& member, const Announced& announced, const std::function<void()>& check,
                       bool& waits)
        : member_(member), announced_(announced), check_(check), waits_(waits) {}
    void receive(int) override {
        {
            const WaitsForBytes waits(waits_);
            member_.receive(announced_, check_);
        }
        check_();  // starts the next receive before this bucket is copied
    }
    Arrived at(std::size_t, const Transfer& t) const override {
        return {member_.at(t.region, t.from), t.from_stride};
    }
    Event arrived() const override { return member_.arrived(); }
    void release_after(const Event& done) override { member_.release_after(done); }
    void check() override { check_(); }

  private:
    NcclMember& member_;
    const Announced announced_;
    const std::function<void()>& check_;
    bool& waits_;
};

}  // namespace tandem::engine
