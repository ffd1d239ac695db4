// The 16 cases of TorchTitan's test_parallel_dims.py, its etp case corrected, and the rank lists of an
// independent script.
#include "common/mesh/parallel_dims.h"

#include <gmock/gmock.h>

#include <map>

#include "common/comm/launch.h"
#include "common/error.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Groups = std::vector<std::vector<int>>;

// In the order of the golden tables: rep, shard, cp, tp, pp, ep, etp, world size.
ParallelDims dims(int rep, int shard, int cp, int tp, int pp, int ep, int etp, int world, int rank = 0) {
    return ParallelDims({rep, shard, cp, tp, pp, ep, etp}, world, rank);
}

template <typename Call>
void expect_dims_refused(const Call& call, const std::string& part) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(part)));
}

TEST(ParallelDims, V1KeepsWhatItIsGiven) {
    const ParallelDims d = dims(2, 2, 1, 2, 1, 1, 1, 8);
    EXPECT_EQ(d.degrees(), (ParallelDegrees{2, 2, 1, 2, 1, 1, 1}));
    EXPECT_EQ(d.world_size(), 8);
}

TEST(ParallelDims, V2InfersDpShard) {
    EXPECT_EQ(dims(2, -1, 1, 2, 1, 1, 1, 8).degrees().dp_shard, 2);
    EXPECT_EQ(dims(1, -1, 1, 1, 1, 1, 1, 1).degrees().dp_shard, 1);
    expect_dims_refused(
        [] { dims(2, -1, 2, 2, 1, 1, 1, 4); },
        "dp_shard cannot be inferred: dp_replicate(2) * cp(2) * tp(2) * pp(1) = 8 is more than "
        "world_size(4)");
    expect_dims_refused([] { dims(3, -1, 1, 1, 1, 1, 1, 8); }, "= 6 != world_size(8)");
}

TEST(ParallelDims, V3RefusesAProductThatIsNotTheWorld) {
    expect_dims_refused([] { dims(2, 2, 1, 2, 1, 1, 1, 10); },
                        "dp_replicate(2) * dp_shard(2) * cp(1) * tp(2) * pp(1) = 8 != world_size(10)");
    // Products beyond 64 bits are refused too, not wrapped into something that fits.
    expect_dims_refused([] { dims(1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1, 1, 1); },
                        "!= world_size(1)");
}

TEST(ParallelDims, V4RefusesDegreesBelowOne) {
    expect_dims_refused([] { dims(0, 1, 1, 1, 1, 1, 1, 1); },
                        "dp_replicate(0): a parallelism degree must be at least 1");
    expect_dims_refused([] { dims(1, 0, 1, 1, 1, 1, 1, 1); }, "dp_shard(0) must be at least 1, or -1");
    expect_dims_refused([] { dims(1, -2, 1, 1, 1, 1, 1, 1); }, "dp_shard(-2) must be at least 1, or -1");
    expect_dims_refused([] { dims(1, 1, -1, 1, 1, 1, 1, 1); }, "cp(-1)");
    expect_dims_refused([] { dims(1, 1, 1, 0, 1, 1, 1, 1); }, "tp(0)");
    expect_dims_refused([] { dims(1, 1, 1, 1, 0, 1, 1, 1); }, "pp(0)");
    expect_dims_refused([] { dims(1, 1, 1, 1, 1, 0, 1, 1); }, "ep(0)");
    expect_dims_refused([] { dims(1, 1, 1, 1, 1, 1, 0, 1); }, "etp(0)");
    expect_dims_refused([] { dims(1, 1, 1, 1, 1, 1, 1, 0); }, "world_size(0)");
}

