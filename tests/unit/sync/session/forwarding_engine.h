// Stands between session and engine and passes everything on, for tests that change one thing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::sync {

class ForwardingEngine : public engine::Engine, public engine::BucketLoader {
  public:
    explicit ForwardingEngine(std::unique_ptr<engine::Engine> engine) : engine_(std::move(engine)) {}

    const engine::Capabilities& capabilities() const override { return engine_->capabilities(); }
    std::string peer() const override { return engine_->peer(); }
    void pause(Deadline deadline) override { engine_->pause(deadline); }
    void resume(Deadline deadline) override { engine_->resume(deadline); }
    void attach(const std::vector<engine::Region>& regions, const engine::TransferPlan& plan,
                Deadline deadline) override {
        engine_->attach(regions, plan, deadline);
    }
    void release(Deadline deadline) override { engine_->release(deadline); }
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece, Deadline deadline) override {
        return engine_->probe(offset, bytes, piece, deadline);
    }
    engine::Held held(Deadline deadline) override { return engine_->held(deadline); }
    void begin(std::int64_t version, Deadline deadline) override { engine_->begin(version, deadline); }
    engine::BucketLoader& buckets() override { return *this; }
    void send_ahead(int bucket, Deadline deadline) override {
        engine_->buckets().send_ahead(bucket, deadline);
    }
    void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override {
        engine_->buckets().load(bucket, checksums, deadline);
    }
    void load_delta(int bucket, std::span<const engine::DeltaEntry> entries, Deadline deadline) override {
        engine_->buckets().load_delta(bucket, entries, deadline);
    }
    double wait_loaded(int bucket, Deadline deadline) override {
        return engine_->buckets().wait_loaded(bucket, deadline);
    }
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override {
        return engine_->verify(checksums, deadline);
    }
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums, Deadline deadline) override {
        engine_->adopt(shift, checksums, deadline);
    }
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        engine_->commit(version, manifest, deadline);
    }
    void abort(const std::string& reason, Deadline deadline) override { engine_->abort(reason, deadline); }
    std::vector<ops::Checksum> checksums(Deadline deadline) override { return engine_->checksums(deadline); }

  protected:
    std::unique_ptr<engine::Engine> engine_;
};

}  // namespace tandem::sync
