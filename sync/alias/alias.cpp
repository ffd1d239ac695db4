// Alias: the engines read their weights where the trainer put them. An arena in shared memory has two halves,
// each a whole model in the engines' layout and dtype: the engines read one, the trainer fills the other
// before the pause, and a push turns the engines to it. Between pause and resume nothing moves.
//
// The trainer cannot write what an engine reads: every rank's mapping of that half is read-only (mprotect;
// the engines map all of it so), and the halves change roles only after a commit. On a GPU, whose memory has
// no such protection, that rests on writable() alone.
#include <sys/mman.h>

#include <cerrno>
#include <limits>

#include "common/align.h"
#include "common/error.h"
#include "common/trace.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/exchange.h"
#include "sync/strategy/ledger.h"
#include "sync/strategy/shard_reader.h"
#include "sync/strategy/staging.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kPage = 4096;

// The offset of each engine's tensors in a half.
struct HalfLayout {
    std::vector<std::vector<std::size_t>> base;  // [engine][tensor]
    std::size_t bytes = 0;
};

HalfLayout lay_out(const EngineLayout& engines, Device device) {
    // On a GPU as in the engine's own memory: the matmul algorithms, and so the bits, depend on it.
    const std::size_t alignment = device.type == DeviceType::cuda ? 256 : 64;
    HalfLayout layout;
    for (const auto& tensors : engines) {
        auto& bases = layout.base.emplace_back();
        for (const engine::TensorInfo& tensor : tensors) {
            bases.push_back(layout.bytes);
            layout.bytes = round_up(layout.bytes + engine::tensor_bytes(tensor), alignment);
        }
    }
    layout.bytes = round_up(std::max<std::size_t>(layout.bytes, 1), kPage);
    return layout;
}

class Alias final : public SyncStrategy {
  public:
    explicit Alias(const SyncContext& context)
        : context_(context),
          layout_(lay_out(context.plan.engine(), context.device)),
          buckets_(make_grouped(context.plan, {context.plan.bytes() + 1, kLargestPieceBytes})),
          arena_(Staging::share(context.world, context.device, 2, layout_.bytes, "alias arena")),
          reader_(context, buckets_),
          exchange_(context.world, buckets_.max_pieces),
          ledger_(context.plan, buckets_) {
        PushStatus status;
        engine::Region region = arena_.region();
        region.written = reader_.share_event(context_.world);
        each_engine(context_.engines, status, "attach", -1, [&](engine::Engine& engine, std::size_t e) {
            const auto place = [this](std::size_t, const Piece& piece, engine::Transfer& transfer) {
                transfer.from = offset_of(piece);
                transfer.from_stride = row_distance(piece);
            };
            engine.attach({region}, ledger_.transfers_to(e, place),
                          Deadline::after(context_.options.deadlines.begin));
        });
        throw_on_any_failure(context_.world, status, "sync set-up");
    }

    void prepare(PushStatus& status, Deadline deadline) override {
        const trace::Scope scope("fill the free half", "prepare");
        std::size_t count = 0;
        try {
            reader_.locate();
            protect(free_, PROT_READ | PROT_WRITE);
            count = run_pieces(false, deadline);
            protect(free_, PROT_READ);
            count += run_pieces(true, deadline);
        } catch (const std::exception& error) {
            status.fail("prepare", fmt::format("rank {}", context_.world.rank()), -1, error.what());
        }
        exchange_.run(status, status.failed ? 0 : count);
        if (context_.engines.empty() || status.failed) return;
        for (int rank = 0; rank < context_.world.size(); ++rank)
            ledger_.note(buckets_.begin(0, static_cast<std::size_t>(rank)), exchange_.of(rank));
    }

    void transfer(PushStatus& status, PhaseTimes&, Deadline deadline, const std::function<void()>&) override {
        each_engine(context_.engines, status, "adopt", -1, [&](engine::Engine& engine, std::size_t e) {
            engine.adopt(free_ * layout_.bytes, ledger_.of(e),
                         deadline.within(context_.options.deadlines.load));
        });
    }