TEST(ParallelDims, V5RefusesEtpThatIsNeitherTpNorOne) {
    expect_dims_refused([] { dims(1, 1, 1, 4, 1, 2, 2, 8); },
                        "= 4 != world_size(8)");  // as upstream: the product speaks first
    expect_dims_refused([] { dims(1, 2, 1, 4, 1, 2, 2, 8); },
                        "etp(2) must be tp(4) or 1 when ep(2) is above 1");  // corrected
    EXPECT_EQ(dims(1, 2, 1, 4, 1, 2, 4, 8).axis_size("efsdp"), 1);
    EXPECT_EQ(dims(1, 2, 1, 4, 1, 2, 1, 8).axis_size("efsdp"), 4);
}

TEST(ParallelDims, V6Flags) {
    const ParallelDims a = dims(2, 2, 1, 2, 1, 1, 1, 8);
    EXPECT_TRUE(a.dp_enabled() && a.dp_replicate_enabled() && a.dp_shard_enabled() && a.tp_enabled() &&
                a.fsdp_enabled());
    EXPECT_FALSE(a.cp_enabled() || a.pp_enabled() || a.ep_enabled() || a.etp_enabled());
    const ParallelDims b = dims(1, 1, 2, 1, 1, 1, 1, 2);
    EXPECT_FALSE(b.dp_enabled());
    EXPECT_TRUE(b.cp_enabled() && b.dp_cp_enabled() && b.fsdp_enabled());
    const ParallelDims c = dims(1, 2, 1, 1, 1, 2, 1, 2);
    EXPECT_TRUE(c.ep_enabled());
    EXPECT_FALSE(c.etp_enabled());
    EXPECT_TRUE(dims(1, 1, 1, 1, 2, 1, 1, 2).pp_enabled());
    EXPECT_FALSE(dims(1, 1, 1, 1, 2, 1, 1, 2).dp_cp_enabled());
}

TEST(ParallelDims, V7V8V9DerivedNumbers) {
    EXPECT_EQ(dims(2, 3, 2, 1, 1, 1, 1, 12).fsdp_gradient_divide_factor(), 12);
    EXPECT_EQ(dims(2, 2, 2, 3, 2, 1, 1, 48).non_data_parallel_size(), 12);
    EXPECT_EQ(dims(2, 1, 2, 4, 1, 1, 1, 16).seq_len_divisor(), 16);
}

TEST(ParallelDims, M1OneRankWithARealWorld) {
    const ParallelDims d(ParallelDegrees{1, 1, 1, 1, 1, 1, 1}, comm::solo());
    for (const std::string& axis : ParallelDims::axis_names()) {
        EXPECT_EQ(d.axis_mesh(axis).size(), 1) << axis;
        EXPECT_FALSE(d.get_optional_mesh({axis}).has_value()) << axis;
    }
    EXPECT_FALSE(d.get_optional_mesh({"dp_replicate", "fsdp"}).has_value());
    EXPECT_FALSE(d.get_optional_mesh({"dp_replicate", "efsdp"}).has_value());
    EXPECT_FALSE(d.get_optional_mesh({"ep", "etp"}).has_value());
    EXPECT_TRUE(d.one_dimensional_meshes().empty());
    EXPECT_EQ(d.world_mesh().size(), 1);
}

TEST(ParallelDims, M2UnknownAxis) {
    const ParallelDims d = dims(1, 1, 1, 1, 1, 1, 1, 1);
    expect_dims_refused(
        [&] { d.get_mesh("invalid_mesh"); },
        "Invalid mesh dim: 'invalid_mesh'. Valid dimensions are: [pp, batch, loss, dp_replicate, "
        "fsdp, cp, tp");
    expect_dims_refused([&] { d.get_optional_mesh({"fsdp", "dp_shard"}); }, "Invalid mesh dim: 'dp_shard'");
    expect_dims_refused([&] { d.axis_mesh("x"); }, "Invalid mesh dim: 'x'");
    expect_dims_refused([&] { d.get_optional_mesh(std::vector<std::string>{}); }, "no mesh axis asked for");
}

