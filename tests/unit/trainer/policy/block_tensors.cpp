#include "tests/unit/trainer/policy/block_tensors.h"

#include <fmt/core.h>

#include "common/sharding/holding.h"
#include "common/tensor/host_access.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {

using model::Cut;
using model::Role;

std::string BlockMesh::text() const {
    return fmt::format("{} x {} x {}", dp_replicate, fsdp, tp);
}

std::vector<model::ParameterSpec> block_specs(int tp) {
    const int heads = tp == 3 ? 1 : 2;
    return {{.name = "embedding", .shape = {5, 3}, .cut = Cut::vocabulary},
            {.name = "q", .shape = {13, 7}, .cut = Cut::column},
            {.name = "q.bias", .shape = {13}, .cut = Cut::column},
            {.name = "k", .shape = {6, 7}, .cut = Cut::column, .heads = heads, .role = Role::k},
            {.name = "o", .shape = {7, 11}, .cut = Cut::row},
            {.name = "o.bias", .shape = {7}, .cut = Cut::replicate},
            {.name = "gate", .shape = {2, 3}, .cut = Cut::column},
            {.name = "down", .shape = {3, 2}, .cut = Cut::row},
            {.name = "experts", .shape = {3, 5, 2}, .cut = Cut::row},
            {.name = "norm", .shape = {7}, .cut = Cut::replicate}};
}

Tensor values_of(const model::ParameterSpec& spec) {
    const Tensor full = Tensor::empty(spec.shape, DType::float32, "test");
    float value = 1.0f + static_cast<float>(spec.name.size()) + static_cast<float>(spec.name[0]);
    for (float& each : full.values<float>()) each = value += 0.3337f;
    return full;
}

DTensor as_held(const std::shared_ptr<comm::Communicator>& world, const BlockMesh& mesh,
                const model::ParameterSpec& spec, const Tensor& full) {
    const DeviceMesh all =
        DeviceMesh::create(world, {mesh.dp_replicate, mesh.fsdp, mesh.tp}, {"dp_replicate", "fsdp", "tp"});
    const Holding held = holding_of(all, "fsdp", spec);
    const Tensor own = DTensor::distribute(full, held.mesh, held.placements).local().clone("test");
    const Device device = device_of(world->rank());
    Stream stream = Stream::make(device, "test");
    const Tensor local = device == Device{} ? own : own.to(stream, device, "test");
    stream.synchronize();
    return DTensor::from_local(local, held.mesh, held.placements, spec.shape);
}

std::vector<std::pair<std::string, DTensor>> block_tensors(const std::shared_ptr<comm::Communicator>& world,
                                                           const BlockMesh& mesh) {
    std::vector<std::pair<std::string, DTensor>> tensors;
    for (const model::ParameterSpec& spec : block_specs(mesh.tp))
        tensors.emplace_back(spec.name, as_held(world, mesh, spec, values_of(spec)));
    return tensors;
}

std::vector<float> values_on_host(const Tensor& tensor) {
    return HostAccess().read(tensor).to_vector<float>();
}

}  // namespace tandem::trainer::testing
