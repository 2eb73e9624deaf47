// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//
// Programs that record system calls, scheduling and names of chosen processes, in bursts.
//
// bpf/build.sh compiles this file to recorder.x86_64.o and recorder.aarch64.o, which are committed.
// A test compares them with this file. src/ebpf/layout.rs mirrors control, cpu and slot.
//
// - Each CPU has a ring of 64-byte slots in a mapped array. A slot is complete once its lap is
//   current, because an interrupt may reserve and fill a later slot first.
// - A full ring loses events, counted by kind. Once 1/8 is free, a LOST event ends the gap.
// - The gate is computed from the wall time, which is monotonic time and a stored offset.
// - The request of each thread is stored at all times. A THREAD event with the request comes before
//   the first system call that is recorded of the thread in a burst, and after a gap.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// Only the fields read here. The loader adapts their offsets to the running kernel.
#define KERNEL __attribute__((preserve_access_index))
struct atomic {
	s32 counter;
} KERNEL;
typedef struct atomic atomic_t;
struct signal_struct {
	atomic_t live;
} KERNEL;
struct task_struct {
	s32 pid;
	s32 tgid;
	char comm[16];
	struct signal_struct *signal;
} KERNEL;
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di, orig_ax;
} KERNEL;
#define ARG0(r) ((r)->di)
#define ARG1(r) ((r)->si)
#define ARG2(r) ((r)->dx)
#define ARG3(r) ((r)->r10)
#define ARG4(r) ((r)->r8)
#define ARG5(r) ((r)->r9)
#define NUMBER(r) ((r)->orig_ax)
#define NR_GETPID 39
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	s32 syscallno;
} KERNEL;
#define ARG0(r) ((r)->regs[0])
#define ARG1(r) ((r)->regs[1])
#define ARG2(r) ((r)->regs[2])
#define ARG3(r) ((r)->regs[3])
#define ARG4(r) ((r)->regs[4])
#define ARG5(r) ((r)->regs[5])
#define NUMBER(r) ((r)->syscallno)
#define NR_GETPID 172
#endif

// Markers, in the format of the SDK.
#define MARK 0x5354524f42450000ULL
#define MARK_MASK 0xffffffffffff0000ULL
enum { MARK_START = 1, MARK_END = 2, MARK_ON = 3, MARK_OFF = 4, MARK_HELLO = 0x7f, MARK_PAIR = 0x8000 };

enum { ENTER = 1, EXIT, SWITCH, WAKING, NEW_TASK, EXEC, TASK_EXIT, THREAD, LOST };
// MODE_DOZE: no window is near, so the programs need not read a clock.
enum { MODE_OFF, MODE_ALWAYS, MODE_BURSTS, MODE_DOZE };

// Set before loading. The verifier removes the branches that cannot be taken.
const volatile u32 SLOTS_PER_CPU = 4096; // a power of two
const volatile u32 SLOTS_SHIFT = 12;
const volatile u32 CHOOSE = 0; // 0: every process, 1: those in `chosen`

struct control {
	u32 mode;
	u32 self_tgid;
	u64 config;
	s64 wall_offset_ns; // wall time minus monotonic time
	u64 hello;
	u32 window_shift; // trailing zeros of config
	u32 epoch; // gaps closed, and times the recorder had all threads introduced again
	u32 generation; // changes with each addition to `chosen`, which makes older lookups invalid
	u32 births; // threads that began, and programs that were executed
	u32 pairs; // 1 after the first half of a pair
	u32 by_name;
};
// Each group of fields has 64 bytes, a cache line.
struct cpu {
	u64 head; // slots reserved
	u64 gap; // events lost since the gap began, 0: no gap
	// Thread of the last system call here, which usually makes the next one, too. It is recognised
	// by the address of its saved registers, on its stack. `births` shows reuse of the stack.
	u64 last_regs;
	u64 last_births; // and the generation, as in `control`
	u64 last_seen; // as in task_state, NOT_CHOSEN, or 0
	u32 last_tid;
	u32 pad[5];

	u64 gap_first_ns;
	u64 gap_kinds[4]; // enter, exit, switch, the rest
	u64 pad2[3];

	u64 lost[4]; // since the start, by the same kinds
	u64 pad3[4];