TEST(ParallelDims, M3MeshesAreBuiltByTheFirstQuestion) {
    const ParallelDims d = dims(1, 1, 1, 1, 1, 1, 1, 1);
    EXPECT_FALSE(d.meshes_built());
    EXPECT_FALSE(d.get_optional_mesh({"dp_replicate", "fsdp"}).has_value());
    EXPECT_TRUE(d.meshes_built());
}

TEST(ParallelDims, M4ExpertsMustDivide) {
    EXPECT_NO_THROW(dims(1, 2, 1, 1, 1, 2, 1, 2));
    // Upstream builds an efsdp axis of size 0 from this one.
    expect_dims_refused([] { dims(2, 2, 1, 1, 1, 3, 1, 4); },
                        "ep(3) * etp(1) = 3 does not divide dp_shard(2) * cp(1) * tp(1) = 2");
    // ep alone divides, ep * etp does not.
    expect_dims_refused([] { dims(1, 1, 1, 4, 1, 2, 4, 4); }, "ep(2) * etp(4) = 8 does not divide");
    expect_dims_refused([] { dims(1, 3, 1, 2, 1, 1, 4, 6); },
                        "etp(4)");  // ep = 1 does not excuse an etp that fits nowhere
}

TEST(ParallelDims, GetMeshOfADisabledAxisSaysSo) {
    const ParallelDims d = dims(2, 2, 1, 2, 1, 1, 1, 8);
    expect_dims_refused([&] { d.get_mesh("cp"); }, "Mesh 'cp' is not available");
    expect_dims_refused([&] { d.get_mesh({"fsdp", "efsdp"}); }, "[fsdp, efsdp] is not available");
    expect_dims_refused([&] { d.get_mesh({"loss", "tp"}); }, "Invalid mesh name combinations [loss, tp]");
    expect_dims_refused(
        [&] {
            d.get_mesh({"batch", "fsdp"});
        },
        "Invalid mesh name combinations [batch, fsdp]");
    expect_dims_refused([&] { d.get_mesh({"fsdp", "dp_replicate"}); }, "order of the mesh");
}

std::map<std::string, Groups> all_groups(const ParallelDims& d) {
    std::map<std::string, Groups> result;
    for (const std::string& axis : ParallelDims::axis_names()) {
        const DeviceMesh& mesh = d.axis_mesh(axis);
        result[axis] = mesh.groups(mesh.names()[0]);
    }
    return result;
}

Groups singles(int n) {
    Groups result;
    for (int i = 0; i < n; ++i) result.push_back({i});
    return result;
}

