// The ops against values from PyTorch (tests/golden/make_ops.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/ops/adamw.h"
#include "common/ops/attention.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/elementwise.h"
#include "common/ops/quantize.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "common/ops/swiglu.h"
#include "tests/support/dequantize.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::Doubles;
using testing::expect_close;
using testing::zeros;

class Golden {
  public:
    explicit Golden(const std::string& name) {
        std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/ops_" + name + ".json");
        require(file.good(), "no golden file for {}", name);
        json_ = nlohmann::json::parse(file);
    }
    Tensor tensor(const char* key) const {
        const auto values = json_.at(key).at("values").get<std::vector<float>>();
        return Tensor::from<float>(values, json_.at(key).at("shape").get<Shape>());
    }
    Doubles wanted(const char* key) const { return json_.at(key).at("values").get<Doubles>(); }
    std::vector<std::int32_t> ids(const char* key) const {
        const Doubles values = wanted(key);
        return {values.begin(), values.end()};
    }
    float number(const char* key) const { return json_.at(key).get<float>(); }

  private:
    nlohmann::json json_;
};

TEST(OpsGolden, Attention) {
    const Golden g("attention");
    Stream stream = Stream::make_inline();
    const Tensor q = g.tensor("q"), k = g.tensor("k"), v = g.tensor("v"), dout = g.tensor("dout");
    const std::int64_t tokens = q.dim(0), heads = q.dim(1);
    const float scale = 1.0f / std::sqrt(static_cast<float>(q.dim(2)));
    const auto segments = ops::packed_segments({0, static_cast<std::int32_t>(tokens)});
    const Tensor out = zeros(q.shape()), lse = zeros({heads, tokens}), delta = zeros({heads, tokens});
    const Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dv = zeros(v.shape());
    ops::attention_forward(stream, q, k, v, segments, scale, out, lse);
    ops::attention_delta(stream, dout, out, delta);
    ops::attention_backward(stream, dout, q, k, v, lse, delta, segments, scale, dq, dk, dv);
    expect_close(out, g.wanted("out"), 1e-5, "out");
    expect_close(lse, g.wanted("lse"), 1e-5, "lse");
    expect_close(dq, g.wanted("dq"), 1e-5, "dq", 1e-6);
    expect_close(dk, g.wanted("dk"), 1e-5, "dk", 1e-6);
    expect_close(dv, g.wanted("dv"), 1e-5, "dv", 1e-6);
}

TEST(OpsGolden, RmsNorm) {
    const Golden g("rms_norm");
    Stream stream = Stream::make_inline();
    const Tensor x = g.tensor("x"), weight = g.tensor("weight");
    const Tensor y = zeros(x.shape()), rstd = zeros({x.dim(0)}), dx = zeros(x.shape()),
                 dweight = zeros(weight.shape());
    ops::rms_norm(stream, x, weight, g.number("eps"), y, rstd);
    ops::rms_norm_backward(stream, g.tensor("dy"), x, weight, rstd, dx, dweight);
    expect_close(y, g.wanted("y"), 1e-5, "y");
    expect_close(dx, g.wanted("dx"), 1e-5, "dx", 1e-6);
    expect_close(dweight, g.wanted("dweight"), 1e-5, "dweight", 1e-6);
}

TEST(OpsGolden, SwiGlu) {
    const Golden g("swiglu");
    Stream stream = Stream::make_inline();
    const Tensor gate = g.tensor("gate"), up = g.tensor("up");
    const Tensor y = zeros(gate.shape()), dgate = zeros(gate.shape()), dup = zeros(gate.shape());
    ops::swiglu(stream, gate, up, y);
    ops::swiglu_backward(stream, g.tensor("dy"), gate, up, dgate, dup);
    expect_close(y, g.wanted("y"), 1e-5, "y");
    expect_close(dgate, g.wanted("dgate"), 1e-5, "dgate", 1e-6);
    expect_close(dup, g.wanted("dup"), 1e-5, "dup");
}

TEST(OpsGolden, Rope) {
    const Golden g("rope");
    Stream stream = Stream::make_inline();
    const Tensor x = g.tensor("x");
    ops::rope(stream, x, g.ids("positions"),
              testing::rope_table(static_cast<double>(g.number("theta")), x.dim(2)));
    // The angle at position 4000 carries the frequency's rounding: 4000 * 2^-24.
    expect_close(x, g.wanted("y"), 1e-5, "y", 3e-4);
}

TEST(OpsGolden, TokenLogprobs) {
    const Golden g("logprobs");
    Stream stream = Stream::make_inline();
    const Tensor logits = g.tensor("logits");
    const auto targets = g.ids("targets");
    std::vector<float> logprobs(targets.size()), lse(targets.size()), entropies(targets.size());
    ops::token_logprobs(stream, logits, targets, g.number("temperature"), logprobs, lse, entropies);
    const auto row = [](const std::vector<float>& values) {
        return Tensor::from<float>(values, {static_cast<std::int64_t>(values.size())});
    };
    expect_close(row(logprobs), g.wanted("logprobs"), 1e-5, "logprobs");
    expect_close(row(entropies), g.wanted("entropies"), 1e-5, "entropies", 1e-6);
    ops::token_logprobs_backward(stream, logits, targets, g.number("temperature"), lse,
                                 g.tensor("dlogprobs").to_vector<float>());
    expect_close(logits, g.wanted("dlogits"), 1e-5, "dlogits");
}

TEST(OpsGolden, AdamW) {
    const Golden g("adamw");
    Stream stream = Stream::make_inline();
    const Tensor param = g.tensor("start"), grads = g.tensor("grads");
    const Tensor m = zeros(param.shape()), v = zeros(param.shape());
    const Doubles wanted = g.wanted("params");
    for (std::int64_t step = 0; step < grads.dim(0); ++step) {
        ops::adamw(stream, param, grads.rows(step, 1), m, v,
                   {.lr = 0.01f, .weight_decay = 0.1f, .step = step + 1});
        const auto begin = wanted.begin() + step * param.numel();
        expect_close(param, Doubles(begin, begin + param.numel()), 1e-5, "param");
    }
}

TEST(OpsGolden, Bfloat16) {
    const Golden g("bfloat16");
    Stream stream = Stream::make_inline();
    const Tensor values = g.tensor("values"), back = zeros(values.shape());
    const Tensor rounded = zeros(values.shape(), DType::bfloat16);
    ops::cast(stream, values, rounded);
    ops::cast(stream, rounded, back);
    testing::expect_same_bits(back, g.tensor("rounded"), "rounded");
}

TEST(OpsGolden, Float8) {
    const Golden g("float8");
    const Tensor bits = g.tensor("bits"), numbers = g.tensor("numbers");
    for (std::int64_t i = 0; i < bits.numel(); ++i) {
        const float number = test::e4m3_to_float(static_cast<std::uint8_t>(bits.data<float>()[i]));
        ASSERT_EQ(number, numbers.data<float>()[i]) << i;
    }
    const Tensor values = g.tensor("values"), rounded = g.tensor("rounded");
    for (std::int64_t i = 0; i < values.numel(); ++i) {
        const float value = values.data<float>()[i];
        ASSERT_EQ(ops::float_to_e4m3(value), rounded.data<float>()[i]) << value;
    }
}

}  // namespace
}  // namespace tandem
