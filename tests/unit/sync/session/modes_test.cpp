// Promises of each mode beyond bytes that land: exact bytes to every engine rank, deltas that notice what an
// engine lacks, nothing allocated once it runs. in_place_test.cpp: those about memory that is read where it lies.
#include <gmock/gmock.h>

#include "sync/bench/shapes.h"
#include "tests/unit/sync/session/engine_ranks.h"
#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

const std::vector<Mode> kModes{Mode::gather, Mode::direct, Mode::alias, Mode::delta};

std::vector<model::ParameterSpec> small_moe() {
    return read_model_shapes(R"({"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "attention_bias": true, "mlp_bias": true, "num_experts": 6, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 1})",
                             "moe.json")
        .tensors;
}

TEST(Modes, EveryEngineRankGetsItsSlicesAndNotAByteMore) {
    const std::vector<model::ParameterSpec> dense = model_tensors("tiny");
    const std::vector<std::pair<std::vector<model::ParameterSpec>, EngineParallel>> engines{
        {dense, {2, 1, true}},       {dense, {4, 1, true}},       {dense, {2, 1, false}},
        {small_moe(), {2, 1, true}}, {small_moe(), {1, 2, true}}, {small_moe(), {2, 2, true}}};
    for (const auto& [model, parallel] : engines) {
        for (const Mode mode : kModes) {
            for (const Layout& layout : {Layout{{2}, {Shard(0)}}, Layout{{2, 2}, {Shard(0), Replicate()}},
                                         Layout{{2, 2}, {Shard(1), Shard(0)}}}) {
                SCOPED_TRACE(fmt::format("tp {} ep {} {} {}", parallel.tp, parallel.ep, mode_name(mode),
                                         tandem::to_string(layout.placements)));
                EngineRanks engine(engine_layout(model, parallel, DType::bfloat16));
                with_engines(layout, engine.pointers, tensors_of(model, DType::bfloat16), DType::float32,
                             options_for(mode),
                             [&](comm::Communicator& world, Session& session, TestSource& source) {
                                 for (int step = 1; step <= 2; ++step) {
                                     source.set_step(step);
                                     const SyncReport report = session.push(step);
                                     EXPECT_EQ(report.bytes, engine.bytes);
                                     if (mode == Mode::gather || mode == Mode::direct) {
                                         EXPECT_EQ(report.bytes_moved, engine.bytes);
                                     }
                                     const WeightsMatch match = session.weights_match();
                                     EXPECT_TRUE(match.match) << match.first_mismatch;
                                 }
                                 world.barrier();
                                 // A byte of an engine's own memory changes (in alias it reads the
                                 // trainer's).
                                 if (world.rank() == 0)
                                     engine.pointers[1]->weights()[0].memory.data[9] ^= std::byte{0x77};
                                 world.barrier();
                                 EXPECT_EQ(session.weights_match().match, mode == Mode::alias);
                             });
                if (HasFailure()) return;
            }
        }
    }
}

TEST(Modes, HalfPrecisionIsCastInEveryMode) {
    constexpr DType h = DType::float16, f = DType::float32, b = DType::bfloat16;
    for (const Mode mode : kModes) {
        for (const auto& [from, to] :
             {std::pair(f, h), std::pair(b, h), std::pair(h, h), std::pair(h, f), std::pair(h, b)}) {
            SCOPED_TRACE(fmt::format("{} {} {}", mode_name(mode), dtype_name(from), dtype_name(to)));
            TestTarget target(test_tensors(to));
            with_session(
                {{2}, {Shard(0)}}, target, from, options_for(mode),
                [&, source_dtype = from](comm::Communicator& world, Session& session, TestSource& source) {
                    for (int step = 1; step <= 3; ++step) {
                        source.set_step(step);
                        session.push(step);
                        const WeightsMatch match = session.weights_match();
                        EXPECT_TRUE(match.match) << match.first_mismatch;
                        world.barrier();
                        if (world.rank() == 0 && mode != Mode::alias)
                            expect_weights(target, source_dtype, step);
                        world.barrier();
                    }
                });
            if (HasFailure()) return;
        }
    }
}

TEST(Modes, WhatHalfPrecisionCannotHoldIsRefusedByTensorAndRow) {
    for (const Mode mode : kModes) {
        TestTarget target(test_tensors(DType::float16));
        with_session({{2}, {Shard(0)}}, target, DType::float32, options_for(mode),
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         source.set_step(1);
                         session.push(1);
                         // Row 210 of 211 is rank 1's last.
                         const Tensor& rows = source.tensors()[0].tensor.local();
                         if (world.rank() == 1) rows.data<float>()[rows.numel() - 48 + 7] = 70000;
                         try {
                             session.push(2);
                             ADD_FAILURE() << mode_name(mode);
                         } catch (const SyncError& error) {
                             EXPECT_EQ(error.phase(), "prepare");
                             EXPECT_THAT(
                                 error.what(),
                                 HasSubstr("tensor 'embed', row 210, column 7: 70000 does not fit float16"));
                         }
                         if (world.rank() == 0) {
                             EXPECT_EQ(target.version(), 1) << mode_name(mode);
                         }
                         source.set_step(2);
                         session.push(3);
                     });
        if (HasFailure()) return;
    }
}