TEST(ParallelDims, W1EightRanks) {
    const ParallelDims d = dims(2, 2, 1, 2, 1, 1, 1, 8);
    const std::map<std::string, int> sizes = {{"pp", 1},   {"batch", 4}, {"loss", 4}, {"dp_replicate", 2},
                                              {"fsdp", 2}, {"cp", 1},    {"tp", 2},   {"ep", 1},
                                              {"etp", 1},  {"efsdp", 4}};
    for (const auto& [axis, size] : sizes) {
        EXPECT_EQ(d.axis_size(axis), size) << axis;
        EXPECT_EQ(d.axis_mesh(axis).size(), size) << axis;
    }
    EXPECT_THAT(d.get_mesh({"dp_replicate", "fsdp"}).sizes(), ElementsAre(2, 2));
    EXPECT_FALSE(d.get_optional_mesh({"dp_replicate", "efsdp"}).has_value());
    EXPECT_FALSE(d.get_optional_mesh({"ep", "etp"}).has_value());
    std::vector<std::string> names;
    for (const auto& [name, mesh] : d.one_dimensional_meshes()) {
        names.push_back(name);
        EXPECT_EQ(mesh.ndim(), 1);
    }
    EXPECT_THAT(names, ElementsAre("batch", "loss", "dp_replicate", "fsdp", "tp", "efsdp"));
    EXPECT_EQ(d.fsdp_gradient_divide_factor(), 4);
    EXPECT_EQ(d.non_data_parallel_size(), 2);
    EXPECT_EQ(d.seq_len_divisor(), 4);

    const Groups batch{{0, 2, 4, 6}, {1, 3, 5, 7}};
    const Groups tp{{0, 1}, {2, 3}, {4, 5}, {6, 7}};
    EXPECT_EQ(all_groups(d),
              (std::map<std::string, Groups>{{"pp", singles(8)},
                                             {"batch", batch},
                                             {"cp", singles(8)},
                                             {"tp", tp},
                                             {"loss", batch},
                                             {"dp_replicate", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
                                             {"fsdp", {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
                                             {"efsdp", {{0, 1, 2, 3}, {4, 5, 6, 7}}},
                                             {"ep", singles(8)},
                                             {"etp", singles(8)}}));
}

TEST(ParallelDims, ExpertRankLists) {
    const ParallelDims d = dims(1, 2, 2, 2, 1, 4, 1, 8);
    const Groups evens{{0, 2, 4, 6}, {1, 3, 5, 7}};
    EXPECT_EQ(all_groups(d), (std::map<std::string, Groups>{{"pp", singles(8)},
                                                            {"batch", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
                                                            {"cp", {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
                                                            {"tp", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
                                                            {"loss", evens},
                                                            {"dp_replicate", singles(8)},
                                                            {"fsdp", evens},
                                                            {"efsdp", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
                                                            {"ep", {{0, 1, 2, 3}, {4, 5, 6, 7}}},
                                                            {"etp", singles(8)}}));
}

TEST(ParallelDims, EfsdpExistsWithExpertsEvenAtSizeOne) {
    const ParallelDims d = dims(1, 2, 1, 1, 1, 2, 1, 2);
    EXPECT_EQ(d.axis_size("efsdp"), 1);
    EXPECT_TRUE(d.axis_exists("efsdp"));
    EXPECT_EQ(d.get_mesh("efsdp").size(), 1);
    EXPECT_THAT(d.get_mesh({"efsdp", "ep"}).sizes(), ElementsAre(1, 2));
}

TEST(ParallelDims, TrainMeshWithItsFlattenedAxes) {
    const ParallelDims d =
        dims(2, 2, 2, 2, 2, 1, 1, 32, 21);  // 21 = (pp 1, replicate 0, shard 1, cp 0, tp 1)
    const DeviceMesh& mesh = d.train_mesh();
    EXPECT_THAT(mesh.names(), ElementsAre("pp", "dp_replicate", "dp_shard", "cp", "tp"));
    EXPECT_THAT(mesh.coordinates(), ElementsAre(1, 0, 1, 0, 1));
    EXPECT_THAT(mesh.slice({"dp"}).ranks(), ElementsAre(17, 21, 25, 29));
    EXPECT_THAT(mesh.slice({"dp_shard_cp"}).ranks(), ElementsAre(17, 19, 21, 23));
    EXPECT_THAT(mesh.slice({"dp_cp"}).ranks(), ElementsAre(17, 19, 21, 23, 25, 27, 29, 31));
    EXPECT_EQ(mesh.slice({"dp_shard_cp"}).ranks(), d.get_mesh("fsdp").ranks());
    EXPECT_EQ(mesh.slice({"dp_cp"}).ranks(), d.get_mesh("loss").ranks());
    EXPECT_THAT(mesh.slice({"dp_replicate", "dp_shard_cp"}).sizes(), ElementsAre(2, 4));
}

// How long it takes: mesh_bench.
TEST(ParallelDims, SixteenThousandRanks) {
    const ParallelDims d = dims(4, 16, 4, 8, 8, 16, 8, 16384, 777);
    std::size_t ranks = 0;
    for (const auto& [axis, groups] : all_groups(d)) {
        for (const auto& group : groups) ranks += group.size();
    }
    EXPECT_EQ(ranks, 10u * 16384u);
}

}  // namespace
}  // namespace tandem