	u64 tail; // slots read; written by the reader
	u64 pad4[7];
};
enum { NOT_CHOSEN = 1 };
struct slot {
	u64 head; // tid, number of the system call, kind, lap
	u64 ts_ns;
	u64 d[6];
};
struct task_state {
	u64 trace;
	u64 span;
	u64 seen; // the burst and gap in which the thread was introduced
	u32 ns_tid; // its id in its own namespace, from markers
	u16 known; // a marker was seen
	u16 pending; // kind of a pair's first half
	u32 generation;
	u32 chosen;
};
struct name {
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); // CPUs
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); // CPUs * SLOTS_PER_CPU
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u32);
} chosen SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct name);
	__type(value, u32);
} names SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, s32);
	__type(value, struct task_state);
} tasks SEC(".maps");

struct moment {
	struct cpu *cpu;
	u64 now_ns;
	u64 seen;
	u32 number; // of the CPU
	u32 tid; // of the thread that makes the system call
};

static __always_inline struct control *get_control(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline bool is_open(struct control *c, u64 *now_ns, u64 *window)
{
	u32 mode = *(volatile u32 *)&c->mode;
	if (mode == MODE_OFF || mode == MODE_DOZE)
		return 0;
	*now_ns = bpf_ktime_get_ns();
	*window = 0;
	if (mode == MODE_ALWAYS)
		return 1;
	u64 config = *(volatile u64 *)&c->config;
	u64 ms = (*now_ns + *(volatile s64 *)&c->wall_offset_ns) / 1000000;
	*window = ms >> (c->window_shift & 63);
	return (ms & config) == config;
}

static __always_inline bool is_chosen(struct control *c, struct task_state *state, u32 tgid)
{
	if (tgid == c->self_tgid)
		return 0;
	if (!CHOOSE)
		return 1;
	u32 generation = *(volatile u32 *)&c->generation;
	if (state && state->generation == generation)
		return state->chosen;
	bool is = bpf_map_lookup_elem(&chosen, &tgid) != 0;
	if (state) {
		state->chosen = is;
		state->generation = generation;
	}
	return is;
}

static __always_inline void lose(struct moment *m, u32 kind)
{
	u32 group = kind <= SWITCH ? kind - 1 : 3;
	if (__sync_fetch_and_add(&m->cpu->gap, 1) == 0)
		m->cpu->gap_first_ns = m->now_ns;
	__sync_fetch_and_add(&m->cpu->gap_kinds[group & 3], 1);
	__sync_fetch_and_add(&m->cpu->lost[group & 3], 1);
}

// Returns a slot and sets its number, or counts a loss and returns 0.
static __always_inline struct slot *reserve(struct moment *m, u32 kind, u64 *at)
{
	// Leaves room for interrupts between this check and the reservation.
	u64 used = *(volatile u64 *)&m->cpu->head - *(volatile u64 *)&m->cpu->tail;
	if (used + 8 > SLOTS_PER_CPU || (m->cpu->gap && kind != LOST)) {
		lose(m, kind);
		return 0;
	}
	*at = __sync_fetch_and_add(&m->cpu->head, 1);
	u32 index = m->number * SLOTS_PER_CPU + ((u32)*at & (SLOTS_PER_CPU - 1));
	return bpf_map_lookup_elem(&slots, &index);
}

// Writes the head last. x86 keeps the order of stores; elsewhere, an exchange orders them.
static __always_inline void commit(struct slot *s, u64 at, u32 kind, u32 tid, u32 number)
{
	u64 lap = (u8)((at >> SLOTS_SHIFT) + 1);
	u64 head = (u64)tid | (u64)(u16)number << 32 | (u64)kind << 48 | lap << 56;
#if defined(__TARGET_ARCH_x86)
	asm volatile("" ::: "memory");
	*(volatile u64 *)&s->head = head;
#else
	__sync_lock_test_and_set(&s->head, head);
#endif
}

static __noinline int close_gap(struct control *c, struct cpu *cpu, u64 now_ns, u32 number)
{
	struct moment m = { .cpu = cpu, .now_ns = now_ns, .number = number };
	u64 used = *(volatile u64 *)&cpu->head - *(volatile u64 *)&cpu->tail, at;
	if (used > SLOTS_PER_CPU - SLOTS_PER_CPU / 8)
		return 0;
	struct slot *s = reserve(&m, LOST, &at);
	if (!s)
		return 0;
	s->ts_ns = now_ns;
	s->d[0] = cpu->gap_first_ns;
	for (int i = 0; i < 4; i++)
		s->d[i + 1] = __sync_lock_test_and_set(&cpu->gap_kinds[i], 0);
	s->d[5] = 0;
	cpu->gap = 0;
	commit(s, at, LOST, 0, 0);
	__sync_fetch_and_add(&c->epoch, 1);
	return 0;
}

// Closes a gap if there is room, and sets `seen` to the current window and number of gaps.
static __always_inline bool at_moment(struct moment *m, struct control *c, u64 window)
{
	if (m->cpu->gap)
		close_gap(c, m->cpu, m->now_ns, m->number);
	m->seen = 1ULL << 63 | (u64)*(volatile u32 *)&c->epoch << 44 | window;
	return 1;
}

static __always_inline bool begin(struct moment *m, struct control *c, u64 now_ns, u64 window)
{
	m->now_ns = now_ns;
	m->number = bpf_get_smp_processor_id();
	m->cpu = bpf_map_lookup_elem(&cpus, &m->number);
	return m->cpu && at_moment(m, c, window);
}
static __always_inline void introduce(struct moment *m, struct task_state *state, struct task_struct *task)
{
	if (!state || state->seen == m->seen)
		return;
	u64 at;
	struct slot *s = reserve(m, THREAD, &at);
	if (!s)
		return;
	state->seen = m->seen;
	s->ts_ns = m->now_ns;
	s->d[0] = state->trace;
	s->d[1] = state->span;
	s->d[2] = (u64)(u32)task->tgid | (u64)state->ns_tid << 32;
	s->d[3] = state->known;
	bpf_probe_read_kernel(&s->d[4], 16, task->comm);
	commit(s, at, THREAD, task->pid, 0);
}

// Stores which thread makes the system call, and whether its process is chosen.
static __noinline int meet(struct control *c, struct cpu *cpu, u64 regs, u64 births)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	// Without storage for its state, the thread is looked up again at its next call.
	cpu->last_regs = state ? regs : 0;
	cpu->last_births = births;
	cpu->last_tid = task->pid;
	cpu->last_seen = !is_chosen(c, state, task->tgid) ? NOT_CHOSEN : state ? state->seen : 0;
	return 0;
}

