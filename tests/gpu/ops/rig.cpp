#include "tests/gpu/ops/rig.h"

#include <cmath>

#include "common/ops/elementwise.h"
#if defined(TANDEM_KERNELS_ON_HOST)
#include "tests/support/guarded_memory.h"
#endif

namespace tandem::tests {

Stream& tested_stream() {
#if defined(TANDEM_KERNELS_ON_HOST)
    static Stream stream = Stream::make_inline();
#else
    static Stream stream = Stream::make_compute({DeviceType::cuda, 0});
#endif
    return stream;
}

Tensor to_tested(const Tensor& host) {
    if (!host.defined()) return {};
#if defined(TANDEM_KERNELS_ON_HOST)
    return host.clone("tested", guarded_pool());
#else
    Tensor result = host.to(tested_stream(), tested_stream().device(), "tested");
    tested_stream().synchronize();
    return result;
#endif
}

Tensor to_host(const Tensor& tensor) {
    tested_stream().synchronize();
    if (!tensor.defined()) return {};
#if defined(TANDEM_KERNELS_ON_HOST)
    return tensor;
#else
    return tensor.to_host(tested_stream());
#endif
}

Tensor random(Shape shape, std::uint64_t seed, float scale) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    Tensor result = Tensor::empty(std::move(shape), DType::float32, "test");
    for (float& value : result.values<float>()) value = normal(engine);
    return result;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int32_t below, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::uniform_int_distribution<std::int32_t> uniform(0, below - 1);
    std::vector<std::int32_t> result(static_cast<std::size_t>(count));
    for (auto& value : result) value = uniform(engine);
    return result;
}

Tensor zeros(Shape shape) {
    return Tensor::zeros(std::move(shape), DType::float32, "test");
}

Tensor with_dtype(const Tensor& tensor, DType dtype) {
    if (!tensor.defined()) return {};
    Stream stream = Stream::make_inline();
    Tensor result = Tensor::empty(tensor.shape(), dtype, "test");
    ops::cast(stream, tensor, result);
    return result;
}

std::vector<double> values_of(const Tensor& host) {
    if (!host.defined()) return {};
    const Tensor wide = host.dtype() == DType::float32 ? host : with_dtype(host, DType::float32);
    const auto all = wide.values<float>();
    return {all.begin(), all.end()};
}

namespace {

double root_mean_square(const std::vector<double>& values) {
    double sum = 0.0;
    std::size_t count = 0;
    for (const double value : values) {
        if (!std::isfinite(value)) continue;
        sum += value * value;
        ++count;
    }
    return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

double distance(double a, double b) {
    if (std::isnan(a) && std::isnan(b)) return 0.0;
    return a == b ? 0.0 : std::abs(a - b);  // equal infinities
}

double largest_distance(const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double d = distance(a[i], b[i]);
        if (!(d <= most)) most = d;  // NaN too
    }
    return most;
}

std::vector<Tensor> copies(const std::vector<Arg>& args, DType dtype, bool widened = false) {
    std::vector<Tensor> result;
    for (const Arg& arg : args) {
        if (!arg.tensor.defined()) {
            result.emplace_back();
        } else if (arg.fixed) {
            result.push_back(arg.tensor.clone("test"));
        } else {
            Tensor lowered = with_dtype(arg.tensor, dtype);
            result.push_back(widened ? with_dtype(lowered, DType::float32) : lowered);
        }
    }
    return result;
}

std::vector<Tensor> run_tested(const std::vector<Tensor>& args, const Call& call) {
    std::vector<Tensor> there;
    for (const Tensor& arg : args) there.push_back(to_tested(arg));
    call(tested_stream(), there);
    std::vector<Tensor> back;
    for (const Tensor& arg : there) back.push_back(to_host(arg));
    return back;
}

double largest_finite(const std::vector<double>& values) {
    double result = 0.0;
    for (const double x : values) {
        if (std::isfinite(x)) result = std::max(result, std::abs(x));
    }
    return result;
}

// Between x and the next bfloat16, which has 8 bits.
double bfloat16_step(double x) {
    return x == 0.0 ? 0.0 : std::ldexp(1.0, std::ilogb(x) - 7);
}

}  // namespace

void expect_close(const Tensor& found, const Tensor& wanted, double tolerance) {
    ASSERT_EQ(found.shape(), wanted.shape());
    const std::vector<double> a = values_of(found), b = values_of(wanted);
    const double floor = root_mean_square(b);
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double allowed = tolerance * std::max(std::abs(b[i]), floor);
        ASSERT_TRUE(distance(a[i], b[i]) <= (std::isfinite(allowed) ? allowed : 0.0))
            << "element " << i << " of " << to_string(found.shape()) << " is " << a[i] << ", not " << b[i];
    }
}

void compare_float32(const std::vector<Arg>& args, const Call& on_cpu, const Call& on_tested) {
    Stream cpu = Stream::make_inline();
    std::vector<Tensor> wanted = copies(args, DType::float32);
    const std::vector<Tensor> found = run_tested(copies(args, DType::float32), on_tested);
    on_cpu(cpu, wanted);
    for (std::size_t i = 0; i < args.size(); ++i) {
        SCOPED_TRACE("float32, argument " + std::to_string(i));
        if (args[i].tensor.defined()) expect_close(found[i], wanted[i]);
    }
}

void compare(const std::vector<Arg>& args, const Call& on_cpu, const Call& on_tested) {
    compare_float32(args, on_cpu, on_tested);
    Stream cpu = Stream::make_inline();
    std::vector<Tensor> exact = copies(args, DType::bfloat16, true);
    std::vector<Tensor> rounded = copies(args, DType::bfloat16);
    const std::vector<Tensor> found = run_tested(copies(args, DType::bfloat16), on_tested);
    on_cpu(cpu, exact);
    on_cpu(cpu, rounded);
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (!args[i].tensor.defined()) continue;
        const std::vector<double> reference = values_of(exact[i]);
        const double floor = 1e-5 * root_mean_square(reference);
        double allowed = 2.0 * largest_distance(values_of(rounded[i]), reference) + floor;
        if (!args[i].fixed) allowed = std::max(allowed, bfloat16_step(largest_finite(reference)));
        EXPECT_LE(largest_distance(values_of(found[i]), reference), allowed)
            << "bfloat16, argument " << i << " of shape " << to_string(args[i].tensor.shape());
    }
}

}  // namespace tandem::tests