    const Ledger& ledger() const override { return ledger_; }

    void finish(std::int64_t, bool committed) override {
        if (committed) free_ = 1 - free_;
        protect(free_, PROT_READ | PROT_WRITE);
    }

    Tensor writable(int source_tensor) override {
        // This rank's shard as one run of the free half, when the plan makes one of it.
        const Tensor& local = reader_.tensor(source_tensor);
        const std::byte* begin = nullptr;
        std::int64_t next = 0;
        for (std::size_t i = first(); i < reader_.end(0); ++i) {
            const Piece& piece = buckets_.pieces[i];
            if (piece.move.source_tensor != source_tensor) continue;
            std::byte* to = arena_.memory().data + free_ * layout_.bytes + offset_of(piece);
            const std::size_t width = dtype_size(target_of(context_.plan, piece.move).dtype);
            if (next == 0) begin = to;
            const bool continues = piece.move.source_offset == next && piece.move.rows == 1 &&
                                   begin + static_cast<std::size_t>(next) * width == to;
            if (!continues || local.dtype() != target_of(context_.plan, piece.move).dtype) return {};
            next += piece.move.row_elements;
        }
        if (next == 0 || next != local.numel()) return {};
        return Tensor::borrow({const_cast<std::byte*>(begin), local.bytes()}, local.shape(), local.dtype(),
                              context_.device);
    }

    void describe(SyncReport& report) const override {
        report.bytes = buckets_.bytes;
        report.bytes_moved = 0;
        report.buckets = 0;
        report.depth = 2;
    }

  private:
    std::size_t offset_of(const Piece& piece) const {
        const auto width = dtype_size(target_of(context_.plan, piece.move).dtype);
        return layout_.base[static_cast<std::size_t>(piece.move.engine_rank)]
                           [static_cast<std::size_t>(piece.move.engine_tensor)] +
               static_cast<std::size_t>(piece.move.target_offset) * width;
    }
    std::size_t row_distance(const Piece& piece) const {
        return static_cast<std::size_t>(piece.move.target_stride) *
               dtype_size(target_of(context_.plan, piece.move).dtype);
    }
    std::size_t first() const { return reader_.begin(0); }

    template <typename Work>
    void for_my_pieces(const Work& work) {
        if (buckets_.buckets() == 0) return;
        for (std::size_t i = first(); i < reader_.end(0); ++i)
            work(i, arena_.memory().data + free_ * layout_.bytes + offset_of(buckets_.pieces[i]));
    }

    // Copies this rank's pieces into the free half; or (in_place) those that the trainer wrote straight
    // there, which only want their checksums. Returns how many.
    std::size_t run_pieces(bool in_place, Deadline deadline) {
        orders_.clear();
        for_my_pieces([&](std::size_t i, std::byte* to) {
            if ((reader_.rows(i).data == to) != in_place) return;
            orders_.push_back({i, in_place ? nullptr : to, row_distance(buckets_.pieces[i])});
        });
        found_.resize(orders_.size());
        reader_.run(orders_, true, found_.data(), deadline);
        for (std::size_t k = 0; k < orders_.size(); ++k)
            exchange_.mine()[orders_[k].index - first()] = found_[k];
        return orders_.size();
    }

    void protect(std::size_t half, int access) {
        if (context_.device.type == DeviceType::cuda) return;  // no mprotect there
        if (::mprotect(arena_.memory().data + half * layout_.bytes, layout_.bytes, access) != 0)
            throw SystemError("mprotect of the alias arena", errno);
    }

    SyncContext context_;
    HalfLayout layout_;
    BucketPlan buckets_;
    Staging arena_;
    ShardReader reader_;
    Exchange<ops::Checksum> exchange_;
    Ledger ledger_;
    std::size_t free_ = 0;                    // the half that no engine reads
    std::vector<ShardReader::Order> orders_;  // scratch
    std::vector<ops::Checksum> found_;
};

}  // namespace

std::unique_ptr<SyncStrategy> make_alias(const SyncContext& context) {
    return std::make_unique<Alias>(context);
}

}  // namespace tandem::sync