// A vocabulary of 101 on two and on eight ranks, the last of which has no row of it: every rank's bytes, element by
// element, whatever `weights_match` thinks.
TEST(Modes, RanksHoldTheirRowsOfAPaddedVocabulary) {
    const std::vector<model::ParameterSpec> model{{"embed", {101, 16}, model::Cut::vocabulary},
                                                  {"norm", {16}, model::Cut::replicate},
                                                  {"lm_head", {101, 16}, model::Cut::vocabulary}};
    for (const int tp : {2, 8}) {
        for (const Mode mode : kModes) {
            SCOPED_TRACE(fmt::format("tp {} {}", tp, mode_name(mode)));
            EngineRanks engine(engine_layout(model, {tp, 1, true}, DType::float32));
            with_engines(
                {{3}, {Shard(0)}}, engine.pointers, tensors_of(model, DType::float32), DType::float32,
                options_for(mode), [&](comm::Communicator& world, Session& session, TestSource& source) {
                    for (int step = 1; step <= 2; ++step) {
                        source.set_step(step);
                        session.push(step);
                        EXPECT_TRUE(session.weights_match().match);
                    }
                    world.barrier();
                    if (world.rank() != 0) return;
                    for (int rank = 0; rank < tp; ++rank) {
                        const VocabularyRows rows = vocabulary_rows(101, tp, rank);
                        for (const std::size_t t : {0u, 2u}) {
                            const auto held = engine.targets[static_cast<std::size_t>(rank)]->read(t);
                            ASSERT_EQ(held.size(), static_cast<std::size_t>(rows.size) * 16 * sizeof(float));
                            for (std::size_t i = 0; i < held.size() / sizeof(float); ++i) {
                                float value = 0;
                                std::memcpy(&value, held.data() + i * sizeof value, sizeof value);
                                ASSERT_EQ(value,
                                          element_value(t, static_cast<std::size_t>(rows.start) * 16 + i, 2));
                            }
                        }
                    }
                });
            if (HasFailure()) return;
        }
    }
}

TEST(Modes, ASteadySyncAllocatesNothing) {
    for (const Mode mode : kModes) {
        SCOPED_TRACE(mode_name(mode));
        TestTarget target(test_tensors(DType::bfloat16));
        with_session({{2, 2}, {Shard(0), Replicate()}}, target, DType::float32, options_for(mode),
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         int version = 0;
                         for (int i = 0; i < 3; ++i) session.push(++version);
                         world.barrier();
                         const std::uint64_t before = allocations();
                         world.barrier();
                         for (int i = 0; i < 5; ++i) {
                             source.set_step(i);
                             session.push(++version);
                         }
                         world.barrier();
                         EXPECT_EQ(allocations(), before);
                     });
    }
}

TEST(Modes, DeltaSendsWhatChangedAndEverythingWhereTheBaseIsMissing) {
    TestTarget target(test_tensors(DType::bfloat16));
    const auto touch = [](TestSource& source, int value) {  // one element of the rank's part of "embed"
        const Tensor& local = source.tensors()[0].tensor.local();
        *reinterpret_cast<float*>(local.raw() + 400) = static_cast<float>(value);
    };
    std::atomic<bool> corrupt{false};
    SessionOptions options = options_for(Mode::delta);
    options.before_load = [&](int, Span memory) {
        if (corrupt) memory.data[0] ^= std::byte{1};
    };
    const std::size_t whole = 2 * (211 * 48 + 7 + 64 * 48 + 1 + 3 * 5000 + 97 * 31 + 30);
    for (int session_number = 0; session_number < 2; ++session_number) {
        with_session({{2}, {Shard(0)}}, target, DType::float32, options,
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         const int first = 10 * session_number;
                         source.set_step(1);
                         SyncReport report = session.push(first + 1);
                         EXPECT_TRUE(report.dense);
                         EXPECT_GE(report.bytes_moved, whole);
                         touch(source, 5);
                         report = session.push(first + 2);
                         EXPECT_FALSE(report.dense);
                         EXPECT_GT(report.bytes_moved, 0u);
                         EXPECT_LE(report.bytes_moved, 2 * (64 + sizeof(engine::DeltaEntry)));
                         EXPECT_TRUE(session.weights_match().match);
                         EXPECT_EQ(session.push(first + 3).bytes_moved, 0u);  // nothing changed
                         EXPECT_TRUE(session.weights_match().match);
                         touch(source, 6);
                         world.barrier();
                         corrupt = true;
                         EXPECT_THROW(session.push(first + 4), SyncError);
                         world.barrier();
                         corrupt = false;
                         world.barrier();
                         report = session.push(first + 5);  // nobody knows what the engine holds now
                         EXPECT_TRUE(report.dense);
                         EXPECT_TRUE(session.weights_match().match);
                         touch(source, 7);
                         EXPECT_FALSE(session.push(first + 6).dense);
                         EXPECT_TRUE(session.weights_match().match);
                     });
    }
}

