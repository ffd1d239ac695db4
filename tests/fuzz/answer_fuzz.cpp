// Answers and samples of reward "numeric". An answer that is a number is that number also as a sample,
// exactly; nothing may take long.
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/target.h"
#include "trainer/reward/number.h"

using namespace tandem::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto sample = final_number(text);
    const auto answer = sole_number(text);
    if (!answer) return 0;
    if (!sample || !same_number(*sample, *answer, 0)) std::abort();
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    return {"It takes 3 days, then 4 more.\n#### 1,234.50",
            "#### -$1,000",
            "$\\frac{-3}{4}$",
            "the answer is $\\boxed{\\dfrac{\\sqrt[3]{8}}{2}\\text{ cm}^{2}}$.",
            "2\\sqrt{4} \\cdot \\sqrt{2}/3",
            "\\left(3 \\text{ or } 4\\right) 50\\% x^{-4} 4\\pi",
            "-\\frac12 + 1{,}234 - 1,\\!000 1\\,000 5^{\\circ}",
            "1 1/2 cups of 3/4 e 1e-3 2.5E+2",
            "\\fbox{x = \\mathbf{7}} **9** \\$5 60 km/h"};
}
