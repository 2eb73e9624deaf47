// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//
// Writes 8 bytes for each thread of the machine: the flags of its extra work at system calls.
typedef unsigned char __u8;
typedef unsigned short __u16, __be16;
typedef unsigned int __u32, __be32, __wsum;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
#include <bpf/bpf_helpers.h>

#define KERNEL __attribute__((preserve_access_index))
struct thread_info {
	unsigned long syscall_work;
} KERNEL;
struct task_struct {
	struct thread_info thread_info;
} KERNEL;
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL;

SEC("iter/task")
int threads(struct bpf_iter__task *at)
{
	struct task_struct *task = at->task;
	if (!task)
		return 0;
	unsigned long work = task->thread_info.syscall_work;
	bpf_seq_write(at->meta->seq, &work, sizeof(work));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
