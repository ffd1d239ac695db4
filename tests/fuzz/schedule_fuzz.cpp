// Pipeline schedules in CSV. What is read is written as it was; what can be lowered passes the check, and can be timed.
#include <cstdlib>
#include <string_view>

#include "common/error.h"
#include "tests/fuzz/target.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/csv.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/simulate.h"

using namespace tandem;
using namespace tandem::pipeline;

namespace {

// A schedule that can run, with what its compute lists become.
void expect_runs(const Schedule& compute, const Schedule& lowered) {
    try {
        check_lowered(lowered, compute);
    } catch (const BadInput&) {
        std::abort();
    }
    if (simulate(compute).makespan <= 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const Schedule schedule = read_csv({reinterpret_cast<const char*>(data), size}, "f.csv");
        if (read_csv(to_csv(schedule), "f.csv").ranks != schedule.ranks) std::abort();
        const Schedule compute = compute_of(schedule);
        check_compute(compute);
        if (has_communication(schedule)) check_lowered(schedule, compute);
        const Schedule lowered = lower(compute);
        expect_runs(compute, lowered);
    } catch (const ConfigError&) {
    } catch (const BadInput&) {
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    std::vector<std::string> seeds;
    for (const char* name : {"GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"}) {
        const bool single = name[0] == '1' || name[0] == 'G';
        const Schedule schedule = make_schedule(name, 2, single ? 1 : 2, 4);
        seeds.push_back(to_csv(schedule));
        seeds.push_back(to_csv(lower(schedule)));
    }
    seeds.push_back("0F0,,\"0B0\"\n");
    return seeds;
}
