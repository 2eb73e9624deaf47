/* Replaces zstd's cpu.h in the gate, and states that the processor has no optional instructions. */
#if !defined(ZSTD_COMMON_CPU_H) && !defined(__ASSEMBLER__)
#define ZSTD_COMMON_CPU_H
typedef struct {
    int none;
} ZSTD_cpuid_t;
static inline ZSTD_cpuid_t ZSTD_cpuid(void) {
    ZSTD_cpuid_t none = {0};
    return none;
}
static inline int ZSTD_cpuid_bmi1(ZSTD_cpuid_t cpu) { return cpu.none; }
static inline int ZSTD_cpuid_bmi2(ZSTD_cpuid_t cpu) { return cpu.none; }
#endif