TEST(Modes, DeltaIsDensePieceByPieceWhereMostChanged) {
    TestTarget target(test_tensors(DType::bfloat16));
    with_session({{2}, {Shard(0)}}, target, DType::bfloat16, options_for(Mode::delta),
                 [&](comm::Communicator& world, Session& session, TestSource& source) {
                     source.set_step(1);
                     const std::size_t dense = session.push(1).bytes_moved;
                     source.set_step(2);  // nearly all elements
                     const SyncReport report = session.push(2);
                     EXPECT_FALSE(report.dense);
                     EXPECT_LE(report.bytes_moved, dense);
                     EXPECT_LE(report.staging_bytes, 2u * 16384);
                     if (world.rank() == 0) expect_weights(target, DType::bfloat16, 2);
                 });
}

TEST(Modes, GatherTakesNoMoreSlotsThanThereAreBuckets) {
    for (const std::size_t bucket : {std::size_t{1} << 20, std::size_t{1} << 16, std::size_t{1} << 12}) {
        TestTarget target(test_tensors(DType::bfloat16));
        SessionOptions options = options_for(Mode::gather);
        options.bucket_bytes = bucket;
        options.depth = 4;
        with_session({{2}, {Shard(0)}}, target, DType::bfloat16, options,
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         for (int step = 1; step <= 3; ++step) {
                             source.set_step(step);
                             const SyncReport report = session.push(step);
                             EXPECT_EQ(report.depth, 4);
                             EXPECT_EQ(
                                 report.staging_bytes,
                                 static_cast<std::size_t>(std::min(report.buckets, 4)) * report.bucket_bytes);
                             if (world.rank() == 0) expect_weights(target, DType::bfloat16, step);
                         }
                     });
    }
}

// Refuses its next commit where told.
class CommitRefuser final : public ForwardingEngine {
  public:
    CommitRefuser(std::unique_ptr<engine::Engine> engine, bool& refuse)
        : ForwardingEngine(std::move(engine)), refuse_(refuse) {}
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        if (refuse_) throw Error("no");
        ForwardingEngine::commit(version, manifest, deadline);
    }

  private:
    bool& refuse_;
};

TEST(Modes, AnEngineRankThatCommittedAloneDoesNotServe) {
    for (const Mode mode : kModes) {
        SCOPED_TRACE(mode_name(mode));
        const std::vector<model::ParameterSpec> model = model_tensors("tiny");
        EngineRanks engine(engine_layout(model, {2, 1, true}, DType::bfloat16));
        bool refuse[2] = {false, false};
        std::size_t made = 0;
        with_engines(
            {{2}, {Shard(0)}}, engine.pointers, tensors_of(model, DType::bfloat16), DType::float32,
            options_for(mode),
            [&](comm::Communicator& world, Session& session, TestSource& source) {
                source.set_step(1);
                session.push(1);
                world.barrier();
                if (world.rank() == 0) refuse[1] = true;
                source.set_step(2);
                EXPECT_THROW(session.push(2), SyncError);
                if (world.rank() == 0) {
                    const auto& ranks = engine.pointers;
                    EXPECT_TRUE(ranks[0]->refusing());  // it has version 2 alone
                    EXPECT_EQ(ranks[1]->refusing(),
                              mode != Mode::alias);  // written over, or version 1 as it was
                    EXPECT_FALSE(ranks[0]->held() || ranks[1]->held());
                    refuse[1] = false;
                }
                world.barrier();
                session.push(3);
                EXPECT_TRUE(session.weights_match().match);
                if (world.rank() == 0) {
                    EXPECT_TRUE(engine.pointers[0]->serves() && engine.pointers[1]->serves());
                }
            },
            [&](std::unique_ptr<engine::Engine> inner) {
                const std::size_t e = made++;
                return std::make_unique<CommitRefuser>(std::move(inner), refuse[e]);
            });
    }
}

TEST(Modes, AnEngineMayBeFedInOneWayAfterTheOther) {
    const auto tensors = test_tensors(DType::bfloat16);
    TestTarget target(tensors);
    const Receivers receivers = make_receivers({&target});
    int version = 0;
    for (const Mode mode : {Mode::alias, Mode::delta, Mode::alias, Mode::gather, Mode::direct, Mode::delta}) {
        SCOPED_TRACE(mode_name(mode));
        const int first = version + 1;
        with_receivers({{2}, {Shard(0)}}, receivers, tensors, DType::bfloat16, options_for(mode),
                       [&](comm::Communicator& world, Session& session, TestSource& source) {
                           for (int v = first; v < first + 2; ++v) {
                               source.set_step(v);
                               session.push(v);
                               if (world.rank() == 0) expect_weights(target, DType::bfloat16, v);
                               EXPECT_TRUE(session.weights_match().match);
                           }
                       });
        version += 2;
    }
}

}  // namespace
}  // namespace tandem::sync