// Introduces a thread before its first system call in a burst, or after a gap.
static __noinline int introduce_caller(struct cpu *cpu, u64 now_ns, u64 seen, u32 number)
{
	struct moment m = { .cpu = cpu, .now_ns = now_ns, .seen = seen, .number = number };
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state) {
		// The thread's request is not stored, so the missing introduction counts as a loss.
		lose(&m, THREAD);
		return 0;
	}
	introduce(&m, state, task);
	// If the ring is full, the next call tries again to introduce the thread.
	cpu->last_seen = state->seen == seen ? seen : 0;
	return 0;
}

// Reports whether to record a system call. It checks the mode first, then the stored thread, and
// then the clock, whose reading costs most. Preemption is off in these programs, so no other
// thread's system call changes the stored thread meanwhile.
static __always_inline bool call_begins(struct moment *m, struct control *c, struct pt_regs *regs)
{
	u64 window;
	u32 mode = *(volatile u32 *)&c->mode;
	if (mode == MODE_OFF || mode == MODE_DOZE)
		return 0;
	m->number = bpf_get_smp_processor_id();
	struct cpu *cpu = m->cpu = bpf_map_lookup_elem(&cpus, &m->number);
	if (!cpu)
		return 0;
	u64 births = *(volatile u64 *)&c->generation;
	if (cpu->last_regs != (u64)regs || cpu->last_births != births)
		meet(c, cpu, (u64)regs, births);
	if (cpu->last_seen == NOT_CHOSEN || !is_open(c, &m->now_ns, &window))
		return 0;
	m->tid = cpu->last_tid;
	at_moment(m, c, window);
	if (cpu->last_seen != m->seen)
		introduce_caller(cpu, m->now_ns, m->seen, m->number);
	return 1;
}

static __always_inline void work_for(struct task_state *state, u64 trace, u64 span)
{
	state->trace = trace;
	state->span = trace ? span : 0;
	state->known = 1;
}

