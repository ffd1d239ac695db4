#include "tests/unit/common/ops/amx_traps.h"

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/ops/cpu/attention/amx.h"
#include "common/ops/cpu/instruction_sets.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;

[[noreturn]] void give_up(const char* why) {
    [[maybe_unused]] const auto written = ::write(2, why, std::strlen(why));
    std::abort();
}

// An instruction with a prefix of three bytes, and where its operand in memory lies.
struct TileInstruction {
    TileInstruction(const unsigned char* at, const greg_t* registers) : code(at), next(at + 5) {
        constexpr int kNumbers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
        if (mode() == 3) return;
        const unsigned high_index = (code[1] & 0x40) != 0 ? 0 : 8, high_base = (code[1] & 0x20) != 0 ? 0 : 8;
        unsigned base = rm();
        bool has_base = true;
        if (rm() == 4) {
            const unsigned sib = *next++;
            const unsigned index = (sib >> 3 & 7) + high_index;
            base = sib & 7;
            has_base = base != 5 || mode() != 0;
            if (index != 4) stride = registers[kNumbers[index]] << (sib >> 6);
        }
        const bool beside_code = rm() == 5 && mode() == 0;
        std::int32_t offset = 0;
        if (mode() == 1) {
            offset = static_cast<signed char>(*next++);
        } else if (mode() == 2 || beside_code || !has_base) {
            std::memcpy(&offset, next, 4);
            next += 4;
        }
        std::int64_t address = offset;
        if (beside_code) {
            address += reinterpret_cast<std::int64_t>(next);
        } else if (has_base) {
            address += registers[kNumbers[base + high_base]];
        }
        memory = reinterpret_cast<unsigned char*>(address);
    }

    unsigned mode() const { return code[4] >> 6; }
    unsigned reg() const { return code[4] >> 3 & 7; }
    unsigned rm() const { return code[4] & 7; }
    unsigned third() const { return ~(code[2] >> 3) & 7; }
    // The last bits of the prefix, and the opcode.
    bool is(unsigned prefix, unsigned opcode) const {
        return code[0] == 0xc4 && (code[1] & 0x1f) == 2 && (code[2] & 3) == prefix && code[3] == opcode;
    }

    const unsigned char* code;
    const unsigned char* next;
    unsigned char* memory = nullptr;
    std::int64_t stride = 0;  // bytes
};

void configure(const unsigned char* config) {
    unsigned char wanted[64] = {1};
    for (int tile = 0; tile < 8; ++tile) wanted[16 + 2 * tile] = 64, wanted[48 + tile] = 16;
    if (std::memcmp(config, wanted, 64) != 0) give_up("a configuration that is not eight full tiles\n");
    configure_tiles();
}

void run(const TileInstruction& i) {
    if (i.is(0, 0x49) && i.mode() != 3) return configure(i.memory);
    if (i.is(0, 0x49)) return release_tiles();
    if (!i.is(3, 0x49) && !i.is(3, 0x4b) && !i.is(2, 0x4b) && !i.is(2, 0x5c))
        give_up("an instruction that is none of AMX's\n");
    auto& tile = emulated_tile(static_cast<int>(i.reg()));
    for (int row = 0; row < kTileRows && !i.is(2, 0x5c); ++row) {
        unsigned char* const memory = i.memory + row * i.stride;
        if (i.is(3, 0x49)) std::memset(tile[row], 0, 64);
        if (i.is(3, 0x4b)) std::memcpy(tile[row], memory, 64);
        if (i.is(2, 0x4b)) std::memcpy(memory, tile[row], 64);
    }
    if (i.is(2, 0x5c)) {
        multiply_emulated(tile, emulated_tile(static_cast<int>(i.rm())),
                          emulated_tile(static_cast<int>(i.third())));
    }
}

void on_refused(int, siginfo_t*, void* context) {
    greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const TileInstruction instruction(reinterpret_cast<const unsigned char*>(registers[REG_RIP]), registers);
    run(instruction);
    registers[REG_RIP] = reinterpret_cast<greg_t>(instruction.next);
}

bool install() {
    constexpr unsigned kTiles = 1U << 24;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!runs_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) != 0)
        return false;
    struct sigaction action {};
    action.sa_sigaction = on_refused;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGILL, &action, nullptr) == 0;
}

}  // namespace

bool traps_amx() {
    static const bool traps = install();
    return traps;
}

}  // namespace tandem::testing
