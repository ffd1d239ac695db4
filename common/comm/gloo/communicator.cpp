#include "common/comm/gloo/communicator.h"

#include <numeric>

#include "common/comm/gloo/collectives.h"
#include "common/comm/gloo/mesh.h"

namespace tandem::comm::gloo {
namespace {

class GlooCollectives final : public Collectives {
  public:
    explicit GlooCollectives(Group group) : group_(std::move(group)) {}

    int index() const override { return group_.index(); }
    const std::vector<int>& ranks() const override { return group_.ranks(); }
    const std::string& name() const override { return group_.name(); }

    Operations& on_cpu() override { return on_cpu_; }
    std::shared_ptr<Collectives> split(const std::vector<int>& ranks, const std::string& name) override {
        group_.mesh().throw_if_aborted(group_.phase("split"));
        return std::make_shared<GlooCollectives>(Group(group_.shared_mesh(), name, ranks));
    }
    MemoryPool& memory() override { return cpu_pool(); }
    void set_timeout(std::chrono::milliseconds timeout) override {
        group_.mesh().timeout_ms.store(timeout.count());
    }
    std::chrono::milliseconds timeout() const override {
        return std::chrono::milliseconds(group_.mesh().timeout_ms.load());
    }
    void abort(const std::string& reason) noexcept override { group_.mesh().abort(reason); }
    std::optional<AbortNote> aborted() const override { return group_.mesh().aborted(); }

  private:
    Group group_;
    OnCpu on_cpu_{group_};
};

}  // namespace

std::shared_ptr<Communicator> make_world(Store& store, int rank, int size, const ListenAddress& address,
                                         Deadline deadline) {
    auto mesh = std::make_shared<Mesh>(store, rank, size, address, deadline);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    auto world = std::make_shared<GlooCollectives>(Group(std::move(mesh), "world", std::move(ranks)));
    world->on_cpu().barrier();
    return std::make_shared<QueuedCommunicator>(std::move(world));
}

}  // namespace tandem::comm::gloo