static __always_inline bool is_mark(u64 first)
{
	return (first & MARK_MASK) == MARK;
}

// Applies a marker, or the second half of a pair, to the thread's state, also outside of bursts.
static __noinline int follow_marker(struct control *c, struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 first = ARG0(regs);
	u32 kind = is_mark(first) ? first & 0xffff : 0;
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, kind ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!state)
		return 0;
	if (state->pending) {
		u32 pending = state->pending;
		state->pending = 0;
		if (!kind) {
			work_for(state, pending == MARK_START ? first : 0, 0);
			return 0;
		}
	}
	if (kind == MARK_HELLO && ARG1(regs) == c->hello)
		c->self_tgid = task->tgid;
	else if (kind == MARK_START || kind == MARK_ON)
		work_for(state, ARG1(regs), ARG2(regs));
	else if (kind == MARK_END || kind == MARK_OFF)
		work_for(state, ARG4(regs), ARG5(regs));
	else if (kind == (MARK_PAIR | MARK_START) || kind == (MARK_PAIR | MARK_END)) {
		state->pending = kind & ~MARK_PAIR;
		c->pairs = 1;
	}
	if (kind < MARK_HELLO)
		state->ns_tid = ARG3(regs);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	struct control *c = get_control();
	u64 at;
	struct moment m;
	if (!c)
		return 0;
	bool open = call_begins(&m, c, regs);
	// Follows the introduction, which has the thread's request before this marker.
	if (number == NR_GETPID && (is_mark(ARG0(regs)) || *(volatile u32 *)&c->pairs))
		follow_marker(c, regs);
	if (!open)
		return 0;
	struct slot *s = reserve(&m, ENTER, &at);
	if (!s)
		return 0;
	s->ts_ns = m.now_ns;
	s->d[0] = ARG0(regs);
	s->d[1] = ARG1(regs);
	s->d[2] = ARG2(regs);
	s->d[3] = ARG3(regs);
	s->d[4] = ARG4(regs);
	s->d[5] = ARG5(regs);
	commit(s, at, ENTER, m.tid, number);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	struct control *c = get_control();
	u64 at;
	struct moment m;
	if (!c || !call_begins(&m, c, regs))
		return 0;
	struct slot *s = reserve(&m, EXIT, &at);
	if (!s)
		return 0;
	s->ts_ns = m.now_ns;
	s->d[0] = result;
	commit(s, at, EXIT, m.tid, NUMBER(regs));
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct control *c = get_control();
	u64 now_ns, window, at;
	struct moment m;
	if (!c || !is_open(c, &now_ns, &window))
		return 0;
	struct task_state *from = bpf_task_storage_get(&tasks, prev, 0, 0);
	struct task_state *to = bpf_task_storage_get(&tasks, next, 0, 0);
	bool is_from = is_chosen(c, from, prev->tgid), is_to = is_chosen(c, to, next->tgid);
	if ((!is_from && !is_to) || !begin(&m, c, now_ns, window))
		return 0;
	if (is_from)
		introduce(&m, from, prev);
	if (is_to)
		introduce(&m, to, next);
	struct slot *s = reserve(&m, SWITCH, &at);
	if (!s)
		return 0;
	s->ts_ns = now_ns;
	s->d[0] = (u64)(u32)next->pid | (u64)(preempt ? 0 : prev_state & 0xff) << 32;
	s->d[1] = (u64)(u32)prev->tgid | (u64)(u32)next->tgid << 32;
	bpf_probe_read_kernel(&s->d[2], 16, prev->comm);
	bpf_probe_read_kernel(&s->d[4], 16, next->comm);
	commit(s, at, SWITCH, prev->pid, 0);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *woken)
{
	struct control *c = get_control();
	u64 now_ns, window, at;
	struct moment m;
	if (!c || !is_open(c, &now_ns, &window))
		return 0;
	struct task_struct *waker = bpf_get_current_task_btf();
	struct task_state *by = bpf_task_storage_get(&tasks, waker, 0, 0);
	struct task_state *of = bpf_task_storage_get(&tasks, woken, 0, 0);
	bool is_by = is_chosen(c, by, waker->tgid), is_of = is_chosen(c, of, woken->tgid);
	if ((!is_by && !is_of) || !begin(&m, c, now_ns, window))
		return 0;
	if (is_by)
		introduce(&m, by, waker);
	if (is_of)
		introduce(&m, of, woken);
	struct slot *s = reserve(&m, WAKING, &at);
	if (!s)
		return 0;
	s->ts_ns = now_ns;
	s->d[0] = (u64)(u32)woken->pid | (u64)(u32)woken->tgid << 32;
	s->d[1] = (u32)waker->tgid;
	commit(s, at, WAKING, waker->pid, 0);
	return 0;
}

static __always_inline void choose(struct control *c, u32 tgid)
{
	u32 one = 1;
	bpf_map_update_elem(&chosen, &tgid, &one, 0);
	__sync_fetch_and_add(&c->generation, 1);
}

SEC("tp_btf/task_newtask")
int BPF_PROG(task_newtask, struct task_struct *task, unsigned long flags)
{
	struct control *c = get_control();
	u64 now_ns, window, at;
	struct moment m;
	if (!c)
		return 0;
	// The new thread may have the stack of one that ended.
	__sync_fetch_and_add(&c->births, 1);
	if (!*(volatile u32 *)&c->mode)
		return 0;
	struct task_struct *parent = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, parent, 0, 0);
	u32 tgid = parent->tgid;
	// Chooses the forks of a chosen process, also between bursts, and those of the recorder as well.
	if (CHOOSE && task->tgid != tgid && bpf_map_lookup_elem(&chosen, &tgid))
		choose(c, task->tgid);
	if (!is_chosen(c, state, tgid))
		return 0;
	if (!is_open(c, &now_ns, &window) || !begin(&m, c, now_ns, window))
		return 0;
	introduce(&m, state, parent);
	struct slot *s = reserve(&m, NEW_TASK, &at);
	if (!s)
		return 0;
	s->ts_ns = now_ns;
	s->d[0] = (u64)(u32)task->pid | (u64)(u32)task->tgid << 32;
	s->d[1] = (u32)parent->tgid;
	bpf_probe_read_kernel(&s->d[4], 16, task->comm);
	commit(s, at, NEW_TASK, parent->pid, 0);
	return 0;
}

// Records a thread's new name while a window is open, and chooses a process by its name.
static __always_inline int renamed(struct task_struct *task, const char *comm, u32 kind)
{
	struct control *c = get_control();
	u64 now_ns, window, at;
	struct moment m;
	struct name name = {};
	if (!c)
		return 0;
	// A thread that executes a program gets its process's id.
	if (kind == EXEC)
		__sync_fetch_and_add(&c->births, 1);
	if (!*(volatile u32 *)&c->mode)
		return 0;
	bpf_probe_read_kernel_str(&name, 16, comm);
	if (CHOOSE && c->by_name && kind == EXEC && bpf_map_lookup_elem(&names, &name))
		choose(c, task->tgid);
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, 0);
	if (!is_chosen(c, state, task->tgid))
		return 0;
	if (!is_open(c, &now_ns, &window) || !begin(&m, c, now_ns, window))
		return 0;
	struct slot *s = reserve(&m, EXEC, &at);
	if (!s)
		return 0;
	s->ts_ns = now_ns;
	s->d[0] = (u32)task->tgid;
	bpf_probe_read_kernel(&s->d[4], 16, &name);
	commit(s, at, EXEC, task->pid, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	return renamed(task, task->comm, EXEC);
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	return renamed(task, comm, 0);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct control *c = get_control();
	u64 now_ns, window, at;
	struct moment m;
	if (!c || !*(volatile u32 *)&c->mode)
		return 0;
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, 0);
	u32 tgid = task->tgid;
	if (!is_chosen(c, state, tgid))
		return 0;
	// The kernel may reuse the process's id.
	if (CHOOSE && task->signal->live.counter == 0)
		bpf_map_delete_elem(&chosen, &tgid);
	if (!is_open(c, &now_ns, &window) || !begin(&m, c, now_ns, window))
		return 0;
	introduce(&m, state, task);
	struct slot *s = reserve(&m, TASK_EXIT, &at);
	if (!s)
		return 0;
	s->ts_ns = now_ns;
	s->d[0] = tgid;
	commit(s, at, TASK_EXIT, task->pid, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
